"""Pop: the broker delivers messages, which are invisible for a while and are redelivered unless acknowledged.

Source: RocketMQ 5.3.3, `PopMessageProcessor`, `AckMessageProcessor`, `ChangeInvisibleTimeProcessor`,
`PeekMessageProcessor`, `PopBufferMergeService`.  popConsumerKVServiceEnable, which keeps this state in RocksDB, is not
supported.
"""

from collections.abc import Callable, Generator
from dataclasses import replace
from typing import Final

from broker.ack.ack_frames import AckFrames
from broker.ack.admission import AckAdmission
from broker.ack.ordered_acks import OrderedAcks
from broker.ack.planner import AckPlanner
from broker.core import BrokerCore
from broker.flushed_log import log_flushed
from broker.out.other_brokers import OtherBrokers
from broker.periodic import Periodic
from broker.pop.inflight import InflightMessages
from broker.pop.logical_pops import LogicalPops
from broker.pop.merge_buffer import MergeBuffer
from broker.pop.order_info import ConsumerOrderInfo
from broker.pop.order_locks import OrderLocks, QueueKey
from broker.pop.planner import PopPlanner
from broker.pop.pop_counters import PopCounters
from broker.pop.pop_draws import PopDraws
from broker.pop.pop_end import PopEnd
from broker.pop.pop_frames import PopFrames
from broker.pop.pop_offsets import PopOffsets
from broker.pop.queue_pop import QueuePop
from broker.pop.records import PopCheckPoint
from broker.pop.revive.revive_log import ReviveLog
from broker.processor.lite.lite_service import LiteService
from broker.processor.pop.ack import AckProcessor
from broker.processor.pop.change_invisible_time import InvisibleTimeProcessor
from broker.processor.pop.peek import PeekProcessor
from broker.processor.pop.pop import PopProcessor
from broker.service import Service
from broker.timer.timer_intake import TimerIntake
from broker.topic.retry_topics import normal_topic
from sprocket.common.files.config_file import ConfigFile
from sprocket.remoting.bodies.topic import TopicConfig
from sprocket.remoting.channel import RemotingChannel
from sprocket.remoting.codes import RequestCode
from sprocket.remoting.headers.pop import (
    AckMessageRequestHeader,
    ChangeInvisibleTimeRequestHeader,
    PeekMessageRequestHeader,
    PopMessageRequestHeader,
)
from sprocket.remoting.routes import Action, NoHeader, Resource, Route, Traffic

# `PopBufferMergeService.scanGarbage`
_CLEAN_S: Final = 30.0


