"""Registry of the lite topics that each client of a group subscribes.  Pure.

Beyond RocketMQ a client is known by its id and its group, so that nobody ends the subscriptions of another group's
client, and in an exclusive group the whole set that a client states takes no lite topic from another client.
Source: RocketMQ 5.5.1, `LiteSubscriptionRegistryImpl`, `ExclusiveEvictionTombstones`.
"""

from collections import OrderedDict
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Sequence
from typing import Final, NamedTuple, Protocol

from broker.client.clients import ClientChannel
from broker.lite.subscribers import NOBODY, Members, Subscribers
from broker.subscription.group_attributes import LiteGroup
from sprocket.common.clock import Clock
from sprocket.common.errors import RequestError
from sprocket.remoting.bodies.lite import OffsetOption, OffsetOptionType
from sprocket.remoting.codes import ResponseCode
from sprocket.remoting.message.lite_groups import CLIENT_QUOTA_BUFFER

# Lite topics that a client lost to another one, to remember; RocketMQ has no limit.
_MAX_EVICTED: Final = 2000
# Clients per step of a clean-up.
_STEP: Final = 16
_TO_FIRST: Final = OffsetOption(OffsetOptionType.POLICY, 1)


class ClientKey(NamedTuple):
    """A client of a group."""

    group: str
    client_id: str


class LiteClient:
    """Subscriptions of one client.  Objects are compared by identity."""

    __slots__ = ("channel", "evicted", "is_wildcard", "key", "parent", "queues", "updated_at")

    def __init__(self, key: ClientKey, parent: str, channel: ClientChannel, *, is_wildcard: bool) -> None:
        self.key = key
        self.parent = parent
        self.channel = channel
        self.is_wildcard = is_wildcard  # then `queues` stays empty
        self.queues: dict[str, None] = {}
        # Lite topics that another client of an exclusive group has taken, until this one states a set without them.
        self.evicted: dict[str, None] = {}
        self.updated_at = 0.0  # monotonic seconds


class SubscriptionListener(Protocol):
    """What follows from changes of subscriptions."""

    def reset(self, group: str, queue: str, option: OffsetOption) -> None:
        """Move the group in a queue."""

    def subscribed(self, client: LiteClient, queues: Collection[str]) -> None:
        """Note new subscriptions of a client; empty for a client of a wildcard group."""

    def unsubscribed(self, client: LiteClient, queues: Collection[str]) -> None:
        """Note subscriptions that a client does not have any more."""

    def left(self, client: LiteClient) -> None:
        """Note that a client is gone, with all its subscriptions."""

    def evicted(self, client: LiteClient, queue: str) -> None:
        """Tell a client that it does not have `queue` any more."""


