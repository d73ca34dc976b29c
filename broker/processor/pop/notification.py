"""NOTIFICATION and POLLING_INFO: whether a pop would find a message, and the number of held pops.

A notification without a message to report is held like a pop.  Many may be held for one queue, and each message that
arrives wakes one of them.
Source: RocketMQ 5.5.1, `NotificationProcessor`, `PollingInfoProcessor`.
"""

from collections.abc import Generator
from functools import partial
from typing import Final

import numpy as np

from broker.core import BrokerCore
from broker.filter.subscription_filter import TagFilter
from broker.longpolling.held_pops import HeldPops, HoldResult
from broker.longpolling.held_pulls import PullFilter
from broker.longpolling.held_requests import answer_again
from broker.plan.table import Refused
from broker.pop.pop_filters import pop_filter
from broker.pop.pop_offsets import FROM_FIRST
from broker.processor.pop.pop_service import PopService
from broker.service import Service
from broker.topic.retry_topics import retry_topic_v1, retry_topic_v2
from sprocket.remoting.bodies.topic import TopicConfig
from sprocket.remoting.channel import RemotingChannel
from sprocket.remoting.codes import RequestCode
from sprocket.remoting.command import Request, Response
from sprocket.remoting.headers.pop import NotificationRequestHeader, PollingInfoRequestHeader
from sprocket.remoting.routes import Action, Resource, Route, Traffic

_HAS_MESSAGE: Final = {"hasMsg": "true", "pollingFull": "false"}
_NOTHING: Final = {"hasMsg": "false", "pollingFull": "false"}
_FULL: Final = {"hasMsg": "false", "pollingFull": "true"}


class NotificationService(Service):
    """Handler of both requests.  Lives in the event loop's thread."""

    def __init__(self, core: BrokerCore, pop: PopService) -> None:
        self._config = core.config
        self._clock = core.clock
        self._store = core.store
        self._topics = core.topics
        self._pop = pop
        self._sql = core.filters.sql
        self._quotas = core.quota_reads
        self.held = HeldPops(
            core.config, core.store, core.clock, core.call_later, self._answer_held, core.quota_reads.looks,
            wakes_each=True,
        )  # fmt: skip
        pop.on_free.append(self.held.lock_released)

    def routes(self) -> list[Route]:
        """Return the routes of both requests."""
        group = Resource.GROUP
        return [
            Route(
                RequestCode.NOTIFICATION, NotificationRequestHeader, self.notify, group, Action.SUB, Traffic.PULL
            ),
            Route(RequestCode.POLLING_INFO, PollingInfoRequestHeader, self.polling_info, group, Action.GET),
        ]  # fmt: skip

    def start(self) -> None:
        """Wake held notifications when messages come."""
        self._store.on_arrival.append(self.held.arrived)

    def answer_held(self) -> Generator[None, None, None]:
        return self.held.answer_all()

    def stop(self) -> None:
        """Answer the held notifications."""
        self.held.close()

    def channel_closed(self, channel: RemotingChannel) -> None:
        """Drop the notifications of a closed connection."""
        self.held.drop_channel(channel.id)

    # Requests

    def notify(self, request: Request[NotificationRequestHeader]) -> Response | None:
        """Respond whether there is a message to pop, or hold the request.  Raises RequestError."""
        if not request.header.born_time:
            request.header.born_time = self._clock.wall_ms()
        return self._notify(request, may_hold=True)

    def polling_info(self, request: Request[PollingInfoRequestHeader]) -> Response:
        """Return the number of pops held for one queue, or, with -1, for any queue.  Raises RequestError."""
        self._topic(request)
        header = request.header
        count = self._pop.held.count(header.topic, header.consumer_group, header.queue_id)
        return Response(header={"pollingNum": str(count)})

    # Inside

    def _answer_held(self, request: Request[NotificationRequestHeader], may_hold: bool) -> None:
        answer_again(request, partial(self._notify, request, may_hold=may_hold))

    def _notify(self, request: Request[NotificationRequestHeader], *, may_hold: bool) -> Response | None:
        read_queues = self._topic(request).read_queue_nums
        header, result = request.header, HoldResult.NOT_HELD
        matches = self._filter(request)
        if self._has_message(header, read_queues, matches):
            return Response(header=_HAS_MESSAGE)
        if may_hold:
            result = self.held.hold(
                request, header.topic, header.consumer_group, header.queue_id, matches, header.poll_time,
                header.born_time,
            )  # fmt: skip
        if result is HoldResult.HELD:
            return None
        return Response(header=_FULL if result is HoldResult.FULL else _NOTHING)

    def _topic(self, request: Request[NotificationRequestHeader] | Request[PollingInfoRequestHeader]) -> TopicConfig:
        topic = self._pop.planner.readable(request.header)
        if isinstance(topic, Refused):
            raise topic.error(request.channel.peer)
        return topic

    def _filter(self, request: Request[NotificationRequestHeader]) -> PullFilter | None:
        """Return the filter of the messages that are reported, None for any."""
        header = request.header
        if not (header.exp and header.exp_type and self._config.broker.use_message_filter_for_notification):
            return None
        matches = pop_filter(self._sql, header.exp, header.exp_type)
        self._quotas.planned(request.channel)
        if isinstance(matches, Refused):
            raise matches.error(request.channel.peer)
        return matches

    def _has_message(self, header: NotificationRequestHeader, read_queues: int, matches: PullFilter | None) -> bool:
        queue_ids = range(read_queues) if header.queue_id < 0 else (header.queue_id,)
        if any(self._has_in(header, header.topic, queue_id, matches) for queue_id in queue_ids):
            return True
        for name in self._retry_topics(header.topic, header.consumer_group):
            retry = self._topics.get(name)
            count = 0 if retry is None else retry.read_queue_nums
            if any(self._has_in(header, name, queue_id, None) for queue_id in range(count)):
                return True
        return False

    def _retry_topics(self, topic: str, group: str) -> tuple[str, ...]:
        broker = self._config.broker
        if not broker.enable_retry_topic_v2:
            return (retry_topic_v1(topic, group),)
        if not broker.retrieve_message_from_pop_retry_topic_v1:
            return (retry_topic_v2(topic, group),)
        return (retry_topic_v2(topic, group), retry_topic_v1(topic, group))

    def _has_in(self, header: NotificationRequestHeader, topic: str, queue_id: int, matches: PullFilter | None) -> bool:
        group = header.consumer_group
        if header.order and (
            self._pop.order_info.blocks(header.attempt_id, header.topic, group, queue_id, 0)
            or self._pop.logical.blocks(header.topic, group, queue_id)
        ):
            return False
        begin = self._pop.offsets.current(topic, group, queue_id, FROM_FIRST)
        end = self._store.max_offset(topic, queue_id)
        limit = self._config.broker.max_message_filter_num_for_notification
        # Of many messages some is wanted, or the next pop passes those that are not; SQL needs their properties.
        if end - begin >= limit or not isinstance(matches, TagFilter):
            return end > begin
        entries = [self._store.entry(topic, queue_id, offset) for offset in range(begin, end)]
        codes = [entry[2] for entry in entries if entry is not None]
        return len(codes) < len(entries) or (bool(codes) and matches.matches_any(np.array(codes, np.int64)))
