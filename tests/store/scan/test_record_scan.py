"""A scan of a part of the log gives the whole records in it, and the reason why it stopped."""

import pytest

from store.record.record import blank
from store.scan.record_scan import UNFINISHED, RecordScan, Stop
from tests.fuzz.store_targets import whole_record

RECORD = whole_record(b"some body", b"TAGS\x01t\x02")
SIZE = len(RECORD)
BASE = 0
ROOM = 4096


def changed(at: int, content: bytes) -> bytes:
    return RECORD[:at] + content + RECORD[at + len(content) :]


@pytest.mark.parametrize(
    ("following", "stop"),
    [
        (b"", Stop.END),
        (b"\0" * 7, Stop.NO_ROOM),
        (blank(ROOM - SIZE), Stop.BLANK),
        (bytes(100), Stop.ZEROS),
        (blank(50), Stop.BAD_MAGIC),
        (changed(0, b"\0\0\0\x09"), Stop.BAD_SIZE),
        (changed(0, b"\x7f\xff\xff\xff"), Stop.BAD_SIZE),
        (RECORD[:-1], Stop.HALF_RECORD),
        (changed(84, b"\x7f\xff\xff\xff"), Stop.MALFORMED),
        (changed(90, b"B"), Stop.BAD_CRC),
        (RECORD, Stop.MISPLACED),
    ],
)
@pytest.mark.parametrize("slack", [True, False])
def test_why_a_scan_stops(following: bytes, stop: Stop, slack: bool) -> None:
    data = RECORD + following
    if slack and stop not in UNFINISHED:
        data = data.ljust(ROOM, b"\0")
    scan = RecordScan(memoryview(data), BASE, ROOM, check_crc=True)
    batches = list(scan)
    assert [(batch.begin_offset, batch.end_offset, batch.topics) for batch in batches] == [(BASE, SIZE, ["Orders"])]
    assert (scan.end.stop, scan.end.position) == (stop, SIZE)
    assert scan.end.reason


def test_a_limit_ends_a_scan_before_the_record_that_begins_there() -> None:
    for limit, records in ((0, 0), (1, 1), (SIZE, 1)):
        scan = RecordScan(memoryview(RECORD * 2), BASE, ROOM, check_crc=True, limit=limit)
        assert sum(map(len, scan)) == records
        assert (scan.end.stop, scan.end.position) == (Stop.LIMIT, records * SIZE)
