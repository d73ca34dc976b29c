"""Usual pulls of one read with pure Python: the twin of `sprocket/engine/broker/pulls.pyx`, for pulls without tags.

Pulls of one read share their checks, and their responses leave in one buffer.  See docs/engine-requests.md.
"""

from collections.abc import Callable
from typing import Final

from broker.client.clients import ConsumerGroup
from sprocket.remoting.bodies.client import SubscriptionData
from sprocket.remoting.bodies.group import SubscriptionGroupConfig
from sprocket.remoting.bodies.topic import PERM_READ, TopicConfig
from sprocket.remoting.command import Buffer, Request
from sprocket.remoting.frames import ResponseTemplate
from sprocket.remoting.framing import BINARY_CODE_BYTES, JSON, Frame, Frames
from sprocket.remoting.headers.pull import PullMessageRequestHeader
from sprocket.remoting.routes import AdmittedFrame, Entry, Route
from store.queue.consume_queue import ConsumeQueue
from store.queue.usual_reads import UsualReads

# Pulls that search for tags are left to `PullProcessor.pull`: numpy searches there.
MAX_CODES: Final = 0
# `PullSysFlag`
COMMIT_OFFSET: Final = 0x1
SUBSCRIPTION: Final = 0x4
# Kinds of pulls that are remembered; then all are forgotten.
_MAX_LANES: Final = 4096
# Expressions that filter nothing.
_ALL: Final = (None, "", "*")

# Lane, next offset, offset to commit or None, messages, their bytes.
Note = tuple["PullLane", int, int | None, int, int]
_Key = tuple[str, str, int, str | None, bool]


class PullLane:
    """What the pulls of one group from one queue with one subscription have in common, as long as nothing changes."""

    __slots__ = (
        "broker_id",
        "codes",
        "group",
        "group_config",
        "group_flags",
        "queue",
        "queue_id",
        "sub_version",
        "subscription",
        "topic",
        "topic_config",
        "topic_flags",
    )

    def __init__(
        self,
        group_config: SubscriptionGroupConfig,
        topic_config: TopicConfig,
        queue_id: int,
        queue: ConsumeQueue,
        subscription: SubscriptionData | None,
        codes: list[int] | None,
        broker_id: int,
    ) -> None:
        """`codes` are hash codes of tags, None for all messages; `broker_id` is the one to pull from next."""
        self.group, self.topic, self.queue_id = group_config.group_name, topic_config.topic_name, queue_id
        self.group_config, self.topic_config, self.queue = group_config, topic_config, queue
        self.subscription = subscription
        self.sub_version = 0 if subscription is None else subscription.sub_version
        self.codes = codes
        self.broker_id = broker_id
        self.topic_flags, self.group_flags = topic_config.topic_sys_flag, group_config.group_sys_flag


