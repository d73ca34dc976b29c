"""Limit on how fast groups pull messages that are no longer in memory, so that other groups do not wait for the disk.

A group may pull a number of cold bytes in each round of 5 s.  After that, a pull of cold messages is refused if the
group has push consumers, because their clients retry by themselves.  Else it is held for 3 s and gets one message.
Source: RocketMQ 5.3.3, `PullMessageProcessor`, `ColdDataCgCtrService`, `ColdDataPullRequestHoldService`.  There a pull
beyond 10,000 held ones is never answered; here it gets its message at once.
"""

import asyncio
import logging
from collections.abc import Generator
from typing import Final

from broker.coldctr.cold_requests import ColdFlowProcessor
from broker.coldctr.cold_thresholds import ColdThresholds
from broker.core import BrokerCore
from broker.longpolling.held_pulls import AnswerPull
from broker.longpolling.held_requests import HeldRequests
from broker.periodic import Periodic
from broker.service import Service
from sprocket.common.errors import RequestError
from sprocket.common.refusal_reasons import Reason
from sprocket.remoting.channel import RemotingChannel
from sprocket.remoting.codes import ResponseCode
from sprocket.remoting.command import Request
from sprocket.remoting.headers.pull import PullMessageRequestHeader
from sprocket.remoting.message.topic_names import SYSTEM_GROUP_PREFIX, SYSTEM_GROUPS
from sprocket.remoting.routes import Route
from store.queue.get_result import GetResult

logger = logging.getLogger(__name__)

_ROUND_S: Final = 5.0
_HOLD_S: Final = 3.0
_MAX_HELD: Final = 10_000
_TICK_S: Final = 0.1
_PUSHED: Final = "CONSUME_PASSIVELY"
_REFUSAL: Final = "This consumer group is reading cold data. It has been flow control"
_SLOW_SCAN_S: Final = 30.0
# Groups without a limit: system groups and those of `MixAll.isSysConsumerGroupPullMessage`.
_UNBOUND: Final = frozenset({*SYSTEM_GROUPS, "DEFAULT_CONSUMER", "SCHEDULE_CONSUMER", "__MONITOR_CONSUMER"})


class ColdFlow(Service):
    """Flow control of cold reads by group; not called unless coldDataFlowControlEnable is on."""

    def __init__(self, core: BrokerCore) -> None:
        self._core = core
        self.is_on = False
        self.thresholds = ColdThresholds()
        self.held = HeldRequests(core.clock, core.call_later, _TICK_S, _MAX_HELD)
        self._configure()

    def configured(self, changed: dict[str, str]) -> None:
        self._configure()

    def _configure(self) -> None:
        is_on = self._core.config.store.cold_data_flow_control_enable
        if is_on == self.is_on:
            return
        self.is_on = is_on
        if not is_on:
            self.thresholds.forget_reads()
            self.held.answer_soon()

    # A service

    def routes(self) -> list[Route]:
        return ColdFlowProcessor(self._core.config, self.thresholds).routes()

    def periodic(self) -> list[Periodic]:
        config = self._core.config
        return [
            Periodic("cold_flow", _ROUND_S, self._end_round),
            Periodic("cold_scan", lambda: config.store.timer_cold_data_check_interval_ms / 1000, self._scan),
        ]

    def answer_held(self) -> Generator[None, None, None]:
        return self.held.answer_all()

    def stop(self) -> None:
        self.held.close()

    def channel_closed(self, channel: RemotingChannel) -> None:
        self.held.drop_channel(channel.id)

    # Pulls

    def delays(self, request: Request[PullMessageRequestHeader], answer: AnswerPull | None) -> bool:
        """Hold the pull if its group is throttled; return whether it is held.

        `answer` gets the held pull later; it is None for a pull that was held before, which proceeds with one message.
        Raises RequestError for a throttled group of push consumers.
        """
        header = request.header
        if not self._is_throttled(header):
            return False
        connected = self._core.consumers.group(header.consumer_group)
        if connected is not None and connected.consume_type == _PUSHED:
            raise RequestError(ResponseCode.SYSTEM_BUSY, _REFUSAL, Reason.COLD_READ)
        if answer is not None and self.held.hold(request, _HOLD_S, answer):
            return True
        header.max_msg_nums = 1
        return False

    def note(self, header: PullMessageRequestHeader, result: GetResult) -> None:
        """Count the cold bytes that a pull has read."""
        group = header.consumer_group
        if group.startswith(SYSTEM_GROUP_PREFIX) or group in _UNBOUND:
            return
        entries = self._core.store.entries(header.topic, header.queue_id, header.queue_offset, result.next_offset)
        # Messages of entries whose tags do not match are skipped, not read.
        cold_bytes = min(self._core.store.cold_area.cold_bytes(entries), result.size_bytes)
        if cold_bytes:
            self.thresholds.note(group, cold_bytes, self._core.clock.wall_ms())

    def _is_throttled(self, header: PullMessageRequestHeader) -> bool:
        """Whether the pull is for cold messages and its group has reached its threshold in this round."""
        if not self.thresholds.is_exceeded(header.consumer_group, self._core.config.broker):
            return False
        store, offset = self._core.store, header.queue_offset
        entries = store.entries(header.topic, header.queue_id, offset, offset + 1)
        return bool(len(entries)) and store.cold_area.is_cold(int(entries["physical_offset"][0]))

    # Periodic work

    def _end_round(self) -> None:
        if self.is_on:
            self.thresholds.end_round(self._core.config.broker, self._core.clock.wall_ms())

    async def _scan(self) -> None:
        started = self._core.clock.monotonic()
        await asyncio.to_thread(self._core.store.cold_area.scan)
        seconds = self._core.clock.monotonic() - started
        if seconds > _SLOW_SCAN_S:
            logger.warning("event=cold_scan_slow seconds=%.1f", seconds)
