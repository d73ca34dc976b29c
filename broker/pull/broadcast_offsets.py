"""Offsets of the members of broadcasting groups, for members that connect now directly and now through a proxy.

A member that connects directly keeps its own offsets.  A member behind a proxy has none: its first pull has offset -1.
The broker moves that pull to the member's last offset, else to that of the group's slowest member, else to the start or
end of the queue.
Source: RocketMQ 5.3.3, `BroadcastOffsetManager`, `PullMessageProcessor.queryBroadcastPullInitOffset`.
"""

from dataclasses import dataclass, field
from typing import Final

from broker.client.clients import ConsumerGroup
from broker.core import BrokerCore
from broker.periodic import Periodic
from broker.service import Service
from sprocket.remoting.bodies.topic import TopicConfig
from sprocket.remoting.command import Request
from sprocket.remoting.headers.pull import PullMessageRequestHeader
from store.queue.queue_reader import physical_memory_bytes

_PROXY_FOR_BROADCAST: Final = 1  # `RequestSource`
_PUSH: Final = "CONSUME_PASSIVELY"
_SCAN_S: Final = 5.0
_GROUP_SUFFIX: Final = "@broadcast"
# Max members of a group, because a proxy may name members that are not connected.
_MAX_MEMBERS: Final = 10_000

PullRequest = Request[PullMessageRequestHeader]


@dataclass(slots=True)
class _Member:
    """Offsets of one member in the queues of a topic; `last_pull_at` is monotonic seconds."""

    from_proxy: bool
    last_pull_at: float
    offsets: dict[int, int] = field(default_factory=dict)


class BroadcastOffsets(Service):
    """Table (topic, group) -> client id -> queue id -> offset.  In memory; the slowest member's offset is committed."""

    def __init__(self, core: BrokerCore, memory_bytes: int | None = None) -> None:
        self._core = core
        self._memory_bytes = physical_memory_bytes() if memory_bytes is None else memory_bytes
        self._members: dict[tuple[str, str], dict[str, _Member]] = {}

    def periodic(self) -> list[Periodic]:
        return [Periodic("broadcast_offsets", _SCAN_S, self.scan)]

    # Pulls

    def begin(self, request: PullRequest) -> int:
        """Return the offset to which the pull must move; -1 to leave it unchanged (`queryInitOffset`)."""
        client_id = self._client_id(request)
        if client_id is None:
            return -1
        header, from_proxy = request.header, request.header.request_source == _PROXY_FOR_BROADCAST
        members = self._members.get((header.topic, header.consumer_group))
        if members is None:
            return self._place(None, header) if from_proxy and header.queue_offset < 0 else -1
        member = members.get(client_id)
        if member is None:
            if len(members) >= _MAX_MEMBERS:
                return -1
            member = members[client_id] = _Member(from_proxy, self._core.clock.monotonic())
        lacks_offset = header.queue_offset < 0 if member.from_proxy else False
        return self._place(member, header) if lacks_offset or member.from_proxy != from_proxy else -1

    def note(self, request: PullRequest, moved_to: int | None) -> None:
        """Store the offset of a pull, or the offset to which it was moved."""
        client_id = self._client_id(request)
        if client_id is None:
            return
        header = request.header
        members = self._members.setdefault((header.topic, header.consumer_group), {})
        from_proxy, now = header.request_source == _PROXY_FOR_BROADCAST, self._core.clock.monotonic()
        member = members.get(client_id)
        if member is None:
            if len(members) >= _MAX_MEMBERS:
                return
            member = members[client_id] = _Member(from_proxy, now)
        member.from_proxy, member.last_pull_at = from_proxy, now
        offset = header.queue_offset if moved_to is None else moved_to
        member.offsets[header.queue_id] = max(offset, member.offsets.get(header.queue_id, offset))

    def _client_id(self, request: PullRequest) -> str | None:
        """Return the member that pulls; None if the group does not broadcast or enableBroadcastOffsetStore is off."""
        header = request.header
        if not self._core.config.broker.enable_broadcast_offset_store:
            return None
        if header.request_source == _PROXY_FOR_BROADCAST:
            return header.proxy_froward_client_id
        group = self._core.consumers.group(header.consumer_group)
        if group is None or not _broadcasts(group):
            return None
        member = group.members.get(request.channel.id)
        return None if member is None else member.client_id

    def _place(self, member: _Member | None, header: PullMessageRequestHeader) -> int:
        topic, queue_id, store = header.topic, header.queue_id, self._core.store
        offset = -1 if member is None else member.offsets.get(queue_id, -1)
        if offset < 0:
            offset = self._core.offsets.query(header.consumer_group + _GROUP_SUFFIX, topic, queue_id)
        if offset < 0:
            offset = 0 if self._is_in_memory(topic, queue_id) else store.max_offset(topic, queue_id)
        return offset

    def _is_in_memory(self, topic: str, queue_id: int) -> bool:
        """Whether the queue's message 0 is recent enough to be in memory (`checkInMemByConsumeOffset`)."""
        store = self._core.store
        entry = store.entry(topic, queue_id, 0)
        limit = self._memory_bytes * self._core.config.store.access_message_in_memory_max_ratio // 100
        return entry is not None and store.wrote_offset - entry[0] <= limit

    def topics_changed(self, configs: list[TopicConfig]) -> None:
        """Forget deleted topics, if called without `configs`."""
        if not configs:
            for key in [key for key in self._members if key[0] not in self._core.topics]:
                del self._members[key]

    # Expiry

    def scan(self) -> None:
        """Commit the offsets of each group's slowest member, and remove expired members."""
        for (topic, group), members in list(self._members.items()):
            slowest: dict[int, int] = {}
            for client_id, member in list(members.items()):
                self._scan(group, client_id, member, members, slowest)
            if not members:
                del self._members[topic, group]
            for queue_id, offset in slowest.items():
                self._core.offsets.commit(group + _GROUP_SUFFIX, topic, queue_id, offset, "BroadcastOffset")

    def _scan(
        self, group: str, client_id: str, member: _Member, members: dict[str, _Member], slowest: dict[int, int]
    ) -> None:
        broker = self._core.config.broker
        silent_s = self._core.clock.monotonic() - member.last_pull_at
        connected = self._core.consumers.group(group)
        is_online = connected is not None and connected.find_member(client_id) is not None
        if is_online or silent_s < broker.broadcast_offset_expire_second:
            for queue_id, offset in member.offsets.items():
                slowest[queue_id] = min(offset, slowest.get(queue_id, offset))
        max_s = broker.broadcast_offset_expire_max_second if is_online else broker.broadcast_offset_expire_second
        if silent_s >= max_s:
            del members[client_id]


def _broadcasts(group: ConsumerGroup) -> bool:
    return group.is_broadcasting and group.consume_type == _PUSH
