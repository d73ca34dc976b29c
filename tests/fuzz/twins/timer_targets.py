"""Messages that enter and leave the timer wheel by the compiled engine beside Python: the same files and counts."""

import random
from array import array
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final
from unittest.mock import patch

import numpy as np

from sprocket.remoting.message.topic_names import TIMER_TOPIC
from store import moves
from store.layout import CONSUME_QUEUE_DTYPE
from store.record.record import PendingMessage
from store.timer import timer_dequeue, timer_enqueue
from store.timer.timer_dequeue import SlotDelivery
from store.timer.timer_log import TimerLog, Unit
from store.timer.timer_message_store import TimerMessageStore
from store.timer.timer_wheel import Slot
from tests.clock import ManualClock
from tests.fuzz.target import Target
from tests.sim.sim_disk import SimDisk
from tests.sim.sim_store import FLUSH, SimStore, small_config

try:
    from store import moves_native as compiled_moves
    from store.timer import timer_units_native as compiled
except ImportError:  # no C compiler: `tests/engine` says so
    compiled = compiled_moves = None  # type: ignore[assignment]

_START_MS: Final = ManualClock().wall_ms()
_SLOTS: Final = 1500
_LOG_FILE_BYTES: Final = 4096
_PROPERTIES: Final = (
    "UNIQ_KEY\x01K\x02TIMER_OUT_MS\x01{due}\x02REAL_TOPIC\x01{topic}\x02REAL_QID\x010\x02",
    "TIMER_OUT_MS\x01{due}\x02REAL_TOPIC\x01{topic}\x02REAL_QID\x010\x02",
    "K\x01v\x02TIMER_OUT_MS\x01{due}\x02REAL_TOPIC\x01{topic}\x02REAL_QID\x01",
    "REAL_TOPIC\x01Other\x02TIMER_OUT_MS\x01{due}\x02REAL_TOPIC\x01{topic}\x02REAL_QID\x010\x02",
    "TIMER_OUT_MS\x01{due}\x02K\x01TIMER_OUT_MS\x01{due}\x02REAL_TOPIC\x01{topic}\x02REAL_QID\x010\x02",
    "K\x01v\x02TIMER_OUT_MS\x01{due}x\x02REAL_TOPIC\x01{topic}\x02REAL_QID\x010\x02",
    "K\x01v\x02TIMER_OUT_MS\x01{due}\x02REAL_QID\x010\x02REAL_TOPIC\x01{topic}\x02",
    "K\x01v\x02TIMER_OUT_MS\x01{due}\x02REAL_TOPIC\x01{topic}",
    "TIMER_DEL_UNIQKEY\x01Orders+K\x02TIMER_OUT_MS\x01{due}\x02REAL_TOPIC\x01{topic}\x02REAL_QID\x010\x02",
    "K\x01#\x02TIMER_OUT_MS\x01{due}\x02REAL_TOPIC\x01{topic}\x02REAL_QID\x010\x02TIMER_DEL_UNIQKEY\x01Orders+K\x02",
    "K\x01v\x02TIMER_OUT_MS\x01\x02REAL_TOPIC\x01{topic}\x02REAL_QID\x010\x02", "K\x01v\x02", "",
)  # fmt: skip


def message_of(chance: random.Random, plain: float, data: bytes = b"") -> PendingMessage:
    """A message of the wheel's topic, as a broker makes it with the probability `plain`."""
    form, delay_ms, topic, host = _PROPERTIES[0], 1000 * chance.randrange(1, 200), "Orders", bytes(8)
    if chance.random() >= plain:
        form = chance.choice(_PROPERTIES)
        delay_ms = chance.choice((-(10**12), -5000, 0, 1, 999, 30_000, 900_000, 10**9, 10**18))
        topic = chance.choice(("Orders", "Orders", "Zürich", "t" * 300, "bad/name", "\udcff", ""))
        host = bytes(chance.choice((8, 8, 20)))
    due = (_START_MS + delay_ms) // 1000 * 1000
    properties = form.format(due=due, topic=topic).encode("utf-8", "surrogateescape")
    if chance.random() >= plain:
        properties += data[:200]
    return PendingMessage(TIMER_TOPIC, 0, chance.randbytes(chance.choice((0, 5, 300))), properties, 0, 3, 0, 77, host)


# Two stores take more memory than the bound on short inputs allows.
MIN_BYTES: Final = 40


class Twin:
    """A store in memory with its timer."""

    def __init__(self, is_native: bool, seed: int) -> None:
        self._units, self._moves = (compiled, compiled_moves) if is_native else (None, None)
        self.clock, self.disk = ManualClock(), SimDisk(seed)
        config = small_config(
            sync_flush=False,
            timer_roll_window_slot=(40, 300, 600)[seed % 3],
            mapped_file_size_timer_log=_LOG_FILE_BYTES,
        )
        self._sim = SimStore(self.disk, config, self.clock)
        self.store = self._sim.open()
        self.counts: list[tuple[str, int]] = []
        self.timer = TimerMessageStore(
            self.store, self.clock, lambda *change: self.counts.append(change), slots_total=_SLOTS
        )
        self.timer.load()

    @contextmanager
    def engines(self) -> Iterator[None]:
        """Use this twin's engine in the body of a `with` statement."""
        with (
            patch.object(timer_enqueue, "_engine", self._units),
            patch.object(timer_dequeue, "_units", self._units),
            patch.object(moves, "engine", self._moves),
        ):
            yield

    def enter(self, messages: Sequence[PendingMessage]) -> list[Any]:
        """Append messages, and let the timer work until nothing is due; return what it has written and counted."""
        with self.engines():
            if messages:
                self.store.append(messages)
            self._sim.step(FLUSH)
            while self.timer.turn() == 0.0:
                pass
        return [self.disk.files(), list(self.counts), self.timer.enqueue_behind, self.store.wrote_offset]


