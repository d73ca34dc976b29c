"""Lite topics with messages to pop, for each client.  Pure.

A message in a lite topic is an event for one client of each group that subscribes it: the next one that pops and has
room.  If there is none, each of them looks at the lite topic when it pops again.  So a client that does not pop delays
nobody, nothing is lost when a client has too many events, and no table is searched.  RocketMQ gives such events to a
client that may be away, and repeats the search of all its lite topics until it has room.
A wildcard group has one set of events for all its clients.
Source: RocketMQ 5.5.1, `LiteEventDispatcher`.
"""

from collections import OrderedDict
from collections.abc import Callable, Collection, Generator, Iterable, Iterator
from typing import Final, Protocol

from broker.lite.subscribers import Members
from broker.lite.subscriptions import LiteClient, LiteSubscriptions
from sprocket.common.clock import Clock
from sprocket.remoting.message.lite_topics import parent_and_lite

# A client that has events and has not popped for this long is away (`CLIENT_INACTIVE_INTERVAL`).
AWAY_AFTER_S: Final = 10.0
# States per step of a check.
_STEP: Final = 256
# Clients to pass over for an event, so that clients take turns.
_MAX_SKIPPED: Final = 16


class Waiting(Protocol):
    """Pops that are held."""

    def waits(self, client: LiteClient) -> bool:
        """Return whether a pop of the client is held."""

    def wake(self, client: LiteClient) -> None:
        """Answer a held pop of the client, if any."""


# An ordered set of queues.
_Queues = OrderedDict[str, None]


class _State:
    """Events of one client; `missed` are lite topics to look at when the client pops."""

    __slots__ = ("events", "has_popped", "missed", "touched_at")

    def __init__(self, now: float) -> None:
        self.events: _Queues = OrderedDict()
        self.missed: _Queues = OrderedDict()
        self.touched_at = now
        self.has_popped = False  # till then it gets no event: it may never pop


