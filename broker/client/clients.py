"""Connected producers and consumers by group, from their heartbeats.

Source: RocketMQ 5.3.3, `ConsumerManager`, `ConsumerGroupInfo`, `ProducerManager`.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Protocol

from broker.namespace.connections import NamespaceConnections
from broker.plan.version import PlanVersion
from broker.subscription.assumed_subscriptions import AssumedSubscriptions
from sprocket.common import limits
from sprocket.common.clock import Clock
from sprocket.common.errors import RequestError
from sprocket.common.logs.peer_lines import peer_lines
from sprocket.remoting.bodies.client import Connection, ConsumerData, SubscriptionData
from sprocket.remoting.codes import ResponseCode
from sprocket.remoting.command import Buffer, Channel, ReceivedResponse
from sprocket.remoting.headers.base import Header

logger = logging.getLogger(__name__)

BROADCASTING = "BROADCASTING"
# Max topics that a log line names; it also has the number of all.
_MAX_NAMED_TOPICS = 16


class ClientChannel(Channel, Protocol):
    """Connection over which the broker can also send requests to the client."""

    def request(
        self, code: int, header: Header | None = None, body: Buffer = b"", *, timeout_s: float
    ) -> "asyncio.Future[ReceivedResponse]":
        """Send a request; the future gets the response, RemotingTimeout or ConnectionLost."""


@dataclass(slots=True)
class Member:
    """One client of a group on one connection; `heard_at`, the last heartbeat, is monotonic seconds."""

    channel: ClientChannel
    client_id: str
    language: str
    version: int
    heard_at: float

    def connection(self) -> Connection:
        """Return the member as operators see it."""
        host, port = self.channel.peer
        return Connection(self.client_id, f"{host}:{port}", self.language, self.version)


@dataclass(slots=True)
class ConsumerGroup:
    """Members of a consumer group and their common settings; the last heartbeat wins."""

    name: str
    consume_type: str | None = None
    message_model: str | None = None
    consume_from_where: str | None = None
    members: dict[int, Member] = field(default_factory=dict)  # by channel id
    subscriptions: dict[str, SubscriptionData] = field(default_factory=dict)  # by topic

    @property
    def is_broadcasting(self) -> bool:
        return self.message_model == BROADCASTING

    def plan_facts(self) -> tuple[object, ...]:
        """Return what plans are made from."""
        return self.consume_type, self.message_model, self.consume_from_where, dict(self.subscriptions)

    def client_ids(self) -> list[str]:
        """Return the ids of all members, each once: after a reconnect a client may be present twice for a while."""
        return list(dict.fromkeys(member.client_id for member in self.members.values()))

    def find_member(self, client_id: str) -> Member | None:
        """Return the member with that id; the newest if it is present twice."""
        found = [member for member in self.members.values() if member.client_id == client_id]
        return max(found, key=lambda member: member.heard_at) if found else None

    def update_subscriptions(self, subscriptions: Iterable[SubscriptionData]) -> bool:
        """Take over a member's subscriptions; return whether the set of topics changed."""
        wanted = {subscription.topic: subscription for subscription in subscriptions}
        changed = wanted.keys() != self.subscriptions.keys()
        for topic, subscription in wanted.items():
            held = self.subscriptions.get(topic)
            if held is None or subscription.sub_version > held.sub_version:
                self.subscriptions[topic] = subscription
        for topic in self.subscriptions.keys() - wanted.keys():
            del self.subscriptions[topic]
        return changed