def compare_entries(batches: Sequence[Sequence[PendingMessage]], seed: int) -> None:
    """Both enter the same messages, batch by batch, while time passes, and deliver them."""
    pure, native = Twin(False, seed), Twin(True, seed)
    for messages in (*batches, (), ()):
        for one, other in zip(native.enter(messages), pure.enter(messages), strict=True):
            assert one == other, (one, other)
        for twin in (pure, native):
            twin.clock.advance(1.5 if messages else 150)


def timer_twins(data: bytes) -> None:
    """Messages that `data` chooses; some have `data` among their properties."""
    if compiled is None or len(data) < MIN_BYTES:
        return
    chance = random.Random(data)
    plain = chance.choice((0.0, 0.8, 1.0))
    batches = [[message_of(chance, plain, data) for _ in range(chance.choice((1, 9, 60)))] for _ in range(3)]
    compare_entries(batches, chance.randrange(3))
    window = _START_MS, 1000, 900_000, 0, 1 << 20
    entries = b"".join((at).to_bytes(8, "big") + size.to_bytes(12, "big") for at, size in ((0, 9), (5, 1 << 40)))
    for segment in (data, data[1:]):
        writer = compiled.UnitWriter(b"\x05Order", *window, lambda time_ms: (-1, -1, 0), lambda name: 7)
        assert writer.enter(_units(entries), memoryview(segment), 0, len(segment)) == b""
        for base, end in ((-1, 5), (5, 4), (0, len(segment) + 1)):
            assert writer.enter(_units(data), memoryview(segment), base, end) == b""


def _units(octets: bytes) -> Any:
    return np.frombuffer(octets, CONSUME_QUEUE_DTYPE, len(octets) // CONSUME_QUEUE_DTYPE.itemsize)


def _log_of(chance: random.Random, data: bytes) -> tuple[TimerLog, list[int]]:
    """Return a timer log of three files with damaged units, and the positions of all units."""
    log, positions = TimerLog(SimDisk(0), Path("/sim/timerlog"), _LOG_FILE_BYTES), [-1]
    batch = log.begin()
    for _ in range(200):
        previous = chance.choice((positions[-1],) * 60 + (chance.choice(positions), batch.end, -7, 1 << 62))
        magic = chance.choice((1,) * 60 + (2, 4, 6, 0, 99))
        positions.append(batch.add(Unit(previous, magic, _START_MS, 1000, chance.randrange(1 << 40), 300, 7)))
    for _ in range(chance.choice((0, 1, 5))):
        at, piece = chance.randrange(len(batch.content) - 60), data[: chance.choice((1, 8, 60))]
        batch.content[at : at + len(piece)] = piece
    log.write(batch)
    return log, positions[1:]


def chain_twins(data: bytes) -> None:
    """Chains of units in a damaged timer log, from any position, in pieces of any size."""
    if compiled is None or len(data) < MIN_BYTES:
        return
    chance = random.Random(data)
    log, positions = _log_of(chance, data)
    state: Any = SimpleNamespace(log=log, store=SimpleNamespace(record_at=lambda offset, size: None))
    for _ in range(4):
        last = chance.choice((positions[-1], chance.choice(positions), chance.randrange(1 << 14), log.end, -1))
        slot = SlotDelivery(_START_MS, Slot(0, last, 1), chance.choice((0, 0, -5, positions[50])))
        twin = SlotDelivery(_START_MS, slot.slot, slot.delivered_before)
        piece, is_whole = chance.choice((1, 7, 500)), False
        while not is_whole:
            with patch.object(timer_dequeue, "_units", compiled):
                is_whole = slot.prepare(state, piece)
            with patch.object(timer_dequeue, "_units", None):
                assert twin.prepare(state, piece) == is_whole
            assert (twin.positions, twin.messages, twin.deleted) == (slot.positions, slot.messages, slot.deleted)
        _compare_hostile_units(data, positions, chance)


def _compare_hostile_units(data: bytes, positions: list[int], chance: random.Random) -> None:
    """Take none of units that are nowhere, or whose records are none."""
    segment, numbers = memoryview(data * 40), array("q", [*positions, 1 << 62, -1, len(data)])
    for file_end in (0, 52, 1 << 62):
        taking = compiled_moves.Moves(0, 1 << 20, 1 << 20, lambda topic, queue_id: None)
        part, taken = (memoryview(data * 9), 0, file_end), chance.randrange(-1, 205)
        found = taking.add_units(*part, numbers, taken, 99, 1 << 20, segment, 0, 1 << 62, b"\x05Order", 0, 1000, 0)
        assert found == (0, 0, [])


_SEEDS: Final = [message_of(random.Random(seed), 0.5).properties for seed in range(6)]

ENGINE_TIMER_TARGETS: Final = (
    Target("timer_twins", timer_twins, _SEEDS, 1 << 16),
    Target("chain_twins", chain_twins, _SEEDS, 1 << 12),
)
