"""A search for a property in the records of a batch."""

import struct
import sys
from types import FrameType
from typing import Any

from sprocket.remoting.message.record import PHYSICAL_OFFSET_AT
from store.scan.record_batch import RecordBatch
from store.scan.record_scan import RecordScan
from tests.fuzz.store_targets import whole_record

TEXT = b"INNER_IDEMPOTENCE_ID\x01"


def batch_of_log(*parts: tuple[bytes, bytes]) -> RecordBatch:
    """The batch of a log with these bodies and properties."""
    content = bytearray()
    for body, properties in parts:
        record = bytearray(whole_record(body, properties))
        struct.pack_into(">q", record, PHYSICAL_OFFSET_AT, len(content))
        content += record
    # Room for a blank: without it the last record would be a batch of its own.
    (batch,) = RecordScan(memoryview(bytes(content + bytes(8))), 0, len(content) + 8, check_crc=True)
    return batch


def calls_of_search(batch: RecordBatch) -> tuple[int, list[int]]:
    """The number of calls that a search for `TEXT` takes, and what it finds."""
    calls = 0

    def count(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        found = batch.records_with(TEXT)
    finally:
        sys.setprofile(before)
    return calls, found


def test_a_text_is_found_in_properties_only() -> None:
    property_ = TEXT + b"id\x02"
    batch = batch_of_log(
        (b"", property_), (TEXT, b"a\x01b\x02"), (TEXT[:-1], b"\x01b\x02"), (TEXT * 3, b"a\x01b\x02" + property_),
        (b"body", b""), (b"body", property_ * 2),
    )  # fmt: skip
    assert batch.records_with(TEXT) == [0, 3, 5]
    assert batch.records_with(b"none") == []


def test_a_body_full_of_the_text_costs_no_more_than_one_that_has_it_once() -> None:
    once, _ = calls_of_search(batch_of_log((TEXT, b""), (b"body", TEXT + b"id\x02")))
    often, found = calls_of_search(batch_of_log((TEXT * 3000, b""), (b"body", TEXT + b"id\x02")))
    assert (often, found) == (once, [1])
