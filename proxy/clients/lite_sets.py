"""The lite topics that each client has said it consumes, and which connections to brokers know of them.

A broker forgets them with the connection of the proxy.  RocketMQ's proxy leaves it to the client to state its whole
set again, which it does every 30 s.
"""

import asyncio
from collections.abc import Iterable
from typing import Final

from sprocket.remoting.bodies.lite import LiteSubscriptionAction, LiteSubscriptionDTO
from sprocket.remoting.channel import RemotingChannel

# Lite topics of all clients.  A set beyond it is not kept: its client states it again itself.
MAX_NAMES: Final = 2_000_000


class LiteSet:
    """Lite topics of one client of a group.

    Hold `lock` while brokers are told of a change: what is told later must not overtake it.
    """

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.names: dict[str, None] = {}
        self.lock = asyncio.Lock()
        # Broker name -> the connection over which the broker was told.
        self.told: dict[str, RemotingChannel] = {}


class LiteSets:
    """Sets of all clients.  Lives in the event loop's thread."""

    def __init__(self, max_names: int = MAX_NAMES) -> None:
        self._max_names = max_names
        self._sets: dict[str, dict[str, LiteSet]] = {}  # client id -> group
        self._names = 0

    def __len__(self) -> int:
        return self._names

    def get(self, client_id: str, group: str) -> LiteSet | None:
        """Return the set of a client; None if it has none, or too many names."""
        return self._sets.get(client_id, {}).get(group)

    def open(self, client_id: str, group: str, topic: str) -> LiteSet:
        """Return the set of a client, perhaps a new one."""
        found = self.get(client_id, group)
        if found is None or found.topic != topic:
            self.drop(client_id, group)
            found = self._sets.setdefault(client_id, {})[group] = LiteSet(topic)
        return found

    def drop(self, client_id: str, group: str) -> None:
        """Forget the set of a client in a group."""
        groups = self._sets.get(client_id, {})
        gone = groups.pop(group, None)
        if gone is not None:
            self._names -= len(gone.names)
            if not groups:
                del self._sets[client_id]

    def forget(self, client_id: str) -> None:
        """Forget all sets of a client."""
        for group in list(self._sets.get(client_id, ())):
            self.drop(client_id, group)

    def changed(self, change: LiteSubscriptionDTO) -> None:
        """Note a change that brokers were told of."""
        found = self.get(change.client_id, change.group)
        if found is None:
            return
        before, names, given = len(found.names), found.names, change.lite_topic_set or ()
        match change.action:
            case LiteSubscriptionAction.PARTIAL_ADD:
                names.update(dict.fromkeys(given))
            case LiteSubscriptionAction.PARTIAL_REMOVE:
                _remove(names, given)
            case LiteSubscriptionAction.COMPLETE_ADD:
                found.names = dict.fromkeys(given)
            case LiteSubscriptionAction.COMPLETE_REMOVE:
                found.names = {}
        self._names += len(found.names) - before
        if not found.names or self._names > self._max_names:
            self.drop(change.client_id, change.group)

    def taken(self, client_id: str, group: str, lite_topic: str) -> None:
        """Note that another client of an exclusive group has a lite topic now."""
        found = self.get(client_id, group)
        if found is not None:
            self._names -= _remove(found.names, (lite_topic,))


def _remove(names: dict[str, None], gone: Iterable[str]) -> int:
    """Remove names; return how many were there."""
    before = len(names)
    for name in gone:
        names.pop(name, None)
    return before - len(names)
