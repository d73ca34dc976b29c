"""Lite topics that a client subscribes, and what each broker has been told of them.

A change is sent to every place at once: over remoting to each broker of the parent topic, over gRPC to the proxy.  The
whole set is sent again, before a pop, to a place that does not know it: one that could not be reached when it changed,
that was restarted or replaced, or that has not heard for `SYNC_S`.  Brokers forget a client after three minutes.
Source: RocketMQ 5.5.1, `LiteSubscriptionRegistryImpl`, `LiteSubscriptionCtlProcessor`.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Final, NamedTuple

from sprocket.client.errors import BrokerRefused, ClientError
from sprocket.client.pop.pop_requests import Target
from sprocket.common.clock import Clock
from sprocket.remoting.bodies.lite import LiteSubscriptionAction, LiteSubscriptionDTO, OffsetOption

logger = logging.getLogger(__name__)

SYNC_S: Final = 30.0


class _Told(NamedTuple):
    """What a place knows: the set of `version`, told by way of a connection, at a monotonic time."""

    version: int
    way: object
    at: float


class LiteSubscriptions:
    """The set of one client.

    `send` tells a place about a change; it raises ClientError.  `way` returns the connection to a place, which is
    another object after a reconnection.  `places` returns all places; it raises ClientError if it knows none.
    """

    def __init__(
        self,
        group: str,
        topic: str,
        client_id: Callable[[], str],
        send: Callable[[Target, LiteSubscriptionDTO], Awaitable[None]],
        way: Callable[[Target], object],
        places: Callable[[], Awaitable[Sequence[Target]]],
        clock: Clock,
    ) -> None:
        self._group = group
        self._topic = topic
        self._client_id = client_id
        self._send = send
        self._way = way
        self._places = places
        self._clock = clock
        self._names: dict[str, None] = {}
        self._version = 0
        self._told: dict[Target, _Told] = {}
        self._locks: dict[Target, asyncio.Lock] = {}  # changes reach a place in their order

    @property
    def names(self) -> tuple[str, ...]:
        """The lite topics, in the order in which they were added."""
        return tuple(self._names)

    async def add(self, names: Iterable[str], option: OffsetOption | None) -> None:
        """Add lite topics; `option` moves the group in each of them.

        If a place refuses them, or none can be reached, the set is as before.  Raises ClientError.
        """
        listed = list(dict.fromkeys(names))
        new = [name for name in listed if name not in self._names]
        before = self._change(self._names | dict.fromkeys(listed))
        try:
            places = await self._places()
            failures = await self._tell_all(places, LiteSubscriptionAction.PARTIAL_ADD, listed, before, option)
            refused = next((error for error in failures if isinstance(error, BrokerRefused)), None)
            if refused is not None:
                raise refused
            if failures and len(failures) == len(places):
                raise failures[0]
        except BaseException:
            self._change({name: None for name in self._names if name not in new})
            raise

    async def remove(self, names: Iterable[str]) -> None:
        """Remove lite topics.  A place that cannot be reached learns it later."""
        gone = [name for name in dict.fromkeys(names) if name in self._names]
        if gone:
            before = self._change({name: None for name in self._names if name not in gone})
            await self._tell_all(await self._places(), LiteSubscriptionAction.PARTIAL_REMOVE, gone, before)

    def lost(self, name: str) -> bool:
        """Note that another client has taken a lite topic; return whether this one had it."""
        if name not in self._names:
            return False
        self._change({other: None for other in self._names if other != name})
        return True

    async def leave(self) -> None:
        """Tell the places that know this client that it goes."""
        places, self._told = list(self._told), {}
        await self._tell_all(places, LiteSubscriptionAction.COMPLETE_REMOVE, [], self._version)

    def forget(self, place: Target) -> None:
        """Tell a place the whole set again: it may have lost what it knew."""
        self._told.pop(place, None)

    async def sync(self, place: Target) -> None:
        """Send the whole set to a place that does not know it.  Raises ClientError."""
        async with self._lock(place):
            told = self._told.get(place)
            now = self._clock.monotonic()
            is_known = told is not None and told.version == self._version and now - told.at < SYNC_S
            if told is None or not is_known or self._way(place) is not told.way:
                version, action = self._version, LiteSubscriptionAction.COMPLETE_ADD
                await self._send(place, self._dto(action, self.names))
                self._told[place] = _Told(version, self._way(place), now)

    def _change(self, names: dict[str, None]) -> int:
        """Set the names; return the version before."""
        before, self._names = self._version, names
        self._version = max(self._clock.wall_ms(), before + 1)
        return before

    def _lock(self, place: Target) -> asyncio.Lock:
        return self._locks.setdefault(place, asyncio.Lock())

    def _dto(
        self, action: LiteSubscriptionAction, names: Sequence[str], option: OffsetOption | None = None
    ) -> LiteSubscriptionDTO:
        return LiteSubscriptionDTO(
            action, self._client_id(), self._group, self._topic, list(names), option, self._version
        )

    async def _tell_all(
        self, places: Sequence[Target], action: LiteSubscriptionAction, names: Sequence[str], before: int,
        option: OffsetOption | None = None,
    ) -> list[ClientError]:  # fmt: skip
        """Send a change of the set of version `before`; return the failures."""
        dto = self._dto(action, names, option)
        outcomes = await asyncio.gather(*(self._tell(place, dto, before) for place in places))
        failures = [error for error in outcomes if error is not None]
        for error in failures:
            logger.info("event=lite_subscription_not_told group=%s reason=%r", self._group, str(error))
        return failures

    async def _tell(self, place: Target, dto: LiteSubscriptionDTO, before: int) -> ClientError | None:
        async with self._lock(place):
            try:
                await self._send(place, dto)
            except ClientError as error:
                return error
            told = self._told.get(place)
            if told is not None and told.version == before and told.way is self._way(place):
                self._told[place] = told._replace(version=dto.version)
        return None
