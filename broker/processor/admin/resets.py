"""Handlers that move groups: reset to an offset or a time, and copy of another group's offsets.

With useServerSideResetOffset, the default, the broker sets the offset and moves the group's next pull there.  Until
that pull it accepts no commit of the queue; a held pull is answered at once.  Without the key the broker changes
nothing itself: it sends the offsets to the connected consumers (RESET_CONSUMER_CLIENT_OFFSET), which commit them.
Source: RocketMQ 5.3.3, `AdminBrokerProcessor.resetOffset`, `resetOffsetInner`, `cloneGroupOffset`,
`Broker2Client.resetOffset`.
"""

import logging
from collections.abc import Generator, Mapping, Sequence
from typing import Final

from broker.client.clients import ConsumerGroup
from broker.core import BrokerCore
from broker.upkeep.renewed_topics import ResetListener
from sprocket.common.errors import RequestError
from sprocket.common.logs.peer_lines import peer_lines
from sprocket.remoting.bodies.client import MessageQueue
from sprocket.remoting.bodies.consumption import MessageQueueForC, ResetOffsetBodyForC
from sprocket.remoting.bodies.stats import ResetOffsetBody
from sprocket.remoting.bodies.topic import TopicConfig
from sprocket.remoting.codec.fastjson import STEP_ITEMS, dumps, in_steps
from sprocket.remoting.codes import LanguageCode, RequestCode, ResponseCode
from sprocket.remoting.command import Request, Response
from sprocket.remoting.headers.admin import CloneGroupOffsetRequestHeader
from sprocket.remoting.headers.offset import NO_OFFSET, ResetOffsetRequestHeader
from sprocket.remoting.refusals import Refusal
from sprocket.remoting.routes import Action, Answer, Resource, Route, Steps
from store.queue.get_result import Boundary

logger = logging.getLogger(__name__)

# V3_0_7_SNAPSHOT: the first client version that accepts RESET_CONSUMER_CLIENT_OFFSET.
_FIRST_VERSION: Final = 28
# The language of a tool that wants the body for C++ clients: in JSON headers and in ROCKETMQ headers.
_CPP: Final = ("CPP", str(int(LanguageCode.CPP)))


