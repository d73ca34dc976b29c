"""Intake of a replica's records by the compiled path beside the Python path: the same entries of the same queues."""

import random
from collections import Counter
from types import SimpleNamespace
from typing import Any, Final

import numpy as np

from sprocket.remoting.message.properties import find_last
from store.appender import Batch
from store.dispatch.record_intake import RecordIntake
from store.layout import CONSUME_QUEUE_DTYPE
from store.record.record import TAGS_NAME, decode
from tests.fuzz.engine_targets import BASE, TAGS_CODES, TOPICS, log_of
from tests.fuzz.target import Target

try:
    from sprocket.engine.store import intake as compiled
except ImportError:  # no C compiler: `tests/engine` says so
    compiled = None  # type: ignore[assignment]

_FIRST: Final = 7  # offset of each queue's next message; 0 is another case
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


class _Dispatch:
    """What is entered, in the order of the log: queue, queue offset, physical offset, size, tags code."""

    def __init__(self) -> None:
        self.entries: list[tuple[str, int, int, int, int]] = []

    def enter_units(self, queue: Any, units: bytes) -> None:
        rows = np.frombuffer(units, CONSUME_QUEUE_DTYPE)
        self.entries += [(queue.topic, queue.next_offset + number, *row) for number, row in enumerate(rows.tolist())]
        self.entries.sort(key=lambda entry: entry[2])


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


def intake_twins(data: bytes) -> None:
    """One piece of a log through both paths."""
    if compiled is None:
        return
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


ENGINE_INTAKE_TARGETS: Final = (
    Target("intake_twins", intake_twins, [_log(seed, 1 + seed) for seed in range(12)], 4096),
)
