"""Members of consumer and producer groups, wherever they are connected: by gRPC, by remoting, at another proxy.

Consumers of RocketMQ 4 divide the queues of a topic among the members that a proxy names, so every proxy must name the
same.  Source: RocketMQ 5.3.3, `ConsumerManager`, `ConsumerGroupInfo`, `ProducerManager`.
"""

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

from sprocket.common.logs.peer_lines import peer_lines
from sprocket.remoting.bodies.client import Connection, ConsumerData, SubscriptionData
from sprocket.remoting.channel import RemotingChannel
from sprocket.remoting.codes import RequestCode
from sprocket.remoting.headers.client import NotifyConsumerIdsChangedRequestHeader

logger = logging.getLogger(__name__)

BROADCASTING: Final = "BROADCASTING"
_MAX_TRANSACTIONAL: Final = 20_000


@dataclass(slots=True)
class Member:
    """One client of a group.  `key` is unique among all proxies; `heard_at` is monotonic s.

    `channel` is the connection of a remoting client of this proxy.  `proxy` is the id of the other proxy that told of
    a client; None if it is connected here.
    """

    key: str
    client_id: str
    language: str
    version: int
    address: str
    local_address: str
    heard_at: float
    channel: RemotingChannel | None = None
    proxy: str | None = None

    def connection(self) -> Connection:
        """Return the member as operators see it."""
        return Connection(self.client_id, self.address, self.language, self.version)


@dataclass(slots=True)
class ConsumerGroup:
    """Members of a consumer group and their common settings; the last heartbeat wins."""

    data: ConsumerData
    members: dict[str, Member] = field(default_factory=dict)
    subscriptions: dict[str, SubscriptionData] = field(default_factory=dict)

    @property
    def client_ids(self) -> list[str]:
        """Ids of all members, each once, in an order that every proxy has."""
        return sorted({member.client_id for member in self.members.values()})

    def find(self, client_id: str) -> Member | None:
        """Return the member that is connected here with this id, else one of another proxy; the newest of several."""
        found = [member for member in self.members.values() if member.client_id == client_id]
        return max(found, key=lambda member: (member.proxy is None, member.heard_at), default=None)

    def take(self, data: ConsumerData) -> bool:
        """Take over a member's settings; return whether the topics changed."""
        if data is self.data and self.subscriptions:
            return False
        self.data = data
        wanted = {entry.topic: entry for entry in data.subscription_data_set}
        is_changed = wanted.keys() != self.subscriptions.keys()
        for topic, entry in wanted.items():
            held = self.subscriptions.get(topic)
            if held is None or entry.sub_version >= held.sub_version:
                self.subscriptions[topic] = entry
        for topic in self.subscriptions.keys() - wanted.keys():
            del self.subscriptions[topic]
        return is_changed


