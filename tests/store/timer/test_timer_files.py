"""Bytes of wheel, timer log and checkpoint, and recovery from the loss of one of them."""

import struct
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from sprocket.common.errors import DiskFull
from sprocket.remoting.codec.java_hash import java_hash_code
from sprocket.remoting.message.topic_names import TIMER_TOPIC
from store.disk.disk import RealDisk
from store.message_store import MessageStore
from store.timer.timer_log import BLANK_MAGIC, DELETE, ROLL, TimerLog, Unit
from store.timer.timer_message_store import TimerMessageStore
from store.timer.timer_progress import Barrier, DataVersion, Progress, ProgressLog, TimerCheckpoint
from store.timer.timer_wheel import TimerWheel
from tests.store.insides import timer_state_of
from tests.store.reading import stored
from tests.store.rig import FaultyDisk, Stores
from tests.store.timer.wheel_run import REAL_TOPIC, SLOTS, number_of, timed

BEGIN = 1_700_000_000_000


class Rig:
    """A store and its timer; `work` runs the timer until it has nothing to do."""

    def __init__(self, root: Path, **fields: object) -> None:
        self.stores = Stores(root)
        self.stores.fields |= {"mapped_file_size_timer_log": 4096, **fields}
        self.root = root
        self.counts: dict[str, int] = {}
        self.open()

    def open(self) -> None:
        self.store = self.stores.open()
        self.timer = TimerMessageStore(self.store, self.stores.clock, self._count, slots_total=SLOTS)
        self.timer.load()

    def _count(self, topic: str, change: int) -> None:
        self.counts[topic] = self.counts.get(topic, 0) + change

    def work(self) -> float | None:
        while (wait_s := self.timer.turn()) == 0.0:
            pass
        return wait_s

    def stop(self) -> None:
        self.store.flush()
        flush = self.timer.prepare_flush()
        if flush is not None:
            flush.write()
            self.timer.flushed(flush)
        self.timer.close()
        self.store.shutdown()

    def came(self) -> list[int]:
        return [
            number_of(stored(self.store, REAL_TOPIC, 0, offset))
            for offset in range(self.store.max_offset(REAL_TOPIC, 0))
        ]


def put(store: MessageStore, *numbers: int, due_ms: int, **properties: str) -> None:
    store.append([timed(number, due_ms, **properties) for number in numbers])


