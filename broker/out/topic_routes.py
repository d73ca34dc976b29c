"""Cache of the queues of topics on all brokers, refreshed from the name servers.

Source: RocketMQ 5.3.3, `TopicRouteInfoManager`.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Final, Protocol

from sprocket.client.connection.topic_route import TopicRoute, topic_route
from sprocket.client.errors import TopicNotFound
from sprocket.common.clock import Clock
from sprocket.common.errors import SprocketError
from sprocket.common.logs.peer_lines import peer_lines
from sprocket.remoting.bodies.client import MessageQueue
from sprocket.remoting.bodies.route import TopicRouteData
from sprocket.remoting.message.topic_names import RETRY_PREFIX

logger = logging.getLogger(__name__)

# Max topics in the cache; beyond it, the least recently used one is removed.
_MAX_TOPICS: Final = 10_000
# Clients query a topic every 20 s; a topic without a query for this long is removed.
_FORGET_S: Final = 300.0

Queues = tuple[MessageQueue, ...]
# Returns the queues of a route that consumers are assigned.
QueuesOf = Callable[[TopicRoute], Queues]


def pulled_queues(route: TopicRoute) -> Queues:
    """Return the queues that consumers pull: those of a static topic are logical."""
    return route.subscribe


def popped_queues(route: TopicRoute) -> Queues:
    """Return the queues that consumers pop: those of a static topic are physical."""
    return route.popped


class RouteSource(Protocol):
    """Part of `NameServers` that returns routes."""

    async def topic_route(self, topic: str, /) -> TopicRouteData:
        """Return the route.  Raises TopicNotFound, or another SprocketError without a response."""


class TopicRoutes:
    """Cache of the readable queues of topics on all brokers, sorted.  Lives in the event loop's thread.

    Without name servers (`source` None) the broker is alone, and `own_queues` returns its queues.
    """

    def __init__(
        self,
        source: RouteSource | None,
        own_queues: Callable[[str], Queues | None],
        clock: Clock,
        queues_of: QueuesOf = pulled_queues,
    ) -> None:
        self._source = source
        self._queues_of = queues_of
        self._own_queues = own_queues
        self._clock = clock
        # In the order of the last query; the second part is its monotonic time, s.
        self._kept: dict[str, tuple[Queues, float]] = {}
        self._asking: dict[str, asyncio.Task[Queues | None]] = {}

    def __len__(self) -> int:
        return len(self._kept)

    def known(self, topic: str) -> Queues | None:
        """Return the cached queues of a topic; None or an empty result means: call `find`."""
        if self._source is None:
            return self._own_queues(topic)
        kept = self._kept.pop(topic, None)
        if kept is None:
            return None
        self._kept[topic] = (kept[0], self._clock.monotonic())
        return kept[0]

    async def find(self, topic: str) -> Queues | None:
        """Return the queues of a topic, if necessary from name servers; None for an unknown topic or no response."""
        known = self.known(topic)
        if known or self._source is None:
            return known
        task = self._asking.get(topic)
        if task is None:
            task = self._asking[topic] = asyncio.get_running_loop().create_task(self._ask(self._source, topic))
            task.add_done_callback(lambda _: self._asking.pop(topic, None))
        # A caller that is cancelled must not cancel the query for other callers.
        queues = await asyncio.shield(task)
        if queues is not None:
            self._keep(topic, queues, self._clock.monotonic())
        return queues

    async def refresh(self) -> None:
        """Refresh all cached topics, until a query gets no response; remove topics that are no longer queried."""
        source = self._source
        if source is None:
            return
        oldest = self._clock.monotonic() - _FORGET_S
        for topic, (_, asked_at) in list(self._kept.items()):
            if asked_at < oldest:
                del self._kept[topic]
                continue
            try:
                queues = await self._fetch(source, topic)
            except SprocketError as error:
                peer_lines.warning(logger, "", "event=topic_routes_not_refreshed topic=%s reason=%r", topic, str(error))
                return
            kept = self._kept.get(topic)
            if queues is not None and kept is not None and queues != kept[0]:
                peer_lines.info(
                    logger, "", "event=topic_route_changed topic=%s queues=%d before=%d", topic, len(queues),
                    len(kept[0]),
                )  # fmt: skip
                self._kept[topic] = (queues, kept[1])

    def close(self) -> None:
        """Cancel the running queries."""
        for task in self._asking.values():
            task.cancel()

    async def _ask(self, source: RouteSource, topic: str) -> Queues | None:
        try:
            return await self._fetch(source, topic)
        except SprocketError as error:
            peer_lines.warning(logger, "", "event=topic_route_unknown topic=%s reason=%r", topic, str(error))
            return None

    async def _fetch(self, source: RouteSource, topic: str) -> Queues | None:
        """Query the queues; None if the topic does not exist.  Raises SprocketError without a response."""
        try:
            return self._queues_of(topic_route(topic, await source.topic_route(topic)))
        except TopicNotFound:
            # The queues of a retry topic may appear and disappear with the broker that created it.
            if not topic.startswith(RETRY_PREFIX):
                self._kept.pop(topic, None)
            return None

    def _keep(self, topic: str, queues: Queues, now: float) -> None:
        self._kept.pop(topic, None)
        self._kept[topic] = (queues, now)
        if len(self._kept) > _MAX_TOPICS:
            del self._kept[next(iter(self._kept))]
