"""Delayed messages, with the clock in the test's hand: time passes when the test says so."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from broker.metrics.message_flow import MessageFlow
from broker.timer.schedule import DelayOffsets, ScheduleService
from sprocket.common.files.config_file import ConfigFile
from sprocket.remoting.codec.java_hash import java_hash_code
from sprocket.remoting.message.properties import encode
from sprocket.remoting.message.topic_names import SCHEDULE_TOPIC
from store.config.store_config import FlushDiskType
from store.delivery import OwnLog
from store.message_store import MessageStore, PendingMessage
from store.record.record import Record
from tests.broker.rig import store_config
from tests.clock import ManualClock
from tests.store.reading import stored

LEVELS = "1s 5s 1h"


class Rig:
    """A store, and a service whose timer never runs: `deliver` is its turn."""

    def __init__(self, root: Path, clock: ManualClock, **changes: object) -> None:
        self.clock = clock
        config = store_config(root, message_delay_level=LEVELS, **changes)
        self.store = MessageStore(config, clock=clock, notify=lambda callback: None)
        self.store.start()
        self.offsets = DelayOffsets(ConfigFile(root / "delayOffset.json"), clock)
        self.offsets.load()
        core: Any = SimpleNamespace(
            config=SimpleNamespace(store=config), store=self.store, delivery=OwnLog(self.store), clock=clock,
            flow=MessageFlow(),
        )  # fmt: skip
        self.service = ScheduleService(core, self.offsets)

    def put(self, level: int, body: bytes = b"body", topic: str = "Orders", **properties: str) -> None:
        encoded = encode({"DELAY": str(level), "REAL_TOPIC": topic, "REAL_QID": "2", "TAGS": "TagA"} | properties)
        message = PendingMessage(
            SCHEDULE_TOPIC, level - 1, body, encoded.encode(), 0, 7, 0, 123, b"\x0a\x00\x00\x01" * 2
        )
        self.store.append([message])

    def deliver(self) -> float | None:
        return self.service.deliver_due()

    def delivered(self, topic: str = "Orders", queue_id: int = 2) -> list[bytes]:
        return [bytes(self.record(topic, queue_id, at).body) for at in range(self.store.max_offset(topic, queue_id))]

    def record(self, topic: str, queue_id: int, offset: int) -> Record:
        return stored(self.store, topic, queue_id, offset)

    def save(self) -> None:
        self.offsets.flushed(self.store.flushed_offset)
        self.offsets.persist_changes()


def test_message_comes_when_its_level_says_and_not_before(tmp_path: Path) -> None:
    rig = Rig(tmp_path, ManualClock())
    rig.put(2)
    assert rig.deliver() == 5.0
    rig.clock.advance(4.999)
    assert rig.deliver() == 0.001
    assert rig.delivered() == []
    rig.clock.advance(0.001)
    assert rig.deliver() is None
    assert rig.delivered() == [b"body"]
    rig.store.shutdown()


def test_delivered_message_is_the_one_that_was_sent(tmp_path: Path) -> None:
    rig = Rig(tmp_path, ManualClock())
    rig.put(1)
    rig.clock.advance(1)
    rig.deliver()
    record = rig.record("Orders", 2, 0)
    assert record.born_timestamp == 123
    assert record.flag == 7
    assert bytes(record.properties).startswith(b"DELAY\x011\x02REAL_TOPIC\x01Orders\x02")
    entry = rig.store.entry("Orders", 2, 0)
    assert entry is not None
    assert entry[2] == java_hash_code("TagA")
    rig.store.shutdown()


def test_levels_do_not_wait_for_each_other(tmp_path: Path) -> None:
    rig = Rig(tmp_path, ManualClock())
    rig.put(3, b"late")
    rig.put(1, b"early")
    rig.clock.advance(1)
    assert rig.deliver() == 3599.0
    assert rig.delivered() == [b"early"]
    rig.store.shutdown()


def test_many_are_delivered_in_batches_and_in_order(tmp_path: Path) -> None:
    rig = Rig(tmp_path, ManualClock())
    bodies = [b"%d" % number for number in range(600)]
    for body in bodies:
        rig.put(1, body)
    rig.clock.advance(1)
    turns = 0
    while rig.deliver() is not None:
        turns += 1
        assert turns < 10
    assert turns == 2, "256 at a time"
    assert rig.delivered() == bodies
    rig.store.shutdown()


def test_message_without_a_real_topic_is_passed_over(tmp_path: Path) -> None:
    rig = Rig(tmp_path, ManualClock())
    rig.put(1, b"bad", REAL_QID="x")
    rig.put(1, b"half", topic="RMQ_SYS_TRANS_HALF_TOPIC")
    rig.put(1, b"good")
    rig.clock.advance(1)
    rig.deliver()
    assert rig.delivered() == [b"good"]
    assert rig.store.max_offset("RMQ_SYS_TRANS_HALF_TOPIC", 2) == 0
    rig.store.shutdown()


def test_restart_goes_on_where_the_file_says(tmp_path: Path) -> None:
    clock = ManualClock()
    rig = Rig(tmp_path, clock)
    rig.put(1, b"one")
    rig.put(2, b"two")
    clock.advance(1)
    rig.deliver()
    rig.store.shutdown()  # Flushes all.
    rig.save()
    again = Rig(tmp_path, clock)
    clock.advance(60)
    again.deliver()
    assert again.delivered() == [b"one", b"two"]
    again.store.shutdown()


def test_offset_is_saved_only_once_the_delivery_is_on_the_disk(tmp_path: Path) -> None:
    rig = Rig(tmp_path, ManualClock(), flush_disk_type=FlushDiskType.ASYNC_FLUSH)
    rig.put(1)
    rig.clock.advance(1)
    rig.deliver()
    end = rig.store.wrote_offset
    rig.offsets.flushed(end - 1)
    assert not rig.offsets.is_unsaved
    rig.offsets.flushed(end)
    rig.offsets.persist_changes()
    assert b"{1:1\n" in (tmp_path / "delayOffset.json").read_bytes()
    rig.store.shutdown()


def test_crash_before_the_save_delivers_again_and_loses_nothing(tmp_path: Path) -> None:
    clock = ManualClock()
    rig = Rig(tmp_path, clock)
    rig.put(1)
    clock.advance(1)
    rig.deliver()
    rig.store.shutdown()
    again = Rig(tmp_path, clock)
    again.deliver()
    assert again.delivered() == [b"body", b"body"]
    again.store.shutdown()


def test_clock_that_steps_back_does_not_hold_a_message_for_longer_than_its_level(tmp_path: Path) -> None:
    rig = Rig(tmp_path, ManualClock())
    rig.put(1)
    rig.clock.step_wall(-3_600_000)
    rig.deliver()
    assert rig.delivered() == [b"body"]
    rig.store.shutdown()


async def test_offsets_outside_of_the_queue_are_corrected_at_the_start(tmp_path: Path) -> None:
    rig = Rig(tmp_path, ManualClock())
    rig.put(1)
    rig.offsets.place(1, 99)
    rig.service.activate()
    rig.service.deactivate()
    assert rig.offsets.delivered[1] == 1
    rig.store.shutdown()