class ConsumerRegistry:
    """Registry of consumer groups with at least one connected member.

    When a member joins or leaves, or the topics change, all members must rebalance, unless the group is broadcasting.
    """

    def __init__(
        self,
        clock: Clock,
        plan_version: PlanVersion,
        connections: NamespaceConnections | None = None,
    ) -> None:
        self.connections = connections or NamespaceConnections()
        self._clock = clock
        self._plan_version = plan_version
        self._groups: dict[str, ConsumerGroup] = {}
        # Channel id -> names of the groups with a member on that channel, so that a closed connection finds its groups.
        self._names: dict[int, set[str]] = {}
        self.assumed = AssumedSubscriptions(clock)
        # Listeners: for the subscriptions of a heartbeat, for a group whose members must rebalance, and for the last
        # member of a group that leaves.
        self.on_subscribed: list[Callable[[str, Sequence[SubscriptionData]], None]] = []
        self.on_changed: list[Callable[[ConsumerGroup], None]] = []
        self.on_left: list[Callable[[str], None]] = []

    @property
    def groups(self) -> list[ConsumerGroup]:
        return list(self._groups.values())

    def group(self, group: str) -> ConsumerGroup | None:
        """Return the group; None without a connected member."""
        return self._groups.get(group)

    def find_subscription(self, group: str, topic: str) -> SubscriptionData | None:
        """Return the group's subscription to the topic, from heartbeats or requests; None without one."""
        found = self._groups.get(group)
        subscription = None if found is None else found.subscriptions.get(topic)
        return self.assumed.find(group, topic) if subscription is None else subscription

    def register(
        self,
        member: Member,
        data: ConsumerData,
        *,
        notify: bool = True,
        with_subscriptions: bool = True,
    ) -> bool:
        """Process a consumer's heartbeat for one group; return whether anything changed.

        Raises RequestError for a connection of too many groups.

        `notify` is the group's notifyConsumerIdsChangedEnable.  Without `with_subscriptions` the group keeps its
        subscriptions: the client states that they have not changed since its last heartbeat.
        """
        group = self._groups.get(data.group_name)
        if group is None or member.channel.id not in group.members:
            _check_room(self._names, member.channel)
        if group is None:
            before = None
            group = self._groups[data.group_name] = ConsumerGroup(data.group_name)
        else:
            before = group.plan_facts()
        group.consume_type = data.consume_type
        group.message_model = data.message_model
        group.consume_from_where = data.consume_from_where
        joined = member.channel.id not in group.members
        group.members[member.channel.id] = member
        self._names.setdefault(member.channel.id, set()).add(group.name)
        changed = group.update_subscriptions(data.subscription_data_set) if with_subscriptions else False
        if group.plan_facts() != before:
            self._plan_version.rise()
        if joined:
            self.connections.joined(group.name, member.channel)
            peer_lines.info(
                logger, member.channel.peer, "event=consumer_joined group=%s client=%s peer=%s:%s model=%s members=%d",
                group.name, member.client_id, *member.channel.peer, group.message_model, len(group.members),
            )  # fmt: skip
        if changed:
            topics = sorted(islice(group.subscriptions, _MAX_NAMED_TOPICS))
            peer_lines.info(
                logger, member.channel.peer, "event=subscription_changed group=%s count=%d topics=%s",
                group.name, len(group.subscriptions), topics,
            )  # fmt: skip
        if (joined or changed) and notify:
            self._rebalance(group)
        if with_subscriptions:
            for listener in self.on_subscribed:
                listener(group.name, data.subscription_data_set)
        return joined or changed

    def unregister(self, group_name: str, channel: Channel, *, notify: bool = True) -> None:
        """Remove the consumer on `channel` from the group."""
        group = self._groups.get(group_name)
        if group is not None and channel.id in group.members:
            self._remove(group, channel.id, "unregistered")
            if notify:
                self._rebalance(group)

    def channel_closed(self, channel: Channel) -> Iterator[None]:
        """Remove every member on `channel`, a group in each step."""
        for name in sorted(self._names.get(channel.id, ())):
            group = self._groups.get(name)
            if group is not None and channel.id in group.members:  # it may have expired meanwhile
                self._remove(group, channel.id, "connection_closed")
                self._rebalance(group)
            yield

    def expire(self, timeout_s: float) -> None:
        """Remove members without a heartbeat for `timeout_s`, and close their connections."""
        oldest = self._clock.monotonic() - timeout_s
        for group in self.groups:
            silent = [member for member in group.members.values() if member.heard_at < oldest]
            for member in silent:
                self._remove(group, member.channel.id, "expired")
                member.channel.close()
            if silent:
                self._rebalance(group)

    def groups_subscribed_to(self, topic: str) -> set[str]:
        """Return the names of the connected groups that subscribe to `topic`."""
        return {group.name for group in self._groups.values() if topic in group.subscriptions}

    def _remove(self, group: ConsumerGroup, channel_id: int, reason: str) -> None:
        member = group.members.pop(channel_id)
        self.connections.left(group.name, channel_id)
        _discard(self._names, channel_id, group.name)
        peer_lines.info(
            logger, member.channel.peer, "event=consumer_left group=%s client=%s reason=%s members=%d",
            group.name, member.client_id, reason, len(group.members),
        )  # fmt: skip
        if not group.members:
            del self._groups[group.name]
            self._plan_version.rise()
            for listener in self.on_left:
                listener(group.name)

    def _rebalance(self, group: ConsumerGroup) -> None:
        for listener in self.on_changed if not group.is_broadcasting else ():
            listener(group)


