"""Which stored records are alike, and what is known of them."""

import struct
from unittest.mock import patch

import numpy as np
import pytest

from sprocket.remoting.message.record import ANY_V6, BODY_LENGTH_AT
from store.alike import stored_records
from store.alike.stored_records import MIN_ALIKE, MovedShape, StoredRecords, read_alike
from store.record.record import topic_field
from tests.fuzz.store_targets import whole_record
from tests.fuzz.twins.scan_targets import sealed

TOPIC = "Waiting"
FIELD = topic_field(TOPIC)[1]
USUAL = "UNIQ_KEY\x01K{n:03}\x02TAGS\x01T{n:03}\x02REAL_TOPIC\x01Orders\x02REAL_QID\x01{n}\x02"
FLAGS = ~ANY_V6


def record(number: int = 1, properties: str = USUAL, topic: str = TOPIC) -> bytes:
    text = properties.format(n=number).encode()
    return sealed(whole_record(bytes(number % 7), text, 0, topic))


def read(records: list[bytes], flags: int = FLAGS) -> list[StoredRecords] | None:
    sizes = np.array(list(map(len, records)), np.int64)
    return read_alike(memoryview(b"".join(records)), sizes.cumsum() - sizes, sizes, FIELD, flags)


def usual(count: int = MIN_ALIKE) -> list[bytes]:
    return [record(100 + number) for number in range(count)]


def test_records_of_one_form_with_any_bodies() -> None:
    (found,) = read(usual()) or []
    assert (found.shape.real_topic, found.shape.group, found.sys_flag) == ("Orders", None, 0)
    assert [len(body) for body in found.bodies] == [(100 + number) % 7 for number in range(MIN_ALIKE)]
    assert found.values(b"REAL_QID")[3].tobytes() == b"103"
    assert found.values(b"UNIQ_KEY")[5].tobytes() == b"K105"


def test_tails_of_two_lengths_are_two_parts() -> None:
    records = [record(number) for number in range(3, 35)]
    single, double = read(records) or []
    assert single.rows.tolist() == list(range(7))
    assert double.rows.tolist() == list(range(7, 32))


def test_few_records_are_not_worth_arrays() -> None:
    assert read(usual(MIN_ALIKE - 1)) is None
    assert read([*usual(), record(7), record(1000), record(10_000)]) is None


@pytest.mark.parametrize(
    "other",
    [
        USUAL.replace("Orders", "Trades"), USUAL.replace("TAGS", "TAGZ"), USUAL.replace("K{n:03}", "K\x0112"),
        USUAL.replace("K{n:03}", "K\x0212"), USUAL.replace("K{n:03}", "K\x0012"), USUAL.replace("T{n:03}", "T\x7f12"),
        USUAL.replace("\x01{n}", "\x01099"), USUAL.replace("\x01{n}", "\x011x1"),
    ],
)  # fmt: skip
def test_one_that_differs_in_what_decides(other: str) -> None:
    records = usual()
    assert len(record(105, other)) == len(records[5])
    records[5] = record(105, other)
    assert read(records) is None


@pytest.mark.parametrize(
    "properties",
    [
        USUAL + "REAL_QID\x011\x02", USUAL + "TIMER_ENQUEUE_MS\x017\x02", USUAL + "INNER_NUM\x011\x02",
        USUAL + "a#\x01b\x02", USUAL + "empty\x01\x02", USUAL + "open\x01end", USUAL + "noname\x02", "K\x01v\x02",
        USUAL.replace("REAL_QID\x01{n}", "REAL_QID\x011234567890"), USUAL.replace("REAL_QID\x01", "REAL_QID\x01-"),
    ],
)  # fmt: skip
def test_properties_that_need_python(properties: str) -> None:
    assert read([record(100 + number, properties) for number in range(MIN_ALIKE)]) is None


def test_any_value_that_decides_nothing() -> None:
    records = [sealed(whole_record(b"", b"K\x01%c#\xff\x02REAL_TOPIC\x01T\x02REAL_QID\x010\x02" % (3 + n), 0, TOPIC))
               for n in range(MIN_ALIKE)]  # fmt: skip
    (found,) = read(records) or []
    assert found.values(b"K")[4].tobytes() == b"\x07#\xff"


def test_damaged_and_foreign_records() -> None:
    for octet in range(BODY_LENGTH_AT + 4):
        records = usual()
        damaged = bytearray(records[2])
        damaged[octet] ^= 0x40
        records[2] = bytes(damaged)
        with patch.object(stored_records, "MIN_ALIKE", 2):
            found = read(records)
        # Sizes, magic number and flags decide; what else the fixed fields say goes into the new record.
        decides = octet < 8 or 36 <= octet < 40 or octet >= BODY_LENGTH_AT
        assert (found is None) == decides, octet
    assert read([record(100 + number, topic="Running") for number in range(MIN_ALIKE)]) is None
    assert read([one[:-20] for one in usual()]) is None
    assert read(usual(), flags=0) is not None
    flagged = [sealed(whole_record(b"", b"REAL_TOPIC\x01T\x02REAL_QID\x010\x02", 8, TOPIC)) for _ in range(MIN_ALIKE)]
    assert read(flagged, flags=0) is None
    assert read(flagged, flags=8) is not None


@pytest.mark.parametrize(("begin", "size"), [(-1, 300), (0, -5), (0, 1 << 62), (1 << 62, 300), (10**6, 300), (0, 0)])
def test_places_outside_of_the_segment(begin: int, size: int) -> None:
    records = usual()
    sizes = np.array(list(map(len, records)), np.int64)
    begins = sizes.cumsum() - sizes
    begins[4], sizes[4] = begin, size
    assert read_alike(memoryview(b"".join(records)), begins, sizes, FIELD, FLAGS) is None


def test_records_that_are_chosen() -> None:
    (found,) = read(usual()) or []
    assert found.chosen(np.ones(MIN_ALIKE, np.bool_)) is found
    assert found.chosen(np.zeros(MIN_ALIKE, np.bool_)) is None
    some = found.chosen(np.arange(MIN_ALIKE) % 2 == 1)
    assert some is not None
    assert some.rows.tolist() == list(range(1, MIN_ALIKE, 2))
    assert [some.values(b"REAL_QID")[1].tobytes(), len(some.bodies[1])] == [b"103", 103 % 7]


def test_a_tail_whose_length_field_is_wrong() -> None:
    tail = record()[BODY_LENGTH_AT + 4 + 1 :]
    assert MovedShape.of(tail, FIELD) is not None
    at = len(FIELD)
    assert MovedShape.of(tail[:at] + struct.pack(">H", len(tail)) + tail[at + 2 :], FIELD) is None
    assert MovedShape.of(tail[: at + 1], FIELD) is None
