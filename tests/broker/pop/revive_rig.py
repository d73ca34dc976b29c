"""Revive with the clock in the test's hand: a store, a wheel that a test turns, and pops written as pops write them."""

import random
from pathlib import Path
from typing import Any

from broker.client.clients import ConsumerRegistry, ProducerRegistry
from broker.client.queue_locks import QueueLocks
from broker.config.broker_config import BrokerRole
from broker.config.live_config import LiveConfig
from broker.core import BrokerCore
from broker.filter.consumer_filters import ConsumerFilters
from broker.idempotence.known_ids import KnownIds
from broker.longpolling.confirm_waits import ConfirmWaits
from broker.longpolling.quota_reads import QuotaReads
from broker.metrics.message_flow import MessageFlow
from broker.namespace.namespace_table import NamespaceTable
from broker.namespace.namespaces import Namespaces
from broker.offset.consumer_offsets import ConsumerOffsets
from broker.pop.records import AckMsg, BatchAckMsg, PopCheckPoint
from broker.pop.revive.revive_log import ReviveLog
from broker.pop.revive.revive_service import ReviveService
from broker.quota.quota_table import QuotaTable
from broker.quota.quotas import Quotas
from broker.role import Role
from broker.schedules.positions import SchedulePositions
from broker.schedules.schedule_table import ScheduleTable
from broker.subscription.subscription_groups import SubscriptionGroups
from broker.timer.timer_intake import TimerIntake
from broker.topic.topic_queue_mappings import TopicQueueMappings
from broker.topic.topics import TopicTable
from sprocket.common.errors import SprocketError
from sprocket.common.files.config_file import ConfigFile
from sprocket.remoting.bodies.group import SubscriptionGroupConfig
from sprocket.remoting.bodies.topic import TopicConfig
from sprocket.remoting.client import RemotingClient
from sprocket.remoting.message.properties import REAL_QUEUE_ID, REAL_TOPIC, TAGS, TIMER_DELIVER_MS, encode, parse
from sprocket.remoting.message.topic_names import REVIVE_GROUP, TIMER_TOPIC
from store.delivery import OwnLog
from store.message_store import MessageStore, PendingMessage
from store.record.record import Record, TagsCodes
from store.tier.reads.tiered_reads import TieredReads
from tests.broker.loop_timer import ManualTimers
from tests.broker.rig import GROUP, TOPIC, broker_config, store_config
from tests.clock import ManualClock
from tests.store.insides import flush_log
from tests.store.reading import stored

RETRY = f"%RETRY%{GROUP}_{TOPIC}"
HOST = bytes((10, 0, 0, 1)) + (10911).to_bytes(4, "big")


def core_at(root: Path, clock: ManualClock, timers: ManualTimers, store: dict[str, Any], **broker: Any) -> BrokerCore:
    """What a broker at `root` stands on, loaded, without anybody that serves or that calls."""
    config = LiveConfig(broker_config(**broker), store_config(root, **store))
    messages = MessageStore(config.store, clock=clock, notify=lambda callback: None)
    messages.start()
    folder = root / "store" / "config"
    topics = TopicTable(config, ConfigFile(folder / "topics.json"), clock)
    mappings = TopicQueueMappings(ConfigFile(folder / "topicQueueMapping.json"), clock, config.plan_version)
    groups = SubscriptionGroups(config, ConfigFile(folder / "subscriptionGroup.json"), clock)
    offsets = ConsumerOffsets(ConfigFile(folder / "consumerOffset.json"), clock, config.plan_version)
    filters = ConsumerFilters(config, ConfigFile(folder / "consumerFilter.json"), clock)

    def fail(error: SprocketError) -> None:
        raise error

    namespaces = NamespaceTable(ConfigFile(folder / "namespaces.json"), clock, config.plan_version)
    quotas = Quotas(QuotaTable(ConfigFile(folder / "quotas.json"), clock, config.plan_version), clock)
    random_below = random.Random(0).randrange
    schedules = ScheduleTable(ConfigFile(folder / "schedules.json"), clock, random_below)
    file = ConfigFile(folder / "schedulePositions.json")
    positions = SchedulePositions(file, schedules, lambda: messages.wrote_offset)
    core = BrokerCore(
        config, Role(BrokerRole.ASYNC_MASTER), clock, timers.call_later, random_below, messages, topics,
        mappings, groups, offsets,
        QueueLocks(clock), ConsumerRegistry(clock, config.plan_version), ProducerRegistry(clock), filters,
        ConfirmWaits(messages, clock, timers.call_later), KnownIds(config, messages, clock, timers.call_later),
        MessageFlow(), namespaces, Namespaces(namespaces), quotas,
        QuotaReads(quotas, clock, timers.call_later, filters.sql), schedules, positions, RemotingClient(), fail,
        OwnLog(messages),
        TieredReads(lambda: config.store, messages, clock, None),
    )  # fmt: skip
    topics.load()
    groups.load()
    offsets.load()
    offsets.clamp(messages.max_offset)
    return core


