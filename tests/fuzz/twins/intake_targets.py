"""Intake of a replica's records, compiled and in Python: the same entries of the same queues."""

import random
import struct
from collections import Counter
from types import SimpleNamespace
from typing import Any, Final

import numpy as np

from sprocket.remoting.message.properties import find_last
from sprocket.remoting.message.record import PHYSICAL_OFFSET_AT, QUEUE_ID_AT
from store.appender import Batch
from store.dispatch.record_intake import RecordIntake
from store.layout import CONSUME_QUEUE_DTYPE
from store.record.checksum import SEAL_BYTES, SEAL_NAME, masked_crc, seal
from store.record.record import TAGS_NAME, decode
from tests.fuzz.store_targets import whole_record
from tests.fuzz.target import Target
from tests.fuzz.twins.scan_targets import BASE, TAGS_CODES, TOPICS, log_of, sealed

try:
    from store.dispatch import record_intake_native as compiled
except ImportError:  # no C compiler: `tests/engine` says so
    compiled = None  # type: ignore[assignment]

_FIRST: Final = 7  # offset of each queue's next message; 0 is another case
_QUEUES_OF_ORDERS: Final = 3
_FILE_BYTES: Final = 1 << 20


class _Queues(dict[tuple[str, int], Any]):
    """Queues that exist: some are unusual, and one is empty."""

    def __init__(self) -> None:
        super().__init__()
        for topic in TOPICS[:-1]:
            self[topic, 0] = SimpleNamespace(
                topic=topic,
                next_offset=0 if topic == "Ordere" else _FIRST,
                is_batch=topic == "Orders2",
                is_schedule=topic == "%RETRY%g",
            )
        for queue_id in range(1, _QUEUES_OF_ORDERS):
            self["Orders", queue_id] = SimpleNamespace(
                topic=f"Orders/{queue_id}", next_offset=_FIRST, is_batch=False, is_schedule=False
            )


class _Dispatch:
    """What is entered, in the order of the log: queue, queue offset, physical offset, size, tags code."""

    def __init__(self) -> None:
        self.entries: list[tuple[str, int, int, int, int]] = []

    def enter_units(self, queue: Any, units: bytes) -> None:
        rows = np.frombuffer(units, CONSUME_QUEUE_DTYPE)
        self.entries += [(queue.topic, queue.next_offset + number, *row) for number, row in enumerate(rows.tolist())]
        self.entries.sort(key=lambda entry: entry[2])
        # As `Redispatch` does: the records may be taken by several calls.
        queue.next_offset += len(rows)


def _taken(engine: Any, data: bytes, file_bytes: int, *, requires_seals: bool) -> tuple[Any, int, int]:
    log = SimpleNamespace(
        segment_end=lambda _: BASE + file_bytes,
        requires_seals=requires_seals,
    )
    dispatch, batch = _Dispatch(), Batch(0)
    table = SimpleNamespace(by_key=_Queues(), dispatches=False)
    intake = RecordIntake(log, table, TAGS_CODES, engine)  # type: ignore[arg-type]
    end = intake.take(dispatch, batch, BASE, memoryview(data))  # type: ignore[arg-type]
    return dispatch.entries, end, batch.store_timestamp


def _resealed(data: bytes) -> bytes:
    """`data` with the right CRC in each seal of the chain."""
    content, at = bytearray(data), 0
    while at + 4 <= len(content):
        end = at + int.from_bytes(content[at : at + 4], "big")
        if not at + SEAL_BYTES + 4 <= end <= len(content):
            break
        if content[end - SEAL_BYTES :].startswith(SEAL_NAME):
            content[end - SEAL_BYTES : end] = seal(masked_crc(bytes(content[at : end - SEAL_BYTES])))
        at = end
    return bytes(content)


def intake_twins(data: bytes) -> None:
    """One piece of a log through both paths; also with seals that hold, whatever the records are."""
    if compiled is not None:
        _compare(data)
        _compare(_resealed(data))


def _compare(data: bytes) -> None:
    for requires_seals in (False, True):
        for file_bytes in (len(data), len(data) + 8, _FILE_BYTES):
            entries, end, time = _taken(None, data, file_bytes, requires_seals=requires_seals)
            own_entries, own_end, own_time = _taken(compiled, data, file_bytes, requires_seals=requires_seals)
            assert own_entries == entries[: len(own_entries)]
            if len(own_entries) == len(entries):
                assert (own_end, own_time) == (end, time)
            else:
                assert not _tag(data[own_end - BASE :]).isascii()


def _tag(data: bytes) -> bytes:
    """The tag of the record with which `data` begins."""
    record = decode(memoryview(data)[: int.from_bytes(data[:4], "big")], check_crc=False)
    assert not isinstance(record, str), record
    return find_last(bytes(record.properties), TAGS_NAME) or b""


def _log(seed: int, records: int) -> bytes:
    """Records of queues that go on, with few exceptions."""
    chance, following = random.Random(seed), Counter(dict.fromkeys(TOPICS, _FIRST))

    def offset_of(topic: str) -> int:
        offset = following[topic] if chance.random() < 0.97 else chance.randrange(20)
        following[topic] += 1
        return offset

    return log_of(chance, records, offset_of)


def _usual_log(seed: int) -> bytes:
    """Records of one form.  Some of them have one unusual thing."""
    chance, following, content = random.Random(seed), Counter[Any](), bytearray()
    sizes, odd = chance.choice(((40,), (0, 40, 41))), seed % 4 == 3
    for number in range(chance.randrange(2, 24)):
        topic = chance.choice(("Orders", "Ordere", "Orders2", "Trades")) if odd and chance.random() < 0.06 else "Orders"
        tag = chance.choice(("paid", "open", "sent" if seed % 2 else "returned"))
        properties = f"UNIQ_KEY\x01K{number:06}\x02TAGS\x01{tag}\x02WAIT\x01true\x02".encode()
        if odd and chance.random() < 0.06:
            properties = chance.choice((properties[:-1], properties * 2, b"", properties.replace(b"K0", b"K\x01")))
        record = bytearray(whole_record(chance.randbytes(chance.choice(sizes)), properties, 0, topic))
        queue_id = chance.randrange(_QUEUES_OF_ORDERS) if topic == "Orders" else 0
        struct.pack_into(">i", record, QUEUE_ID_AT, queue_id)
        place = _FIRST + following[topic, queue_id], BASE + len(content)
        struct.pack_into(">qq", record, PHYSICAL_OFFSET_AT - 8, *place)
        following[topic, queue_id] += 1
        content += sealed(bytes(record))
    return bytes(content)


ENGINE_INTAKE_TARGETS: Final = (
    Target(
        "intake_twins",
        intake_twins,
        [*(_log(seed, 1 + seed) for seed in range(12)), *(_usual_log(seed) for seed in range(16))],
        4096,
    ),
)
