"""Which received records columns take, and that they become the same entries as one by one."""

import struct
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

from sprocket.remoting.message.record import (
    BLANK_MIN_BYTES,
    MAGIC_AT,
    MAGIC_V1,
    PHYSICAL_OFFSET_AT,
    QUEUE_ID_AT,
    SysFlag,
)
from store.alike import arrived_records
from store.alike.arrived_records import are_enough, take_alike
from store.layout import CONSUME_QUEUE_DTYPE
from store.record.checksum import SEAL_BYTES, masked_crc, seal
from tests.fuzz.store_targets import whole_record
from tests.fuzz.twins.scan_targets import sealed

BASE, FIRST, COUNT = 1 << 33, 7, 64
UNUSUAL = int(SysFlag.BORN_HOST_V6 | SysFlag.STORE_HOST_V6 | SysFlag.TRANSACTION_PREPARED)
USUAL = "UNIQ_KEY\x01K{n:03}\x02TAGS\x01paid\x02"


class Log:
    """Records that follow one another, and their queues."""

    def __init__(self) -> None:
        self.content = bytearray()
        self.queues: dict[tuple[bytes, int], Any] = {}
        self.added: dict[tuple[bytes, int], list[tuple[int, int]]] = {}

    def add(
        self,
        number: int,
        properties: str = USUAL,
        topic: str = "Orders",
        queue_id: int = 0,
        body_bytes: int = 40,
        sys_flag: int = 0,
        skipped: int = 0,
        shift: int = 0,
        magic: int = MAGIC_V1,
    ) -> None:
        record = bytearray(whole_record(bytes(body_bytes), properties.format(n=number).encode(), sys_flag, topic))
        key = topic.encode(), queue_id
        self.queues.setdefault(key, SimpleNamespace(next_offset=FIRST, key=key))
        entries = self.added.setdefault(key, [])
        struct.pack_into(">i", record, QUEUE_ID_AT, queue_id)
        place = FIRST + len(entries) + skipped, BASE + len(self.content) + shift
        struct.pack_into(">qq", record, PHYSICAL_OFFSET_AT - 8, *place)
        whole = bytearray(sealed(bytes(record)))
        struct.pack_into(">i", whole, MAGIC_AT, magic)
        whole[-SEAL_BYTES:] = seal(masked_crc(bytes(whole[:-SEAL_BYTES])))
        entries.append((BASE + len(self.content), len(whole)))
        self.content += whole

    def take(self, room_bytes: int = 1 << 20, size: int | None = None) -> tuple[int, int, list[tuple[Any, bytes]]]:
        content = memoryview(bytes(self.content))[:size]
        return take_alike(content, BASE, room_bytes, UNUSUAL, queue_of=lambda *key: self.queues.get(key))

    def check_all_taken(self, codes: set[int]) -> None:
        taken, timestamp, found = self.take()
        assert (taken, timestamp) == (len(self.content), 1_700_000_000_000)
        rows = {queue.key: np.frombuffer(units, CONSUME_QUEUE_DTYPE) for queue, units in found}
        assert {key: [(at, size) for at, size, _ in part.tolist()] for key, part in rows.items()} == self.added
        assert {code for part in rows.values() for code in part["tags_code"].tolist()} == codes


@pytest.fixture
def log() -> Log:
    return Log()


def filled(log: Log, odd: int = -1, **fields: Any) -> Log:
    """Usual records for three queues; the one of number `odd` has `fields`."""
    for number in range(COUNT):
        log.add(number, **({"queue_id": number % 3} | (fields if number == odd else {})))
    return log


def test_records_of_one_size_in_one_queue(log: Log) -> None:
    for number in range(COUNT):
        log.add(number)
    log.check_all_taken({3433164})


def test_records_of_one_size_in_several_queues(log: Log) -> None:
    filled(log).check_all_taken({3433164})


def test_bodies_and_tails_of_several_lengths_and_topics(log: Log) -> None:
    for number in range(COUNT):
        properties = USUAL if number % 2 else USUAL.replace("paid", "returned")
        log.add(number, properties, "Orders" if number % 4 < 2 else "Refund", number % 3, number * 7 % 100)
    log.check_all_taken({3433164, -306987569})


def test_records_without_tag(log: Log) -> None:
    for number in range(COUNT):
        log.add(number, USUAL.replace("TAGS", "TAGZ"))
    log.check_all_taken({0})


def test_a_part_of_a_record_at_the_end_is_left(log: Log) -> None:
    filled(log)
    size = len(log.content)
    last = log.added[b"Orders", (COUNT - 1) % 3][-1][1]
    assert log.take(size=size - 1)[0] == size - last
    assert log.take(room_bytes=size)[0] == size
    assert log.take(room_bytes=size - 1)[0] == size - last
    assert log.take(room_bytes=-BLANK_MIN_BYTES)[0] == 0
    assert log.take(size=3)[0] == 0


@pytest.mark.parametrize(
    "fields",
    [
        {"sys_flag": int(SysFlag.TRANSACTION_PREPARED)}, {"skipped": 1}, {"skipped": -1}, {"shift": 1},
        {"magic": MAGIC_V1 ^ 1},
        {"topic": "Refunds", "properties": USUAL.replace("paid", "due")}, {"properties": USUAL + "x"},
        {"properties": USUAL.replace("paid", "pa\x7fd")}, {"properties": USUAL.replace("\x02T", "2T")},
        {"properties": USUAL.replace("TAGS", "TAGZ")}, {"properties": USUAL.replace("paid\x02", "paid2")},
    ],
)  # fmt: skip
def test_one_unusual_record_leaves_all_to_others(log: Log, fields: dict[str, Any]) -> None:
    assert filled(log, 40, **fields).take() == (0, 0, [])


def test_a_queue_that_others_decide_about(log: Log) -> None:
    filled(log)
    del log.queues[b"Orders", 2]
    assert log.take() == (0, 0, [])


def test_the_first_message_of_a_queue_is_left_to_others(log: Log) -> None:
    for number in range(COUNT):
        log.add(number, skipped=-FIRST)
    log.queues[b"Orders", 0].next_offset = 0
    assert log.take() == (0, 0, [])


def test_no_flipped_bit_is_taken(log: Log) -> None:
    filled(log)
    begin = log.added[b"Orders", 1][5][0] - BASE
    for octet in range(begin, begin + log.added[b"Orders", 1][5][1]):
        for bit in (1, 0x40):
            log.content[octet] ^= bit
            # A damaged size may end the records there: those before it are right.
            assert log.take()[0] in (0, begin), octet - begin
            log.content[octet] ^= bit
    assert log.take()[0] == len(log.content)


def test_records_of_many_lengths_are_not_worth_arrays(log: Log) -> None:
    for number in range(COUNT):
        log.add(number, USUAL + "K\x01" + "v" * (1 + number % 4) + "\x02")
    assert log.take()[0] == 0
    with patch.object(arrived_records, "MIN_ALIKE", 16):
        assert log.take()[0] == len(log.content)


def test_how_many_records_are_enough(log: Log) -> None:
    filled(log)
    size = log.added[b"Orders", 0][0][1]
    assert are_enough(memoryview(log.content)[: arrived_records.MIN_ALIKE * size])
    assert not are_enough(memoryview(log.content)[: arrived_records.MIN_ALIKE * size - 1])
