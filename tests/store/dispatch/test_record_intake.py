"""Which received records a replica takes without arrays, by each engine: those before the first unusual one."""

import struct
from types import SimpleNamespace
from typing import Any

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
from store.appender import Batch
from store.dispatch.record_intake import RecordIntake
from store.layout import CONSUME_QUEUE_DTYPE, CONSUME_QUEUE_UNIT_BYTES
from store.record.checksum import SEAL_BYTES, masked_crc, seal
from tests.fuzz.store_targets import whole_record
from tests.fuzz.twins.intake_targets import compiled
from tests.fuzz.twins.scan_targets import TAGS_CODES, sealed

BASE, FIRST, COUNT = 1 << 33, 7, 64
USUAL = "UNIQ_KEY\x01K{n:03}\x02TAGS\x01paid\x02"
TIMESTAMP = 1_700_000_000_000

pytestmark = pytest.mark.parametrize(
    "engine",
    [
        pytest.param(None, id="python"),
        pytest.param(
            compiled, id="native", marks=pytest.mark.skipif(compiled is None, reason="the compiled engine is not built")
        ),
    ],
)


class _Dispatch:
    """Keeps the entries of each queue."""

    def __init__(self) -> None:
        self.entries: dict[tuple[str, int], list[tuple[int, int, int]]] = {}

    def enter_units(self, queue: Any, units: bytes) -> None:
        self.entries.setdefault(queue.key, []).extend(np.frombuffer(units, CONSUME_QUEUE_DTYPE).tolist())
        queue.next_offset += len(units) // CONSUME_QUEUE_UNIT_BYTES


class Log:
    """Records that follow one another, and their queues."""

    def __init__(self, odd: int = -1, **fields: Any) -> None:
        """Usual records for three queues; the one of number `odd` has `fields`."""
        self.content = bytearray()
        self.queues: dict[tuple[str, int], Any] = {}
        self.added: dict[tuple[str, int], list[tuple[int, int, int]]] = {}
        self.ends = [0]
        for number in range(COUNT):
            self.add(number, **({"queue_id": number % 3} | (fields if number == odd else {})))

    def add(
        self, number: int, properties: str = USUAL, topic: str = "Orders", queue_id: int = 0, code: int = 3433164,
        sys_flag: int = 0, skipped: int = 0, shift: int = 0, magic: int = MAGIC_V1,
    ) -> None:  # fmt: skip
        body = bytes(number * 7 % 100)
        record = bytearray(whole_record(body, properties.format(n=number).encode(), sys_flag, topic))
        key = topic, queue_id
        self.queues.setdefault(key, SimpleNamespace(next_offset=FIRST, key=key, is_batch=False, is_schedule=False))
        entries = self.added.setdefault(key, [])
        struct.pack_into(">i", record, QUEUE_ID_AT, queue_id)
        place = FIRST + len(entries) + skipped, BASE + len(self.content) + shift
        struct.pack_into(">qq", record, PHYSICAL_OFFSET_AT - 8, *place)
        whole = bytearray(sealed(bytes(record)))
        struct.pack_into(">i", whole, MAGIC_AT, magic)
        whole[-SEAL_BYTES:] = seal(masked_crc(bytes(whole[:-SEAL_BYTES])))
        entries.append((BASE + len(self.content), len(whole), code))
        self.content += whole
        self.ends.append(len(self.content))

    def take(self, engine: Any, room_bytes: int = 1 << 20, size: int | None = None) -> tuple[int, _Dispatch, int]:
        """Return how many bytes were taken, the entries, and the timestamp of the last record."""
        part: Any = SimpleNamespace(segment_end=lambda offset: BASE + room_bytes, requires_seals=True)
        table: Any = SimpleNamespace(by_key=self.queues, dispatches=False)
        dispatch, batch = _Dispatch(), Batch(0)
        for queue in self.queues.values():
            queue.next_offset = min(queue.next_offset, FIRST)
        intake = RecordIntake(part, table, TAGS_CODES, engine)
        content = memoryview(bytes(self.content))[:size]
        end = intake.take(dispatch, batch, BASE, content)  # type: ignore[arg-type]
        return end - BASE, dispatch, batch.store_timestamp


def test_usual_records_of_several_queues_topics_and_tags(engine: Any) -> None:
    log = Log()
    for number in range(COUNT):
        log.add(number, USUAL.replace("paid", "returned"), "Refunds", number % 2, code=-306987569)
        log.add(number, USUAL.replace("TAGS", "TAGZ"), code=0)
    taken, dispatch, timestamp = log.take(engine)
    assert (taken, timestamp) == (len(log.content), TIMESTAMP)
    assert dispatch.entries == log.added


def test_a_part_of_a_record_and_the_room_for_a_blank_are_left(engine: Any) -> None:
    log = Log()
    size, before = log.ends[-1], log.ends[-2]
    assert log.take(engine, size=size - 1)[0] == before
    assert log.take(engine, room_bytes=size + BLANK_MIN_BYTES)[0] == size
    assert log.take(engine, room_bytes=size + BLANK_MIN_BYTES - 1)[0] == before
    assert log.take(engine, size=3)[0] == 0


@pytest.mark.parametrize(
    "fields",
    [
        {"sys_flag": int(SysFlag.TRANSACTION_PREPARED)}, {"skipped": 1}, {"skipped": -1}, {"shift": 1},
        {"magic": MAGIC_V1 ^ 1}, {"queue_id": 3},
    ],
)  # fmt: skip
def test_an_unusual_record_and_those_after_it_are_left(engine: Any, fields: dict[str, Any]) -> None:
    log = Log(40, **fields)
    log.queues.pop(("Orders", 3), None)
    assert log.take(engine)[0] == log.ends[40]


def test_the_first_message_of_a_queue_is_left(engine: Any) -> None:
    log = Log(40, queue_id=3, skipped=-FIRST)
    log.queues["Orders", 3].next_offset = 0
    assert log.take(engine)[0] == log.ends[40]


def test_no_flipped_bit_is_taken(engine: Any) -> None:
    log = Log()
    for octet in range(log.ends[20], log.ends[21]):
        for bit in (1, 0x40):
            log.content[octet] ^= bit
            assert log.take(engine)[0] == log.ends[20], octet - log.ends[20]
            log.content[octet] ^= bit
    assert log.take(engine)[0] == len(log.content)