class LiteEvents:
    """Events of all clients.  Lives in the event loop's thread.

    `max_events` returns how many a client of a group may have; `queues_of` all queues of a parent, for wildcard groups.
    """

    def __init__(
        self,
        subscriptions: LiteSubscriptions,
        waiting: Waiting,
        clock: Clock,
        max_events: Callable[[str], int],
        queues_of: Callable[[str], Iterable[str]],
    ) -> None:
        self._subscriptions = subscriptions
        self._waiting = waiting
        self._clock = clock
        self._max_events = max_events
        self._queues_of = queues_of
        self._states: dict[LiteClient, _State] = {}
        self._turn = 0
        # Of wildcard groups: events, and lite topics that nobody has looked at since the group's first client.
        self._shared: dict[str, _Queues] = {}
        self._unseen: dict[str, Iterator[str]] = {}

    def __len__(self) -> int:
        return len(self._states)

    def last_access_s(self, client: LiteClient) -> float | None:
        """Return when the client popped last, or subscribed first; None for an unknown client."""
        state = self._states.get(client)
        return None if state is None else state.touched_at

    # What happens

    def arrived(self, queues: Iterable[str]) -> None:
        """Note messages that arrived in queues of lite topics."""
        chosen: dict[LiteClient, None] = {}
        for queue in queues:
            for _, members in self._subscriptions.subscribers(queue):
                self._dispatch(queue, members, chosen)
            names = parent_and_lite(queue)
            for group, members in self._subscriptions.wildcards(names[0]) if names else ():
                self._share(group, (queue,), members, chosen)
        self._wake(chosen)

    def freed(self, queue: str, group: str) -> None:
        """Note that a group can pop from a queue again."""
        chosen: dict[LiteClient, None] = {}
        self._pass_on(queue, group, chosen)
        self._wake(chosen)

    def subscribed(self, client: LiteClient, queues: Collection[str]) -> None:
        """Let a client look at lite topics that it subscribes now."""
        if client.is_wildcard:
            self._state(client)
            if client.key.group not in self._shared:
                self.look_again(client)
            return
        self._state(client).missed.update(dict.fromkeys(queues))
        self._waiting.wake(client)

    def unsubscribed(self, client: LiteClient, queues: Collection[str]) -> None:
        """Give events of lite topics that a client does not subscribe any more to others."""
        state = self._states.get(client)
        if state is None:
            return
        chosen: dict[LiteClient, None] = {}
        for queue in queues:
            was_missed, was_event = queue in state.missed, queue in state.events
            state.missed.pop(queue, None)
            state.events.pop(queue, None)
            if was_missed or was_event:
                self._pass_on(queue, client.key.group, chosen)
        self._wake(chosen)

    def left(self, client: LiteClient) -> None:
        """Forget a client, whose subscriptions have ended."""
        self._states.pop(client, None)
        group = client.key.group
        if client.is_wildcard and not self._subscriptions.wildcard_members(client.parent, group):
            self._shared.pop(group, None)
            self._unseen.pop(group, None)

    def look_again(self, client: LiteClient) -> None:
        """Look at all lite topics of a client (`doFullDispatchForClient`)."""
        if client.is_wildcard:
            group, chosen = client.key.group, dict[LiteClient, None]()
            members = self._subscriptions.wildcard_members(client.parent, group)
            self._unseen[group] = iter(self._queues_of(client.parent))
            self._share(group, (), members, chosen)
            self._wake(chosen)
        else:
            self._state(client).missed.update(client.queues)
            self._waiting.wake(client)

    # Pops

    def take(self, client: LiteClient) -> str | None:
        """Return the next lite topic to pop from, which may turn out to be empty; None if there is none."""
        state = self._state(client)
        state.touched_at = self._clock.monotonic()
        state.has_popped = True
        if client.is_wildcard:
            return self._next_unseen(client.key.group) or _first(self._shared.get(client.key.group))
        if state.missed and not state.events:
            self._refill(client, state)
        return _first(state.events)

    def put_back(self, client: LiteClient, queue: str) -> None:
        """Keep a lite topic that was taken, because its messages could not be read."""
        if client.is_wildcard:
            self._shared.setdefault(client.key.group, OrderedDict())[queue] = None
        elif queue in client.queues:
            self._state(client).missed[queue] = None

    # Periodic

    def check(self) -> Generator[None, None, None]:
        """Give the events of clients that are away to others, in steps."""
        for number, (client, state) in enumerate(list(self._states.items()), 1):
            if state.events and not self._is_here(client, state) and self._states.get(client) is state:
                self._give_away(client, state)
            if not number % _STEP:
                yield

    def _give_away(self, client: LiteClient, state: _State) -> None:
        chosen: dict[LiteClient, None] = {}
        queues = list(state.events)
        state.events.clear()
        for queue in queues:
            self._pass_on(queue, client.key.group, chosen)
        self._wake(chosen)

    # Inside

    def _state(self, client: LiteClient) -> _State:
        state = self._states.get(client)
        if state is None:
            state = self._states[client] = _State(self._clock.monotonic())
        return state

    def _is_here(self, client: LiteClient, state: _State) -> bool:
        is_active = state.has_popped and self._clock.monotonic() - state.touched_at < AWAY_AFTER_S
        return is_active or self._waiting.waits(client)

    def _pass_on(self, queue: str, group: str, chosen: dict[LiteClient, None]) -> None:
        members = self._subscriptions.members(queue, group)
        if members:
            self._dispatch(queue, members, chosen)
        names = parent_and_lite(queue)
        wildcards = self._subscriptions.wildcard_members(names[0], group) if names else None
        if wildcards:
            self._share(group, (queue,), wildcards, chosen)

    def _dispatch(self, queue: str, members: Members, chosen: dict[LiteClient, None]) -> None:
        """Give an event to the next of `members` that pops and has room; else all of them will look."""
        # Else the first messages of all lite topics would go to their first subscriber.
        self._turn += 1
        for _ in range(self._turn % min(len(members), _MAX_SKIPPED)):
            members.move_to_end(next(iter(members)))
        for _ in range(len(members)):
            client = next(iter(members))
            members.move_to_end(client)
            state = self._state(client)
            if queue in state.events and self._is_here(client, state):
                return
            if len(state.events) < self._max_events(client.key.group) and self._is_here(client, state):
                state.events[queue] = None
                chosen[client] = None
                return
        for client in members:
            self._state(client).missed[queue] = None

    def _share(self, group: str, queues: Iterable[str], members: Members, chosen: dict[LiteClient, None]) -> None:
        shared = self._shared.setdefault(group, OrderedDict())
        shared.update(dict.fromkeys(queues))
        if not shared and group not in self._unseen:
            return
        for _ in range(len(members)):
            client = next(iter(members))
            members.move_to_end(client)
            if self._waiting.waits(client):
                chosen[client] = None
                return

    def _next_unseen(self, group: str) -> str | None:
        queue = next(self._unseen.get(group, iter(())), None)
        if queue is None:
            self._unseen.pop(group, None)
        return queue

    def _refill(self, client: LiteClient, state: _State) -> None:
        most = self._max_events(client.key.group)
        while state.missed and len(state.events) < most:
            queue, _ = state.missed.popitem(last=False)
            if queue in client.queues:
                state.events[queue] = None

    def _wake(self, chosen: Iterable[LiteClient]) -> None:
        for client in chosen:
            self._waiting.wake(client)


def _first(queues: _Queues | None) -> str | None:
    return queues.popitem(last=False)[0] if queues else None