class ProducerRegistry:
    """Registry of producer groups with at least one connected member."""

    def __init__(self, clock: Clock, connections: NamespaceConnections | None = None) -> None:
        self._connections = connections or NamespaceConnections()
        self._clock = clock
        self._groups: dict[str, dict[int, Member]] = {}
        # By client id, then by group and channel id; the newest member is last.
        self._clients: dict[str, dict[tuple[str, int], Member]] = {}
        # As in `ConsumerRegistry`.
        self._names: dict[int, set[str]] = {}

    @property
    def groups(self) -> dict[str, list[Member]]:
        return {group: list(members.values()) for group, members in self._groups.items()}

    def members(self, group: str) -> list[Member]:
        """Return the connected producers of a group."""
        return list(self._groups.get(group, {}).values())

    def find_channel(self, client_id: str) -> ClientChannel | None:
        """Return the connection of a client with a producer; the newest if it has several."""
        found = self._clients.get(client_id)
        return next(reversed(found.values())).channel if found else None

    def register(self, group: str, member: Member) -> None:
        """Process a producer's heartbeat for one group.  Raises RequestError for a connection of too many groups."""
        if member.channel.id not in self._groups.get(group, ()):
            _check_room(self._names, member.channel)
        members = self._groups.setdefault(group, {})
        previous = members.get(member.channel.id)
        if previous is not None and previous.client_id != member.client_id:
            self._forget(group, previous)
        self._clients.setdefault(member.client_id, {})[group, member.channel.id] = member
        if member.channel.id not in members:
            self._connections.joined(group, member.channel)
            peer_lines.info(
                logger, member.channel.peer, "event=producer_joined group=%s client=%s peer=%s:%s",
                group, member.client_id, *member.channel.peer,
            )  # fmt: skip
        members[member.channel.id] = member
        self._names.setdefault(member.channel.id, set()).add(group)

    def unregister(self, group: str, channel: Channel) -> None:
        """Remove the producer on `channel` from the group."""
        self._remove(group, channel.id, "unregistered")

    def channel_closed(self, channel: Channel) -> Iterator[None]:
        """Remove every producer on `channel`, a group in each step."""
        for group in sorted(self._names.get(channel.id, ())):
            self._remove(group, channel.id, "connection_closed")
            yield

    def expire(self, timeout_s: float) -> None:
        """Remove producers without a heartbeat for `timeout_s`, and close their connections."""
        oldest = self._clock.monotonic() - timeout_s
        for group, members in self.groups.items():
            for member in members:
                if member.heard_at < oldest:
                    self._remove(group, member.channel.id, "expired")
                    member.channel.close()

    def _remove(self, group: str, channel_id: int, reason: str) -> None:
        members = self._groups.get(group, {})
        member = members.pop(channel_id, None)
        if member is not None:
            self._forget(group, member)
            self._connections.left(group, channel_id)
            _discard(self._names, channel_id, group)
            peer_lines.info(
                logger, member.channel.peer, "event=producer_left group=%s client=%s reason=%s", group,
                member.client_id, reason,
            )  # fmt: skip
        if not members:
            self._groups.pop(group, None)

    def _forget(self, group: str, member: Member) -> None:
        found = self._clients[member.client_id]
        del found[group, member.channel.id]
        if not found:
            del self._clients[member.client_id]


def _check_room(names: dict[int, set[str]], channel: Channel) -> None:
    if len(names.get(channel.id, ())) >= limits.MAX_CONNECTION_GROUPS:
        remark = f"this connection is in {limits.MAX_CONNECTION_GROUPS} groups, and may be in no more: use another one"
        raise RequestError(ResponseCode.INVALID_PARAMETER, remark)


def _discard(names: dict[int, set[str]], channel_id: int, group: str) -> None:
    found = names[channel_id]
    found.discard(group)
    if not found:
        del names[channel_id]