class Consumers:
    """Consumer groups with members.  Remoting clients of this proxy are told when their group changes.

    `on_heard` and `on_left` get the group's name and data, and each member that is connected here.
    """

    def __init__(self, monotonic: Callable[[], float], silent_s: float) -> None:
        self._monotonic = monotonic
        self._silent_s = silent_s
        self._groups: dict[str, ConsumerGroup] = {}
        self._groups_of: dict[str, set[str]] = {}
        self.remote_count = 0  # memberships that other proxies told of
        self.on_heard: list[Callable[[Member, ConsumerData], None]] = []
        self.on_left: list[Callable[[Member, str], None]] = []

    def group(self, name: str) -> ConsumerGroup | None:
        """Return a group; None without members."""
        return self._groups.get(name)

    def shared(self, data: ConsumerData) -> ConsumerData:
        """Return `data`, or an equal one that its group has: the members of most groups say the same."""
        group = self._groups.get(data.group_name)
        return data if group is None or group.data != data else group.data

    def names_here(self) -> list[str]:
        """Return the groups with a gRPC member at this proxy."""
        return [
            name
            for name, group in self._groups.items()
            if any(member.proxy is None and member.channel is None for member in group.members.values())
        ]

    def subscription(self, group: str, topic: str) -> SubscriptionData | None:
        """Return what a group wants of a topic; None if nothing is known."""
        found = self._groups.get(group)
        return None if found is None else found.subscriptions.get(topic)

    def heard(self, member: Member, data: ConsumerData) -> None:
        """Take a heartbeat of a member for one group."""
        group = self._groups.get(data.group_name)
        if group is None:
            group = self._groups[data.group_name] = ConsumerGroup(data)
        is_new = member.key not in group.members
        if is_new and member.proxy is not None:
            self.remote_count += 1
        group.members[member.key] = member
        self._groups_of.setdefault(member.key, set()).add(data.group_name)
        is_changed = group.take(data)
        if is_new:
            peer_lines.info(
                logger, member.client_id, "event=consumer_joined group=%s client=%s address=%s proxy=%s members=%d",
                data.group_name, member.client_id, member.address, member.proxy, len(group.members),
            )  # fmt: skip
        if member.proxy is None:
            for listener in self.on_heard:
                listener(member, data)
        if is_new or is_changed:
            self._notify(data.group_name, group)

    def leave(self, name: str, key: str, reason: str) -> None:
        """Remove a member from one group."""
        group = self._groups.get(name)
        member = None if group is None else group.members.pop(key, None)
        if group is None or member is None:
            return
        groups = self._groups_of[key]
        groups.discard(name)
        if not groups:
            del self._groups_of[key]
        if not group.members:
            del self._groups[name]
        if member.proxy is not None:
            self.remote_count -= 1
        peer_lines.info(
            logger, member.client_id, "event=consumer_left group=%s client=%s reason=%s members=%d",
            name, member.client_id, reason, len(group.members),
        )  # fmt: skip
        if member.proxy is None:
            for listener in self.on_left:
                listener(member, name)
        self._notify(name, group)

    def gone(self, key: str, reason: str) -> None:
        """Remove a member from all groups."""
        for name in sorted(self._groups_of.get(key, ())):
            self.leave(name, key, reason)

    def expire(self) -> None:
        """Remove the members that are silent for too long."""
        oldest = self._monotonic() - self._silent_s
        for name, group in list(self._groups.items()):
            for member in [member for member in group.members.values() if member.heard_at < oldest]:
                self.leave(name, member.key, "expired")

    def _notify(self, name: str, group: ConsumerGroup) -> None:
        if group.data.message_model == BROADCASTING:
            return
        header = NotifyConsumerIdsChangedRequestHeader(consumer_group=name)
        for member in group.members.values():
            if member.channel is not None:
                member.channel.notify(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, header)


class Producers:
    """Producer groups of remoting clients of this proxy, and which of them send transactions."""

    def __init__(self, monotonic: Callable[[], float], silent_s: float) -> None:
        self._monotonic = monotonic
        self._silent_s = silent_s
        self._groups: dict[str, dict[str, Member]] = {}
        self._groups_of: dict[str, set[str]] = {}
        self._transactional: set[str] = set()

    def heard(self, group: str, member: Member) -> bool:
        """Take a heartbeat of a producer.  Return whether brokers must be told of its group now."""
        is_new = group not in self._groups
        self._groups.setdefault(group, {})[member.key] = member
        self._groups_of.setdefault(member.key, set()).add(group)
        return is_new and group in self._transactional

    def leave(self, group: str, key: str) -> None:
        """Remove a producer from one group."""
        members = self._groups.get(group, {})
        if members.pop(key, None) is not None:
            groups = self._groups_of[key]
            groups.discard(group)
            if not groups:
                del self._groups_of[key]
        if not members:
            self._groups.pop(group, None)
            self._transactional.discard(group)

    def gone(self, key: str) -> None:
        """Remove a producer from all groups."""
        for group in list(self._groups_of.get(key, ())):
            self.leave(group, key)

    def expire(self) -> None:
        """Remove the producers that are silent for too long."""
        oldest = self._monotonic() - self._silent_s
        for group, members in list(self._groups.items()):
            for member in [member for member in members.values() if member.heard_at < oldest]:
                self.leave(group, member.key)

    def sends_transactions(self, group: str) -> bool:
        """Record that a group sends transactions.  Return whether brokers must be told of it now."""
        if group in self._transactional or len(self._transactional) >= _MAX_TRANSACTIONAL:
            return False
        # The first heartbeat of a producer may come long after its first message.
        self._transactional.add(group)
        return group in self._groups

    @property
    def transactional(self) -> Iterable[str]:
        """Connected groups that send transactions: brokers ask the proxy about them."""
        return self._transactional & self._groups.keys()

    def members(self, group: str) -> list[Member]:
        """Return the connected producers of a group."""
        return [one for one in self._groups.get(group, {}).values() if one.channel and not one.channel.is_closed]