class ReviveRig:
    """One broker's revive, all in revive queue 0; `elapse` lets time pass and turns the wheel and the readers."""

    def __init__(self, root: Path, clock: ManualClock | None = None, **changes: Any) -> None:
        self.root = root
        self.clock = clock or ManualClock()
        self.timers = ManualTimers(self.clock)
        store = changes.pop("store", {})
        self.core = core_at(root, self.clock, self.timers, store, **changes)
        self.core.topics.update([TopicConfig(TOPIC, read_queue_nums=4, write_queue_nums=4)])
        self.core.groups.update([SubscriptionGroupConfig(GROUP)])
        self.intake = TimerIntake(self.core.config, self.clock, random.Random(0).randrange, lambda slot_time: 0)
        self.log = ReviveLog(self.core, self.intake)
        self.service = ReviveService(self.core, self.log)
        self.service.load()
        self.service.activate()
        self._wheel: list[tuple[int, int, PendingMessage]] = []
        self._wheel_read = self.core.store.max_offset(TIMER_TOPIC, 0)
        self.is_wheel_stopped = False

    # What pops do

    def send(self, count: int = 1, topic: str = TOPIC, queue_id: int = 0, **properties: str) -> list[int]:
        """Store messages; their queue offsets."""
        store = self.core.store
        encoded = encode({TAGS: "TagA", "UNIQ_KEY": "id"} | properties).encode()
        first = store.max_offset(topic, queue_id)
        for number in range(count):
            body = b"%s %d %d" % (topic.encode(), queue_id, first + number)
            code = TagsCodes("").of_tag(b"TagA")
            store.append([PendingMessage(topic, queue_id, body, encoded, code, 7, 0, 123, HOST)])
        return list(range(first, first + count))

    def pop(self, *offsets: int, invisible_ms: int = 10_000, topic: str = TOPIC, **changes: Any) -> PopCheckPoint:
        """Write the checkpoint of a pop of `offsets`."""
        distances = [offset - offsets[0] for offset in offsets]
        checkpoint = PopCheckPoint(
            so=offsets[0], pt=self.clock.wall_ms(), it=invisible_ms, n=len(offsets), t=topic, c=GROUP, d=distances,
            bn="broker-a",
        )  # fmt: skip
        for name, value in changes.items():
            setattr(checkpoint, name, value)
        self.core.store.append([self.log.checkpoint(checkpoint, 0)])
        return checkpoint

    def ack(self, checkpoint: PopCheckPoint, *offsets: int) -> None:
        """Write the acknowledgement of one message, or of several as one."""
        place = (checkpoint.so, checkpoint.c, checkpoint.t, checkpoint.q, checkpoint.pt)
        if len(offsets) > 1:
            ack: AckMsg = BatchAckMsg(-1, *place, aol=list(offsets))
        else:
            ack = AckMsg(offsets[0], *place, "broker-a")
        self.core.store.append([self.log.ack(ack, 0, checkpoint.revive_time)])

    def put(self, body: bytes, tag: str, deliver_at: int = 0) -> None:
        """Put a record straight into the revive queue."""
        properties = {TAGS: tag} | ({TIMER_DELIVER_MS: str(deliver_at)} if deliver_at else {})
        code = TagsCodes("").of_tag(tag.encode())
        message = PendingMessage(self.log.topic, 0, body, encode(properties).encode(), code, 0, 0, 0, HOST)
        self.core.store.append([message])

    # Time

    def elapse(self, seconds: float, step_s: float = 0.25) -> None:
        """Let time pass; the wheel delivers each second, the readers run as their timers say."""
        end = self.clock.monotonic() + seconds
        while self.clock.monotonic() < end:
            self.timers.advance(min(step_s, end - self.clock.monotonic()))
            self.turn_wheel()
        self.timers.advance(0.0)

    def turn_wheel(self) -> None:
        """Deliver what the wheel's topic holds and is due, in the order of its time."""
        store = self.core.store
        while self._wheel_read < store.max_offset(TIMER_TOPIC, 0):
            record = self.record(TIMER_TOPIC, 0, self._wheel_read)
            self._wheel_read += 1
            properties = parse(bytes(record.properties).decode())
            topic, queue_id = properties.pop(REAL_TOPIC), int(properties.pop(REAL_QUEUE_ID))
            encoded = encode(properties).encode()
            message = PendingMessage(topic, queue_id, bytes(record.body), encoded, 0, 0, 0, 0, HOST)
            due = int(properties["TIMER_OUT_MS"]) + self.core.config.store.timer_precision_ms
            self._wheel.append((due, self._wheel_read, message))
        if not self.is_wheel_stopped:
            self._wheel.sort(key=lambda entry: entry[:2])
            while self._wheel and self._wheel[0][0] <= self.clock.wall_ms():
                store.append([self._wheel.pop(0)[2]])

    # What came of it

    def record(self, topic: str, queue_id: int, offset: int) -> Record:
        """A message of the store."""
        return stored(self.core.store, topic, queue_id, offset)

    def revived(self, topic: str = RETRY) -> list[bytes]:
        """Return the bodies of redelivered messages, in order."""
        end = self.core.store.max_offset(topic, 0)
        return [bytes(self.record(topic, 0, offset).body) for offset in range(end)]

    def offsets_again(self, topic: str = RETRY) -> list[int]:
        """The queue offsets that they had where they were popped from."""
        return [int(body.split()[-1]) for body in self.revived(topic)]

    @property
    def committed(self) -> int:
        """The revive group's offset."""
        return self.core.offsets.query(REVIVE_GROUP, self.log.topic, 0)

    def flush(self) -> None:
        """Sync everything that is written."""
        error = flush_log(self.core.store)
        assert error is None

    def crash(self, **changes: Any) -> "ReviveRig":
        """Another one over the same directory; this one saves nothing."""
        self.close()
        again = ReviveRig(self.root, self.clock, **changes)
        again._wheel, again._wheel_read = self._wheel, self._wheel_read
        return again

    def restart(self, **changes: Any) -> "ReviveRig":
        """The same after an orderly stop."""
        self.service.deactivate()
        self.flush()
        self.service.save()
        self.core.offsets.persist()
        return self.crash(**changes)

    def close(self) -> None:
        self.service.deactivate()
        self.core.store.shutdown()
