"""Topics that adapters create when they are first used, as users of other brokers expect."""

from typing import Final

from sprocket.client.admin.admin_client import AdminClient
from sprocket.client.admin.admin_requests import AdminError
from sprocket.common.clock import Clock
from sprocket.remoting.bodies.topic import TopicConfig
from sprocket.remoting.codes import ResponseCode

# A topic that is missing is asked for again after this time.
_MISSING_S: Final = 5.0


class Topics:
    """The topics of a cluster, as far as they were asked for.  New ones have `queue_nums` queues.

    They are created on all masters of `cluster`, None: of all clusters of the name server.  Methods raise AdminError.
    """

    def __init__(self, admin: AdminClient, clock: Clock, *, queue_nums: int, cluster: str | None) -> None:
        self._admin = admin
        self._clock = clock
        self._queue_nums = queue_nums
        self._cluster = cluster
        self._known: set[str] = set()
        self._missing: dict[str, float] = {}

    async def masters(self) -> list[str]:
        """Return the addresses of all masters."""
        clusters = [self._cluster]
        if self._cluster is None:
            clusters = list((await self._admin.cluster_info()).cluster_addr_table)
        found = [
            address
            for name in clusters
            if name
            for address in await self._admin.broker_addresses(name, masters_only=True)
        ]
        if not found:
            raise AdminError("the cluster has no broker; start one, or name another cluster")
        return found

    async def ensure(self, topic: str, max_priority: int | None = None) -> None:
        """Create `topic` unless it exists; with `max_priority` its messages have priorities from 0 to that.

        If access control denies it, an operator creates the topic.
        """
        if await self.exists(topic):
            return
        queues = self._queue_nums if max_priority is None else max_priority + 1
        attributes = {} if max_priority is None else {"+message.type": "PRIORITY"}
        for address in await self.masters():
            await self._admin.create_topic(address, TopicConfig(topic, queues, queues, attributes=attributes))
        self._known.add(topic)

    async def exists(self, topic: str) -> bool:
        """Return whether a name server knows `topic`; an absent one is asked for again after a few seconds."""
        if topic in self._known:
            return True
        if self._missing.get(topic, 0.0) > self._clock.monotonic():
            return False
        try:
            await self._admin.topic_route(topic)
        except AdminError as error:
            if error.code != ResponseCode.TOPIC_NOT_EXIST:
                raise
            self._missing[topic] = self._clock.monotonic() + _MISSING_S
            return False
        self._known.add(topic)
        self._missing.pop(topic, None)
        return True