class ResetProcessor:
    """Handler of resets and of copies of offsets, in physical queues; `StaticResets` moves groups in logical ones."""

    def __init__(self, core: BrokerCore, on_reset: Sequence[ResetListener]) -> None:
        self._config = core.config
        self._store = core.store
        self._tier = core.tier
        self._topics = core.topics
        self._groups = core.groups
        self._consumers = core.consumers
        self._offsets = core.offsets
        self._on_reset = on_reset

    def routes(self) -> list[Route]:
        code, group = RequestCode, Resource.GROUP
        return [
            Route(code.INVOKE_BROKER_TO_RESET_OFFSET, ResetOffsetRequestHeader, self.reset, group, Action.UPDATE),
            Route(code.CLONE_GROUP_OFFSET, CloneGroupOffsetRequestHeader, self.clone, group, Action.UPDATE),
        ]

    def reset(self, request: Request[ResetOffsetRequestHeader]) -> Answer:
        """Reset a group to an offset in one queue, or to a time in one or all queues; respond with the new offsets."""
        header, config = request.header, self._topics.get(request.header.topic)
        has_no_time = header.timestamp < 0 or (self._is_reset_here(header) and named_offset(header) is not None)
        if config is None or has_no_time:
            return self._reset(request, {})
        archived = [queue_id for queue_id in range(config.read_queue_nums) if self._tier.has(header.topic, queue_id)]
        return self._reset_archived(request, archived) if archived else self._reset(request, {})

    async def _reset_archived(self, request: Request[ResetOffsetRequestHeader], queue_ids: list[int]) -> Steps:
        """Do the same for a topic with messages in the object store.  Raises an `ObjectStoreError`."""
        topic, time = request.header.topic, request.header.timestamp
        wanted = queue_ids if request.header.queue_id < 0 else {request.header.queue_id}.intersection(queue_ids)
        found = {one: await self._tier.offset_by_time(topic, one, time, Boundary.LOWER) for one in wanted}
        return self._reset(request, found)

    def _reset(self, request: Request[ResetOffsetRequestHeader], archived: Mapping[int, int]) -> Steps:
        """Reset a group; `archived` are the offsets of its time in queues that the object store has a part of."""
        header = request.header
        if self._is_reset_here(header):
            return self._reset_here(header, archived)
        return self._reset_clients(header, archived, for_cpp=request.language in _CPP)

    def _is_reset_here(self, header: ResetOffsetRequestHeader) -> bool:
        """Return whether this broker moves the group; else its clients do, always to a time."""
        return self._config.broker.use_server_side_reset_offset or header.lo is False

    def refusal(self, header: ResetOffsetRequestHeader) -> Refusal | None:
        """Return the refusal of a reset of an unknown group or topic by the broker; None for others."""
        if header.topic not in self._topics:
            return Refusal(ResponseCode.TOPIC_NOT_EXIST, f"Topic {header.topic} does not exist")
        if header.group not in self._groups:
            return Refusal(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"Group {header.group} does not exist")
        return None

    def place(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Move a group in a physical queue; with `NO_OFFSET`, it is as if it had never read there."""
        if offset == NO_OFFSET:
            self._offsets.drop(group, topic, queue_id)
        else:
            self._offsets.reset(group, topic, queue_id, offset)
        self.wake(group, topic, queue_id)

    def wake(self, group: str, topic: str, queue_id: int) -> None:
        """Let waiting requests of a group see its new offset."""
        for listener in self._on_reset:
            listener(group, topic, queue_id)

    # By the broker

    def _reset_here(self, header: ResetOffsetRequestHeader, archived: Mapping[int, int]) -> Steps:
        config, refusal = self._topics.get(header.topic), self.refusal(header)
        if config is None or refusal is not None:
            return refusal
        targets = yield from self._targets(header, config, archived)
        if self._topics.get(header.topic) != config:
            return Refusal(ResponseCode.SYSTEM_ERROR, f"Topic {header.topic} was changed meanwhile, try again")
        if not targets:
            return Refusal(ResponseCode.SYSTEM_ERROR, "No queues to reset.")
        for queue_id, offset in targets.items():
            self.place(header.group, header.topic, queue_id, offset)
        peer_lines.info(
            logger, "", "event=offsets_reset group=%s topic=%s targets=%s", header.group, header.topic, targets
        )
        body = yield from self._body(header.topic, targets)
        group = self._consumers.group(header.group)
        if group is not None and group.is_broadcasting:
            # The clients of a broadcasting group keep their own offsets.
            _tell(group, header, body)
        return Response(body=body)

    def _targets(
        self, header: ResetOffsetRequestHeader, config: TopicConfig, archived: Mapping[int, int]
    ) -> Generator[None, None, dict[int, int]]:
        topic, queue_id = header.topic, header.queue_id
        if queue_id < 0:
            found = {}
            for each in range(config.read_queue_nums):
                found[each] = self._offset_at(topic, each, header.timestamp, archived)
                if not len(found) % STEP_ITEMS:
                    yield
            return found
        if queue_id >= max(config.read_queue_nums, config.write_queue_nums):
            raise RequestError(ResponseCode.INVALID_PARAMETER, f"queueId {queue_id} is none of topic {topic}")
        offset = named_offset(header)
        if offset is None:
            return {queue_id: self._offset_at(topic, queue_id, header.timestamp, archived)}
        if header.lo is not False or offset != NO_OFFSET:
            check_in_range(offset, self._tier.min_offset(topic, queue_id), self._store.max_offset(topic, queue_id))
        return {queue_id: offset}

    def _offset_at(self, topic: str, queue_id: int, timestamp: int, archived: Mapping[int, int]) -> int:
        if timestamp < 0:
            return self._store.max_offset(topic, queue_id)
        if queue_id in archived:
            return archived[queue_id]
        return self._store.offset_by_time(topic, queue_id, timestamp)

    def _body(self, topic: str, targets: dict[int, int]) -> Generator[None, None, bytes]:
        name = self._config.broker.broker_name
        pairs = ((MessageQueue(topic, name, queue_id), offset) for queue_id, offset in targets.items())
        return dumps(ResetOffsetBody((yield from in_steps(pairs, dict))))

    # By the clients

    def _reset_clients(self, header: ResetOffsetRequestHeader, archived: Mapping[int, int], *, for_cpp: bool) -> Steps:
        config = self._topics.get(header.topic)
        if config is None:
            remark = f"[reset-offset] reset offset failed, no topic in this broker. topic={header.topic}"
            return Refusal(ResponseCode.TOPIC_NOT_EXIST, remark)
        targets = {}
        for queue_id in range(config.write_queue_nums):
            consumed = self._offsets.query(header.group, header.topic, queue_id)
            if consumed == -1:
                return Refusal(ResponseCode.SYSTEM_ERROR, f"THe consumer group <{header.group}> not exist")
            offset = self._offset_at(header.topic, queue_id, header.timestamp, archived)
            targets[queue_id] = offset if header.is_force or offset < consumed else consumed
            if not len(targets) % STEP_ITEMS:
                yield
        group = self._consumers.group(header.group)
        if group is None:
            remark = (
                f"Consumer not online, so can not reset offset, Group: {header.group} Topic: {header.topic} "
                f"Timestamp: {header.timestamp}"
            )
            return Refusal(ResponseCode.CONSUMER_NOT_ONLINE, remark)
        old = [member.version for member in group.members.values() if member.version < _FIRST_VERSION]
        if old:
            remark = f"the client does not support this feature. version={old[0]}"
            return Refusal(ResponseCode.SYSTEM_ERROR, remark)
        body = yield from self._body(header.topic, targets)
        _tell(group, header, dumps(self._for_cpp(header.topic, targets)) if for_cpp else body)
        peer_lines.info(
            logger, "", "event=clients_told_of_reset group=%s topic=%s members=%d targets=%s",
            header.group, header.topic, len(group.members), targets,
        )  # fmt: skip
        return Response(body=body)

    def _for_cpp(self, topic: str, targets: dict[int, int]) -> ResetOffsetBodyForC:
        name = self._config.broker.broker_name
        return ResetOffsetBodyForC([MessageQueueForC(topic, name, queue_id, at) for queue_id, at in targets.items()])

    def clone(self, request: Request[CloneGroupOffsetRequestHeader]) -> Response:
        """Copy the offsets of one group to another, in one topic or in all topics of the source group."""
        header = request.header
        topics = {header.topic} if header.topic else self._offsets.topics_of(header.src_group)
        online = self._consumers.group(header.src_group)
        if not header.offline and online is not None and online.subscriptions:
            topics &= online.subscriptions.keys()
        for topic in topics:
            if topic in self._topics:
                self._offsets.clone(header.src_group, header.dest_group, topic)
        peer_lines.info(
            logger, "", "event=offsets_cloned from=%s to=%s topics=%s", header.src_group, header.dest_group,
            sorted(topics),
        )  # fmt: skip
        return Response()


def named_offset(header: ResetOffsetRequestHeader) -> int | None:
    """Return the offset that a reset of one queue names; None for a reset to a time."""
    return None if header.queue_id < 0 or header.offset == -1 else header.offset


def check_in_range(offset: int, low: int, high: int) -> None:
    """Raise RequestError for an offset that a queue does not have."""
    if not low <= offset <= high:
        remark = f"Target offset {offset} not in consume queue range [{low}-{high}]"
        raise RequestError(ResponseCode.SYSTEM_ERROR, remark)


def _tell(group: ConsumerGroup, header: ResetOffsetRequestHeader, body: bytes) -> None:
    told = ResetOffsetRequestHeader(
        group=header.group, topic=header.topic, timestamp=header.timestamp, is_force=header.is_force
    )
    for member in group.members.values():
        member.channel.notify(RequestCode.RESET_CONSUMER_CLIENT_OFFSET, told, body)
