"""PEEK_MESSAGE: the messages of the next pop, without popping them.  Source: RocketMQ 5.3.3, `PeekMessageProcessor`."""

from typing import Final

from broker.core import BrokerCore
from broker.plan.table import Refused
from broker.pop.planner import PopPlanner
from broker.pop.pop_offsets import FROM_FIRST, PopOffsets
from broker.pop.retry_record import queue_offsets_in
from broker.topic.retry_topics import retry_topic
from sprocket.remoting.bodies.topic import TopicConfig
from sprocket.remoting.codes import ResponseCode
from sprocket.remoting.command import Request, Response
from sprocket.remoting.headers.pop import PeekMessageRequestHeader
from store.queue.get_result import GetStatus

_MAX_BYTES: Final = 0x7FFFFFFF
# One of this number of peeks reads the retry topic first.
_RETRY_FIRST: Final = 5


class PeekProcessor:
    """Handler of peeks.  Lives in the event loop's thread."""

    def __init__(self, core: BrokerCore, planner: PopPlanner, offsets: PopOffsets) -> None:
        self._config = core.config
        self._store = core.store
        self._flow = core.flow
        self._topics = core.topics
        self._random_below = core.random_below
        self._planner = planner
        self._offsets = offsets

    def peek(self, request: Request[PeekMessageRequestHeader]) -> Response:
        """Return the messages.  Raises RequestError."""
        header = request.header
        config = self._planner.readable(header)
        if isinstance(config, Refused):
            raise config.error(request.channel.peer)
        draw = self._random_below(100)
        seen = _Seen(header.max_msg_nums)
        retry = self._topics.get(
            retry_topic(header.topic, header.consumer_group, self._config.broker.enable_retry_topic_v2)
        )
        is_retry_first = draw % _RETRY_FIRST == 0
        if is_retry_first:
            self._peek_all(seen, header.consumer_group, retry, draw)
        if header.queue_id < 0:
            self._peek_all(seen, header.consumer_group, config, draw)
        else:
            self._peek(seen, header.consumer_group, header.topic, header.queue_id)
        if not is_retry_first and seen.room > 0:
            self._peek_all(seen, header.consumer_group, retry, draw)
        rest = {"restNum": str(seen.rest)}
        if seen.slices:
            size_bytes = sum(map(len, seen.slices))
            self._flow.delivered(header.topic, header.consumer_group, header.max_msg_nums - seen.room, size_bytes)
            return Response(ResponseCode.SUCCESS, GetStatus.FOUND.name, rest, seen.slices)
        return Response(ResponseCode.PULL_NOT_FOUND, GetStatus.NO_MESSAGE_IN_QUEUE.name, rest)

    def _peek_all(self, seen: "_Seen", group: str, config: TopicConfig | None, draw: int) -> None:
        count = 0 if config is None else config.read_queue_nums
        for number in range(count):
            if config is not None:
                self._peek(seen, group, config.topic_name, (draw + number) % count)

    def _peek(self, seen: "_Seen", group: str, topic: str, queue_id: int) -> None:
        offset = self._offsets.current(topic, group, queue_id, FROM_FIRST)
        seen.rest += max(self._store.max_offset(topic, queue_id) - offset, 0)
        if seen.room <= 0:
            return
        result = self._store.get(topic, queue_id, offset, seen.room, _MAX_BYTES)
        if result.status in (GetStatus.OFFSET_TOO_SMALL, GetStatus.OFFSET_OVERFLOW_BADLY):
            result = self._store.get(topic, queue_id, result.next_offset, seen.room, _MAX_BYTES)
        seen.slices += result.slices
        seen.room -= len(queue_offsets_in(result.slices))


class _Seen:
    __slots__ = ("rest", "room", "slices")

    def __init__(self, room: int) -> None:
        self.room = room
        self.rest = 0
        self.slices: list[memoryview] = []