class LiteSubscriptions:
    """Registry of clients with lite topics.  Lives in the event loop's thread."""

    def __init__(self, max_count: Callable[[], int], clock: Clock, listener: SubscriptionListener) -> None:
        self._max_count = max_count
        self._clock = clock
        self._listener = listener
        self._clients: OrderedDict[ClientKey, LiteClient] = OrderedDict()  # the longest unheard first
        self._by_name = Subscribers()
        self._wildcards: dict[str, dict[str, Members]] = {}  # parent -> group -> clients
        self._by_group: dict[str, dict[LiteClient, None]] = {}
        self._by_channel: dict[int, dict[LiteClient, None]] = {}
        self.count = 0  # subscriptions; a client of a wildcard group has one

    def __len__(self) -> int:
        return len(self._clients)

    # Reading

    def find(self, group: str, client_id: str) -> LiteClient | None:
        """Return a client; None if it has subscribed nothing."""
        return self._clients.get(ClientKey(group, client_id))

    def of_group(self, group: str) -> list[LiteClient]:
        """Return the clients of a group."""
        return list(self._by_group.get(group, ()))

    def members(self, queue: str, group: str) -> Members:
        """Return the clients of a group that subscribe `queue` by name."""
        return self._by_name.of_group(queue, group)

    def subscribers(self, queue: str) -> Iterator[tuple[str, Members]]:
        """Iterate over groups with clients that subscribe `queue` by name."""
        return self._by_name.groups(queue)

    def wildcards(self, parent: str) -> Iterator[tuple[str, Members]]:
        """Iterate over wildcard groups of a parent."""
        return iter(self._wildcards.get(parent, {}).items())

    def wildcard_members(self, parent: str, group: str) -> Members:
        """Return the clients of a wildcard group."""
        return self._wildcards.get(parent, {}).get(group, NOBODY)

    # Changes by a client

    def add(
        self, key: ClientKey, how: LiteGroup, channel: ClientChannel, queues: Sequence[str],
        option: OffsetOption | None,
    ) -> None:  # fmt: skip
        """Add lite topics to those of a client (PARTIAL_ADD); in an exclusive group take them from others.

        `option` moves the group in each of them.  Raises RequestError, with nothing changed.
        """
        if how.is_wildcard:
            remark = "subscribe lite operation is not supported for this group"
            raise RequestError(ResponseCode.ILLEGAL_OPERATION, remark)
        known = self._clients.get(key)
        held = {} if known is None else known.queues
        self._check_quota(how, len(held), len(held.keys() | set(queues)))
        client = self._heard(key, how, channel)
        for queue in dict.fromkeys(queues):
            if how.is_exclusive:
                self._evict_others(client, how, queue)
                client.evicted.pop(queue, None)
            if option is not None:
                self._listener.reset(key.group, queue, option)
        self._enter(client, queues)

    def remove(self, key: ClientKey, how: LiteGroup, queues: Iterable[str]) -> None:
        """Remove lite topics from those of a client (PARTIAL_REMOVE)."""
        client = self._clients.get(key)
        if client is None:
            return
        self._touch(client)
        gone = [queue for queue in dict.fromkeys(queues) if queue in client.queues]
        self._leave(client, gone)
        if how.resets_on_unsubscribe:
            for queue in gone:
                self._listener.reset(key.group, queue, _TO_FIRST)

    def replace(self, key: ClientKey, how: LiteGroup, channel: ClientChannel, queues: Sequence[str]) -> None:
        """Set all lite topics of a client (COMPLETE_ADD).  Raises RequestError, with nothing changed."""
        known = self._clients.get(key)
        held = {} if known is None else known.queues
        wanted = {} if how.is_wildcard else dict.fromkeys(queues)
        before = int(known is not None) if how.is_wildcard else len(held)
        self._check_quota(how, before, 1 if how.is_wildcard else len(wanted))
        client = self._heard(key, how, channel)
        if how.is_exclusive:
            for queue in [queue for queue in wanted if self._is_taken(client, queue)]:
                del wanted[queue]
                self._listener.evicted(client, queue)
            asked = frozenset(queues)
            client.evicted = {queue: None for queue in client.evicted if queue in asked}
        self._leave(client, [queue for queue in client.queues if queue not in wanted])
        self._enter(client, wanted)

    def _is_taken(self, client: LiteClient, queue: str) -> bool:
        others = self.members(queue, client.key.group)
        return queue in client.evicted or (bool(others) and client not in others)

    def leave(self, key: ClientKey) -> None:
        """Remove a client (COMPLETE_REMOVE)."""
        client = self._clients.get(key)
        if client is not None:
            self._drop(client)

    def _check_quota(self, how: LiteGroup, before: int, after: int) -> None:
        """Raise RequestError if a client may not grow from `before` to `after` subscriptions."""
        if after <= before:
            return
        if how.client_quota is not None and after > how.client_quota + CLIENT_QUOTA_BUFFER:
            remark = f"lite subscription quota exceeded: {how.client_quota}"
            raise RequestError(ResponseCode.LITE_SUBSCRIPTION_QUOTA_EXCEEDED, remark)
        most = self._max_count()
        if self.count - before + after > most:
            remark = f"lite subscription quota exceeded {most}"
            raise RequestError(ResponseCode.LITE_SUBSCRIPTION_QUOTA_EXCEEDED, remark)

    # Other changes

    def expire(self, timeout_s: float) -> Generator[None, None, None]:
        """Remove the clients that were not heard for `timeout_s`, in steps."""
        before = self._clock.monotonic() - timeout_s
        for number, client in enumerate(self._unheard(before), 1):
            self._drop(client)
            if not number % _STEP:
                yield

    def _unheard(self, before: float) -> list[LiteClient]:
        found = []
        for client in self._clients.values():
            if client.updated_at > before:
                break
            found.append(client)
        return found

    def channel_closed(self, channel_id: int) -> Generator[None, None, None]:
        """Remove the clients of a closed connection, in steps; a client that comes back meanwhile stays."""
        for number, client in enumerate(list(self._by_channel.get(channel_id, ())), 1):
            if client.channel.id == channel_id:
                self._drop(client)
            if not number % _STEP:
                yield

    # Inside

    def _heard(self, key: ClientKey, how: LiteGroup, channel: ClientChannel) -> LiteClient:
        client = self._clients.get(key)
        if client is not None and (client.parent, client.is_wildcard) != (how.parent, how.is_wildcard):
            # The group was changed.
            self._drop(client)
            client = None
        if client is None:
            client = self._clients[key] = LiteClient(key, how.parent, channel, is_wildcard=how.is_wildcard)
            self._by_group.setdefault(key.group, {})[client] = None
            self._by_channel.setdefault(channel.id, {})[client] = None
            if how.is_wildcard:
                self._wildcards.setdefault(how.parent, {}).setdefault(key.group, OrderedDict())[client] = None
                self.count += 1
                self._listener.subscribed(client, ())
        elif client.channel.id != channel.id:
            self._leave_channel(client)
            client.channel = channel
            self._by_channel.setdefault(channel.id, {})[client] = None
        self._touch(client)
        return client

    def _touch(self, client: LiteClient) -> None:
        client.updated_at = self._clock.monotonic()
        self._clients.move_to_end(client.key)

    def _enter(self, client: LiteClient, queues: Iterable[str]) -> None:
        new = [queue for queue in dict.fromkeys(queues) if queue not in client.queues]
        for queue in new:
            client.queues[queue] = None
            self._by_name.add(queue, client)
        self.count += len(new)
        if new:
            self._listener.subscribed(client, new)

    def _leave(self, client: LiteClient, queues: Collection[str]) -> None:
        for queue in queues:
            del client.queues[queue]
            self._by_name.remove(queue, client)
        self.count -= len(queues)
        if queues:
            self._listener.unsubscribed(client, queues)

    def _evict_others(self, client: LiteClient, how: LiteGroup, queue: str) -> None:
        for other in list(self.members(queue, client.key.group)):
            if other is client:
                continue
            self._leave(other, (queue,))
            other.evicted[queue] = None
            if len(other.evicted) > _MAX_EVICTED:
                del other.evicted[next(iter(other.evicted))]
            self._listener.evicted(other, queue)
            if how.resets_on_eviction:
                self._listener.reset(client.key.group, queue, _TO_FIRST)

    def _drop(self, client: LiteClient) -> None:
        if self._clients.get(client.key) is not client:
            return
        del self._clients[client.key]
        _discard(self._by_group, client.key.group, client)
        self._leave_channel(client)
        if client.is_wildcard:
            groups = self._wildcards[client.parent]
            _discard(groups, client.key.group, client)
            if not groups:
                del self._wildcards[client.parent]
            self.count -= 1
        self._leave(client, list(client.queues))
        self._listener.left(client)

    def _leave_channel(self, client: LiteClient) -> None:
        channel_id = client.channel.id
        of_channel = self._by_channel.get(channel_id)
        if of_channel is not None:
            of_channel.pop(client, None)
            if not of_channel:
                del self._by_channel[channel_id]


def _discard(table: "dict[str, Members] | dict[str, dict[LiteClient, None]]", name: str, client: LiteClient) -> None:
    clients = table[name]
    del clients[client]
    if not clients:
        del table[name]
