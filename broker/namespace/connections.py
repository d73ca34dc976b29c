"""Connections of clients by namespace, and how many of them a policy allows.  Not in RocketMQ.

A connection is one of a namespace while a group of that has a member on it, and from the first request that an account
of that namespace has signed on it until it closes.
"""

from collections import Counter, defaultdict
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager

from broker.namespace.namespaces import refusal
from sprocket.remoting.bodies.namespace import NamespacePolicy
from sprocket.remoting.command import Channel
from sprocket.remoting.message.namespaces import namespace_of


class NamespaceConnections:
    """Table of connections by namespace.  It outlives the role of a broker.  Lives in the event loop's thread."""

    def __init__(self) -> None:
        self._policies: Mapping[str, NamespacePolicy] = {}
        # By namespace and id of a channel: for how many reasons it counts.
        self._reasons: defaultdict[str, Counter[int]] = defaultdict(Counter)
        self._signed: dict[int, str] = {}  # namespace of the account that has signed last

    def follow(self, policies: Mapping[str, NamespacePolicy]) -> None:
        """Take the limits from `policies`, by namespace, from now on."""
        self._policies = policies

    def count(self, namespace: str) -> int:
        """Return how many connections a namespace has."""
        return len(self._reasons.get(namespace, ()))

    def joined(self, group: str, channel: Channel) -> None:
        """Note a member of a group on a connection."""
        self._enter(namespace_of(group), channel.id)

    def left(self, group: str, channel_id: int) -> None:
        """Note that a member of a group is gone."""
        self._leave(namespace_of(group), channel_id)

    @contextmanager
    def joining(self, groups: Iterable[str], channel: Channel) -> Generator[None, None, None]:
        """Let a connection count in the namespaces of `groups` while they are joined, so that no other has its place.

        Raises RequestError if one of the namespaces has all that it may have.
        """
        namespaces = {namespace_of(group) for group in groups}
        for namespace in namespaces:
            self._check(namespace, channel.id)
        for namespace in namespaces:
            self._enter(namespace, channel.id)
        try:
            yield
        finally:
            for namespace in namespaces:
                self._leave(namespace, channel.id)

    def signed(self, channel: Channel, account: str) -> None:
        """Note which account has signed on a connection.  Raises RequestError if its namespace has all it may have."""
        namespace, before = namespace_of(account), self._signed.get(channel.id, "")
        if namespace != before:
            self._check(namespace, channel.id)
            self.channel_closed(channel)
            if namespace:
                self._signed[channel.id] = namespace
                self._enter(namespace, channel.id)

    def channel_closed(self, channel: Channel) -> None:
        """Forget the account of a connection; its groups are left one by one."""
        self._leave(self._signed.pop(channel.id, ""), channel.id)

    def _check(self, namespace: str, channel_id: int) -> None:
        policy = self._policies.get(namespace)
        if policy is None or not policy.max_connections:
            return
        known = self._reasons.get(namespace, ())
        if channel_id not in known and len(known) >= policy.max_connections:
            raise refusal(policy, f"its clients have its {policy.max_connections} connections (maxConnections)")

    def _enter(self, namespace: str, channel_id: int) -> None:
        if namespace:
            self._reasons[namespace][channel_id] += 1

    def _leave(self, namespace: str, channel_id: int) -> None:
        if not namespace:
            return
        reasons = self._reasons[namespace]
        reasons[channel_id] -= 1
        if not reasons[channel_id]:
            del reasons[channel_id]
            if not reasons:
                del self._reasons[namespace]