def test_units_and_slots_lie_as_rocketmq_lays_them(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    put(rig.store, 1, 2, due_ms=BEGIN + 5000)
    put(rig.store, 3, due_ms=BEGIN + 5000, TIMER_DEL_UNIQKEY="Orders+K1")
    rig.work()
    units = (tmp_path / "timerlog" / ("0" * 20)).read_bytes()
    entries = [rig.store.entry(TIMER_TOPIC, 0, offset) for offset in range(3)]
    for number, entry in enumerate(entries):
        assert entry is not None
        previous = 52 * (number - 1) if number else -1
        magic = 1 | DELETE if number == 2 else 1
        expected = (52, previous, magic, BEGIN, 5000, entry[0], entry[1], java_hash_code("Orders"), 0)
        assert struct.unpack_from(">iqiqiqiiq", units, 52 * number) == expected
    wheel = (tmp_path / "timerwheel").read_bytes()
    assert len(wheel) == SLOTS * 2 * 32
    number = BEGIN // 1000 + 5
    # Two messages, minus the one that is deleted.
    assert struct.unpack_from(">qqqii", wheel, number % (SLOTS * 2) * 32) == (number, 0, 104, 1, 0)
    rig.stop()


def test_file_of_the_timer_log_ends_with_a_blank(tmp_path: Path) -> None:
    log = TimerLog(RealDisk(), tmp_path / "timerlog", 300)
    log.load()
    batch = log.begin()
    positions = [batch.add(Unit(-1, 1, BEGIN, number, number, 100, 0)) for number in range(7)]
    log.write(batch)
    # After five units, 16 bytes leave no room for a sixth unit and its blank.
    assert positions == [0, 52, 104, 156, 208, 300, 352]
    first = (tmp_path / "timerlog" / ("0" * 20)).read_bytes()
    assert struct.unpack_from(">iqi", first, 260) == (40, 0, BLANK_MAGIC)
    assert struct.unpack(">i", struct.pack(">I", 0xBBCCDDEE ^ 1880681594))[0] == BLANK_MAGIC
    again = TimerLog(RealDisk(), tmp_path / "timerlog", 300)
    again.load()
    assert again.valid_end(0) == 404
    again.cut(404)
    assert [again.position_before(position) for position in (0, 52, 300, 352)] == [None, 0, 208, 300]
    assert [unit.delay_ms for unit in map(again.unit, positions) if unit is not None] == list(range(7))
    assert again.unit(260) is None and again.unit(404) is None
    assert again.remove_expired(5) == 1
    assert (again.first, again.unit(0)) == (300, None)


def test_slot_of_another_time_is_free(tmp_path: Path) -> None:
    wheel = TimerWheel(RealDisk(), tmp_path / "timerwheel", 100, 10)
    assert not wheel.open()
    assert wheel.get(0) is None and wheel.next_used(0, 1000) == 1000
    wheel.create()
    wheel.put(5000, 52, 104, 2)
    assert wheel.get(5000) == (52, 104, 2)
    # The ring has twenty slots.
    assert wheel.get(5000 + 2000) is None and wheel.occupant_ms(7000) == 5000
    wheel.put(5300, 156, 156, 1)
    assert wheel.next_used(0, 100_000) == 5000
    assert wheel.next_used(5100, 5300) == 5300
    assert wheel.next_used(5100, 5200) == 5200
    assert wheel.next_used(5100, 100_000) == 5300
    assert (wheel.count_from(5000), wheel.count_from(5100), wheel.latest_ms()) == (3, 1, 5300)
    assert wheel.reaching(0, 110) == {5300: (156, 156, 1)}
    assert wheel.oldest_position(5000) == 52
    wheel.close()
    assert wheel.open()


def test_checkpoint_is_that_of_rocketmq_and_more(tmp_path: Path) -> None:
    progress = Progress(BEGIN, 104, 7, 3, (Barrier(52, BEGIN + 5000), Barrier(80, BEGIN + 2000)))
    checkpoint = TimerCheckpoint(progress, DataVersion(1, BEGIN, 9))
    page = checkpoint.page()
    assert len(page) == 4096
    assert struct.unpack_from(">7q", page) == (BEGIN, 104, 7, 7, 1, BEGIN, 9)
    assert TimerCheckpoint.decode(page) == checkpoint
    theirs = TimerCheckpoint.decode(struct.pack(">7q", BEGIN, 104, 7, 5, 0, 0, 0).ljust(4096, b"\0"))
    assert (theirs.progress, theirs.is_own) == (Progress(BEGIN, 104, 5), False)
    # RocketMQ has written its fields over ours: our barriers stay valid.
    mixed = TimerCheckpoint.decode(struct.pack(">7q", BEGIN + 1, 104, 8, 8, 0, 0, 0) + page[56:])
    assert (mixed.is_own, mixed.progress.barriers) == (False, progress.barriers)
    damaged = TimerCheckpoint.decode(page[:520] + b"\xff" + page[521:])
    assert damaged.progress == Progress(BEGIN, 104, 7)
    assert TimerCheckpoint.decode(b"short") == TimerCheckpoint()


def test_nothing_is_written_down_before_the_log_is_flushed() -> None:
    log = ProgressLog(Progress())
    log.note(100, Progress(queue_offset=1))
    log.note(100, Progress(queue_offset=2))
    log.note(200, Progress(queue_offset=3))
    assert log.settle(99).queue_offset == 0
    assert log.settle(199).queue_offset == 2
    assert log.settle(200).queue_offset == 3


def test_a_long_delay_rolls_and_comes_at_its_time(tmp_path: Path) -> None:
    rig = Rig(tmp_path, timer_roll_window_slot=30)
    put(rig.store, 1, due_ms=BEGIN + 100_000)
    put(rig.store, 2, due_ms=BEGIN + 35_000)
    rig.work()
    # The second step goes half a window, so that the last one is not short.
    log = timer_state_of(rig.timer).log
    magics = [unit.magic for unit in (log.unit(0), log.unit(52)) if unit]
    assert magics == [1 | ROLL, 1 | ROLL]
    assert [rig.timer.count_at(BEGIN + 30_000), rig.timer.count_at(BEGIN + 15_000)] == [1, 1]
    for _ in range(101):
        assert rig.store.max_offset(REAL_TOPIC, 0) < 2
        rig.stores.clock.advance(1)
        rig.work()
    assert rig.came() == [2, 1]
    record = stored(rig.store, REAL_TOPIC, 0, 1)
    assert b"TIMER_ROLL_TIMES\x013\x02" in bytes(record.properties)
    assert record.store_timestamp == BEGIN + 101_000
    assert (rig.counts, rig.timer.waiting) == ({REAL_TOPIC: 0}, 0)
    rig.stop()


def test_late_message_goes_straight_on(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    put(rig.store, 1, due_ms=BEGIN - 5000)
    put(rig.store, 2, due_ms=BEGIN - 5000, TIMER_DEL_UNIQKEY="Orders+K1")
    assert rig.work() is None
    assert rig.came() == [1]
    properties = bytes(stored(rig.store, REAL_TOPIC, 0, 0).properties)
    assert b"TIMER_ENQUEUE_MS\x019223372036854775807\x02" in properties
    assert rig.counts == {}
    rig.stop()


@pytest.mark.parametrize(
    "properties",
    [{"TIMER_OUT_MS": "soon"}, {"REAL_QID": "x"}, {"REAL_TOPIC": TIMER_TOPIC}, {"REAL_TOPIC": ""}],
)
def test_message_without_place_or_time_holds_nobody_up(tmp_path: Path, properties: dict[str, str]) -> None:
    rig = Rig(tmp_path)
    put(rig.store, 1, due_ms=BEGIN + 1000, **properties)
    put(rig.store, 2, due_ms=BEGIN + 1000)
    put(rig.store, 3, due_ms=BEGIN - 1000, **properties)
    rig.work()
    rig.stores.clock.advance(2)
    rig.work()
    assert rig.came() == [2]
    rig.stop()


def _wheel_gone(root: Path) -> None:
    (root / "timerwheel").unlink()


def _log_gone(root: Path) -> None:
    for file in (root / "timerlog").iterdir():
        file.unlink()


def _log_damaged(root: Path) -> None:
    file = root / "timerlog" / ("0" * 20)
    file.write_bytes(file.read_bytes()[:52] + bytes(4044))


def _other_precision(root: Path) -> None:
    wheel = bytearray((root / "timerwheel").read_bytes())
    for at in range(0, len(wheel), 32):
        (time,) = struct.unpack_from(">q", wheel, at)
        struct.pack_into(">q", wheel, at, time * 10)
    (root / "timerwheel").write_bytes(wheel)


@pytest.mark.parametrize("harm", [_wheel_gone, _log_gone, _log_damaged, _other_precision])
def test_lost_files_are_rebuilt_from_the_queue(tmp_path: Path, harm: Callable[[Path], None]) -> None:
    rig = Rig(tmp_path)
    for number in range(10):
        put(rig.store, number, due_ms=BEGIN + 1000 * number)
    put(rig.store, 10, due_ms=BEGIN + 8000, TIMER_DEL_UNIQKEY="Orders+K8")
    rig.work()
    rig.stores.clock.advance(4)
    rig.work()
    rig.stop()
    assert rig.timer.checkpoint.progress.queue_offset == 11
    harm(tmp_path)
    rig.open()
    rig.work()
    rig.stores.clock.advance(20)
    rig.work()
    assert rig.came() == [0, 1, 2, 3, 4, 5, 6, 7, 9]
    rig.stop()
    rig.open()
    rig.work()
    assert len(rig.came()) == 9
    rig.stop()


def _many(rig: Rig) -> None:
    """Let more messages enter than one turn takes; the last is due soon."""
    for begin in range(0, 1000, 50):
        put(rig.store, *range(begin, begin + 50), due_ms=BEGIN + 100_000)
    put(rig.store, 1000, due_ms=BEGIN + 2000)
    rig.work()


def test_a_rebuild_of_many_turns_loses_none_that_became_due_meanwhile(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    _many(rig)
    rig.stop()
    _wheel_gone(tmp_path)
    rig.stores.clock.advance(10)
    rig.open()
    rig.work()
    assert rig.came() == [1000]
    rig.stores.clock.advance(100)
    rig.work()
    assert rig.came() == [1000, *range(1000)]
    rig.stop()


@pytest.mark.parametrize("turns", [1, 2, 4])
def test_a_rebuild_that_ends_halfway_loses_none(tmp_path: Path, turns: int) -> None:
    rig = Rig(tmp_path)
    _many(rig)
    rig.stop()
    _wheel_gone(tmp_path)
    rig.stores.clock.advance(10)
    for _ in range(2):
        rig.open()
        for _ in range(turns):
            rig.timer.turn()
        rig.stop()
    rig.open()
    rig.work()
    assert set(rig.came()) == {1000}
    rig.stores.clock.advance(100)
    rig.work()
    assert set(rig.came()) == set(range(1001))
    rig.stop()


def test_who_takes_over_loses_none_that_became_due_meanwhile(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    _many(rig)
    master = rig.timer.checkpoint
    rig.timer.follow(TimerCheckpoint(replace(master.progress, read_ms=BEGIN, queue_offset=1001)))
    rig.stores.clock.advance(10)
    rig.timer.take_over()
    rig.work()
    assert rig.came() == [1000]
    rig.stop()


def test_who_takes_over_with_a_shorter_queue_delivers_what_comes_after(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    put(rig.store, 1, due_ms=BEGIN + 2000)
    rig.timer.follow(TimerCheckpoint(Progress(BEGIN, queue_offset=50)))
    rig.timer.take_over()
    put(rig.store, 2, due_ms=BEGIN - 2000)
    rig.work()
    assert rig.came() == [2]
    rig.stores.clock.advance(3)
    rig.work()
    assert rig.came() == [2, 1]
    rig.stop()


def test_a_rebuild_after_weeks_ends(tmp_path: Path) -> None:
    """Slots of long ago do not keep messages from the wheel, although none is delivered before the rebuild's end."""
    rig = Rig(tmp_path)
    _many(rig)
    rig.stop()
    _wheel_gone(tmp_path)
    rig.open()
    rig.timer.turn()
    rig.stop()
    rig.stores.clock.advance(3 * SLOTS)
    rig.open()
    rig.work()
    assert set(rig.came()) == set(range(1001))
    rig.stop()


def _is_within(name: str, path: Path) -> bool:
    return name in str(path)


def test_full_disk_postpones(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.stop()
    disk = FaultyDisk()
    rig.stores.disk = disk
    rig.open()
    put(rig.store, 1, 2, due_ms=BEGIN + 2000)
    for name in ("timerlog", "timerwheel"):
        disk.write_fault = partial(_is_within, name)
        # Restoring the slots needs no new space.
        with pytest.raises(DiskFull):
            rig.timer.turn()
        assert (rig.timer.queue_offset, rig.timer.waiting) == (0, 0)
    disk.write_fault = None
    rig.work()
    assert rig.timer.count_at(BEGIN + 2000) == 2
    rig.stores.clock.advance(3)
    rig.work()
    assert rig.came() == [1, 2]
    rig.stop()


def test_slot_with_many_is_delivered_in_order_and_in_batches(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    for begin in range(0, 6000, 50):
        put(rig.store, *range(begin, begin + 50), due_ms=BEGIN + 2000)
    rig.work()
    rig.stores.clock.advance(3)
    turns = 0
    while rig.timer.turn() == 0.0:
        turns += 1
    assert 6000 // 256 <= turns <= 40
    assert rig.came() == list(range(6000))
    rig.stop()