class PullReader:
    """Reader of the usual pulls of one route, for one configuration of a broker."""

    def __init__(
        self,
        route: Route,
        template: ResponseTemplate,
        lane_of: Callable[[str, str, int, str | None, str | None, bool], PullLane | None],
        group_of: Callable[[str], SubscriptionGroupConfig | None],
        topic_of: Callable[[str], TopicConfig | None],
        connected_of: Callable[[str], ConsumerGroup | None],
        forbidden_of: Callable[[str, str], int],
        reads: UsualReads,
    ) -> None:
        """`template` is that of the response with found messages; the functions are those of the compiled twin."""
        self._entry = Entry(route)
        self._binary_code = (self._entry.code & 0xFFFF).to_bytes(BINARY_CODE_BYTES, "big")
        self._frame = template.frame
        self._lane_of, self._group_of, self._topic_of = lane_of, group_of, topic_of
        self._connected_of, self._forbidden_of = connected_of, forbidden_of
        self._queue_of, self._get_near = reads.queue, reads.get_near
        self._lanes: dict[_Key, PullLane] = {}

    def read(
        self, frames: Frames, index: int, join_bytes: int, read_bytes: int
    ) -> tuple[bytes, list[Note], Request[PullMessageRequestHeader] | None]:
        """Return the responses to the usual pulls from `index` on, what is to be noted for each, and an unusual pull.

        It stops after `read_bytes` of records, or before the first frame that is no usual pull; if that is another
        pull of this code, it is the unusual one.  A response of more than `join_bytes` is unusual.
        """
        buffers: list[Buffer] = []
        notes: list[Note] = []
        current: set[PullLane] = set()
        total_bytes, end = 0, len(frames)
        while index < end and total_bytes < read_bytes:
            request = self._request(frames[index])
            if request is None:
                break
            note = self._answer(request, current, join_bytes, buffers)
            if note is None:
                return b"".join(buffers), notes, request
            notes.append(note)
            total_bytes += note[4]
            index += 1
        return b"".join(buffers), notes, None

    def _request(self, frame: Frame) -> Request[PullMessageRequestHeader] | None:
        """Return the request of a frame as `RouteTable.decode` does; None if it is of another code, or damaged."""
        if isinstance(frame, AdmittedFrame):
            # Exactly the request that a guard has checked is served.
            decoded = frame.decoded
            return decoded[1] if isinstance(decoded, tuple) and decoded[0].code == self._entry.code else None
        begin = self._entry.prefix if frame[0] == JSON else self._binary_code
        return self._entry.request_of(frame) if frame[1].startswith(begin) else None

    def _answer(
        self,
        request: Request[PullMessageRequestHeader],
        current: set[PullLane],
        join_bytes: int,
        buffers: list[Buffer],
    ) -> Note | None:
        """Append the response to a pull to `buffers` and return its note; None if the pull is unusual.

        `current` are the lanes that were checked since the read began.
        """
        fields = request.header
        flags, source, max_bytes = fields.sys_flag, fields.request_source, fields.max_msg_bytes
        has_own = bool(flags & SUBSCRIPTION)
        # Any flag of the request, such as oneway, is unusual.
        if request.flag or (has_own and fields.subscription not in _ALL) or (source is not None and source >= 0):
            return None
        # Without a subscription of its own, what a pull says of one means nothing.
        expression_type = fields.expression_type if has_own else None
        key = fields.consumer_group, fields.topic, fields.queue_id, expression_type, has_own
        offset, lane = fields.queue_offset, self._lanes.get(key)
        if lane is not None and offset >= lane.queue.max_offset and self._queue_of(*key[1:3]) is lane.queue:
            return None  # most pulls at the end of a queue are held: spare them the other checks
        if lane is None or lane not in current:
            lane = self._current_lane(key, lane)
            if lane is None:
                return None
            current.add(lane)
        if lane.codes is not None or (lane.subscription is not None and lane.sub_version < fields.sub_version):
            return None
        limit = join_bytes if max_bytes is None or max_bytes <= 0 else min(join_bytes, max_bytes)
        queue = lane.queue
        found = self._get_near(queue, offset, fields.max_msg_nums, limit)
        if found is None:
            return None
        count, size_bytes, slices = found
        next_offset = offset + count
        values = lane.broker_id, next_offset, queue.min_offset, queue.max_offset, lane.topic_flags, lane.group_flags
        buffers.append(self._frame(request.serialization, request.opaque, values, size_bytes))
        buffers += slices
        return lane, next_offset, fields.commit_offset if flags & COMMIT_OFFSET else None, count, size_bytes

    def _current_lane(self, key: _Key, lane: PullLane | None) -> PullLane | None:
        """Return the known `lane`, or another one, after all checks of `PullProcessor`; None if a pull is unusual."""
        if lane is None or not self._is_current(lane):
            group, topic, queue_id, expression_type, has_own = key
            lane = self._lane_of(group, topic, queue_id, None, expression_type, has_own)
            if len(self._lanes) >= _MAX_LANES:
                self._lanes.clear()
            if lane is None or not self._is_current(lane):
                self._lanes.pop(key, None)
                return None
            self._lanes[key] = lane
        return lane

    def _is_current(self, lane: PullLane) -> bool:
        """Return whether nothing has changed of what the lane was made from, and the group may read now."""
        group, topic, subscription = lane.group, lane.topic, lane.subscription
        if self._group_of(group) is not lane.group_config or self._topic_of(topic) is not lane.topic_config:
            return False
        if self._queue_of(topic, lane.queue_id) is not lane.queue:
            return False
        connected = self._connected_of(group)
        if connected is not None and connected.is_broadcasting:
            return False
        if subscription is None:
            return True
        if connected is None or connected.subscriptions.get(topic) is not subscription:
            return False
        return not self._forbidden_of(group, topic) & PERM_READ