class PopService(Service):
    """The parts of pop, assembled.  Lives in the event loop's thread."""

    def __init__(self, core: BrokerCore, order_file: ConfigFile, intake: TimerIntake, brokers: OtherBrokers) -> None:
        self._core = core
        # Called with (topic, group, queue id) of a queue that can be popped from again.
        self.on_free: list[Callable[[str, str, int], object]] = []
        self._locks = OrderLocks(core.config, core.clock, core.call_later, self._freed)
        self.order_info = order_info = ConsumerOrderInfo(order_file, core.topics, core.groups, core.clock, self._locks)
        self.log = ReviveLog(core, intake)
        self.offsets = PopOffsets(core, order_info)
        self.inflight = InflightMessages(core.config, core.clock.wall_ms(), self._came_free)
        self.counters = counters = PopCounters(core.config)
        self.buffer = MergeBuffer(core, self.log, self.offsets)
        self.planner = PopPlanner(core, self.log)
        self.logical = logical = LogicalPops(core, self.offsets, brokers, self._freed)
        queues = QueuePop(
            core, self.log, self.offsets, order_info, self.inflight, self.buffer, counters, logical, self._came_free
        )
        self.draws = draws = PopDraws(core, self.log, self.offsets)
        end = PopEnd(core, queues, self.offsets, self.log)
        self.pops = PopProcessor(core, self.planner, queues, draws, end, self.log)
        self.held = self.pops.held
        self._pop_frames = PopFrames(core, self.planner, queues, self.offsets, draws, end, self.log, self.held)
        self.on_free.append(self.held.lock_released)
        ordered = OrderedAcks(core, order_info, self.inflight, self._came_free)
        self.ack_planner = AckPlanner(core, self.log)
        admission = AckAdmission(core, self.ack_planner)
        self._ack_frames = AckFrames(core, self.ack_planner, self.log, self.buffer, self.inflight, counters)
        self.lite = lite = LiteService(core, self.offsets)
        self._acks = AckProcessor(
            core, self.ack_planner, admission, self.log, self.buffer, ordered, self.inflight, counters, lite.lite_acks
        )
        self._changes = InvisibleTimeProcessor(
            core, admission, self.log, self.buffer, ordered, counters, lite.lite_acks
        )
        self._peeks = PeekProcessor(core, self.planner, self.offsets)

    def _freed(self, key: QueueKey) -> None:
        self._came_free(*key)

    def _came_free(self, topic: str, group: str, queue_id: int) -> None:
        for listener in self.on_free:
            listener(normal_topic(topic, group), group, queue_id)

    def routes(self) -> list[Route]:
        """Serve the requests of pop consumers."""
        group, sub, pull, client = Resource.GROUP, Action.SUB, Traffic.PULL, Traffic.CLIENT
        acks = Route(
            RequestCode.ACK_MESSAGE, AckMessageRequestHeader, None, group, sub, client, batch=self._acks.acknowledge
        )
        pops = Route(RequestCode.POP_MESSAGE, PopMessageRequestHeader, None, group, sub, pull, batch=self.pops.pop)
        return [
            replace(pops, frames=self._pop_frames.handler(pops)),
            Route(RequestCode.PEEK_MESSAGE, PeekMessageRequestHeader, self._peeks.peek, group, sub, pull),
            replace(acks, frames=self._ack_frames.handler(acks)),
            Route(
                RequestCode.BATCH_ACK_MESSAGE, NoHeader, None, group, sub, client,
                batch=self._acks.acknowledge_batches,
            ),
            Route(
                RequestCode.CHANGE_MESSAGE_INVISIBLETIME, ChangeInvisibleTimeRequestHeader, None, group, sub, client,
                batch=self._changes.change,
            ),
        ]  # fmt: skip

    def periodic(self) -> list[Periodic]:
        """Save the state of ordered pops; forget deleted topics and groups."""
        config = self._core.config
        return [
            Periodic("pop_clean", _CLEAN_S, self._clean),
            Periodic(
                "consumer_order_info",
                lambda: config.broker.flush_consumer_offset_interval / 1000,
                self._save_order_info,
            ),
        ]

    async def _save_order_info(self) -> None:
        self.order_info.clean()
        await self.order_info.save(self._log_flushed)

    async def _log_flushed(self) -> bool:
        """Wait until the log is flushed as far as it reaches now; False if that failed.

        After a power loss another message could be at the offset of a popped one, and be acknowledged in its place.
        """
        return await log_flushed(self._core.store) is None

    def load(self) -> None:
        """Read the state of ordered pops."""
        self.order_info.load()

    def start(self) -> None:
        """Wake held pops when messages arrive."""
        self._core.store.on_arrival.append(self.held.arrived)

    def answer_held(self) -> Generator[None, None, None]:
        return self.held.answer_all()

    def stop(self) -> None:
        """Answer held pops, and write buffered ones to the log."""
        self._locks.close()
        self.logical.close()
        self.held.close()
        self.buffer.close()

    def save(self) -> None:
        """Save the state of ordered pops."""
        self.order_info.clean()
        self.order_info.persist_changes()

    def revived(self, checkpoint: PopCheckPoint, count: int) -> None:
        """Note that `count` messages of a pop were redelivered, so they are no longer in flight."""
        self.inflight.done(checkpoint.t, checkpoint.c, checkpoint.q, checkpoint.pt, count)

    def reset(self, group: str, topic: str, queue_id: int) -> None:
        """Forget a group's messages in flight after a reset of its offset, so that they do not block the queue."""
        self.inflight.clear(topic, group, queue_id)
        self.logical.forget(topic, group)
        if self._core.offsets.query(group, topic, queue_id) < 0:
            self.offsets.forget(topic, group, queue_id)

    def channel_closed(self, channel: RemotingChannel) -> None:
        """Drop the held pops of a closed connection."""
        self.held.drop_channel(channel.id)

    def topics_changed(self, configs: list[TopicConfig]) -> None:
        """Forget deleted topics, if called without `configs`.  A new topic of the same name starts empty."""
        if configs:
            return
        self._forget_gone()
        self.order_info.clean()

    def _clean(self) -> None:
        core = self._core
        core.consumers.assumed.expire(core.config.broker.subscription_expired_timeout / 1000)
        self._forget_gone()
        self.counters.forget_gone(self._is_there)

    def _forget_gone(self) -> None:
        self.offsets.forget_gone(self._is_there)
        self.logical.forget_gone(self._is_there)
        self.buffer.forget_gone(self._core.topics.__contains__)
        self.inflight.forget_gone(self._is_there, self._core.clock.wall_ms())

    def _is_there(self, topic: str, group: str) -> bool:
        return topic in self._core.topics and group in self._core.groups
