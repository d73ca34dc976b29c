"""Connection to one cluster: its brokers, its topics, and its table of `records`."""

import asyncio
import logging
from collections.abc import Mapping
from typing import Self

import msgspec

from replicate.records import QUEUES, TOPIC, Record
from sprocket.client.admin.admin_client import AdminClient
from sprocket.client.admin.admin_requests import AdminDenied
from sprocket.client.connect import Connection
from sprocket.client.connection.backoff import Backoff
from sprocket.client.connection.client_instance import ClientInstance, ClientSettings
from sprocket.client.errors import ClientError, TopicNotFound
from sprocket.client.message import Message, MessageQueue
from sprocket.client.typed.table import Table
from sprocket.common.cancellation import outcome_of
from sprocket.common.clock import Clock
from sprocket.remoting.bodies.group import SubscriptionGroupConfig
from sprocket.remoting.bodies.topic import TopicConfig

logger = logging.getLogger(__name__)

_TABLE_LIMIT_S = 20.0
_ROUTE_S, _MAX_ROUTE_S = 0.2, 3.0
# Attributes of a topic that its copy has, too.
_ATTRIBUTES = ("message.type", "cleanup.policy", "queue.type", "lite.topic.expiration")


class Cluster:
    """One cluster; `instance` reads and sends, `admin` asks."""

    def __init__(self, name: str, settings: ClientSettings, clock: Clock) -> None:
        self.name = name
        self.instance = ClientInstance(settings, clock=clock)
        self._connection = Connection(settings)
        self._table: Table[Record] | None = None
        self._opening: asyncio.Task[None] | None = None
        self._denied: set[str] = set()  # brokers that let this account create no groups

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *reason: object) -> None:
        await self.close()

    async def start(self) -> None:
        """Start without connecting.  Raises TlsUnusable."""
        await self._connection.start()
        await self.instance.open()

    async def close(self) -> None:
        """Close all connections."""
        if self._opening is not None:
            self._opening.cancel()
            await asyncio.gather(self._opening, return_exceptions=True)
        await self.instance.close()
        await self._connection.close()

    @property
    def admin(self) -> AdminClient:
        """Requests of an operator."""
        return self._connection.admin

    # The table

    @property
    def records(self) -> Mapping[str, Record]:
        """What the table says now; empty before `open_table`."""
        return {} if self._table is None else self._table

    async def open_table(self, *, create: bool) -> bool:
        """Read the table; return False if there is none.  With `create` make it.

        Raises ClientError, and TimeoutError if brokers do not answer.
        """
        if self._table is not None:
            return True
        backoff = Backoff(_ROUTE_S, _MAX_ROUTE_S)
        async with asyncio.timeout(_TABLE_LIMIT_S):
            while True:
                if self._opening is None:
                    self._opening = asyncio.create_task(self._read_table())
                try:
                    await outcome_of(self._opening, ClientError(f"cluster {self.name} was closed"))
                except TopicNotFound:
                    if not create:
                        return False
                    # Again each time: brokers that start now are not known yet.
                    await self.admin.create_table_topic(TOPIC, queues=QUEUES)
                    await backoff.pause()  # name servers know the new topic a moment later
                else:
                    return True

    async def _read_table(self) -> None:
        """Read the table, also when nobody waits any longer: a long one would else be begun again and again."""
        table = self._connection.table(TOPIC, Record)
        try:
            await table.start()
            self._table = table
        finally:
            self._opening = None

    async def put(self, key: str, record: Record) -> None:
        """Write a record and wait until the table has it.  Raises ClientError, TimeoutError."""
        table = self._opened()
        result = await table.put(key, record)
        await table.at_least(result, timeout_s=10.0)

    async def post(self, key: str, record: Record) -> None:
        """Write a record.  Raises ClientError."""
        await self._opened().put(key, record)

    async def post_at(self, queue: MessageQueue, key: str, record: Record) -> None:
        """Write a record to a queue of `holders`.  Raises ClientError."""
        message = Message(TOPIC, msgspec.json.encode(record), keys=key)
        await self._connection.producer().send(message, queue=queue)

    async def holders(self) -> dict[str, MessageQueue]:
        """Return a queue of the table at each broker that has it, by broker name.  Raises ClientError."""
        return {queue.broker_name: queue for queue in await self._connection.producer().queues(TOPIC)}

    def _opened(self) -> Table[Record]:
        if self._table is None:
            raise ClientError(f"cluster {self.name}: the table of replication is not open yet")
        return self._table

    # Brokers and topics

    async def masters(self) -> dict[str, str]:
        """Return the address of each master by broker name.  Raises AdminError."""
        return (await self.admin.cluster_info()).masters()

    async def make_groups(self, *groups: str) -> None:
        """Create groups at each broker that lacks them: it may create none by itself.  Raises AdminError.

        Where access control refuses, they may be there, or the broker creates them: that is logged once.
        """
        for name, address in (await self.masters()).items():
            try:
                known = (await self.admin.consumer_groups(address)).subscription_group_table
                for group in groups:
                    if group not in known:
                        await self.admin.create_group(address, SubscriptionGroupConfig(group))
            except AdminDenied as error:
                if name not in self._denied:
                    self._denied.add(name)
                    logger.warning(
                        "event=groups_not_created cluster=%s broker=%s groups=%s reason=%r",
                        self.name, name, ",".join(groups), str(error),
                    )  # fmt: skip

    async def drops_copies(self) -> bool:
        """Return whether its brokers are Sprocket's, which drop a copy that they have already.  Raises AdminError."""
        for address in (await self.masters()).values():
            if not (await self.admin.broker_runtime_info(address)).get("sprocketVersion"):
                return False
        return True

    async def topics(self) -> dict[str, dict[str, TopicConfig]]:
        """Return the settings of the users' topics by topic and broker name.  Raises AdminError."""
        found: dict[str, dict[str, TopicConfig]] = {}
        for name, address in (await self.masters()).items():
            for topic, config in (await self.admin.user_topics(address, with_retry=True)).topic_config_table.items():
                if topic != TOPIC:
                    found.setdefault(topic, {})[name] = config
        return found

    async def adopt_topic(self, topic: str, wanted: Mapping[str, TopicConfig]) -> dict[str, int]:
        """Give `topic` at least the queues that it has on the brokers of `wanted`, and their attributes if it is new.

        Return the number of its queues by broker name.  A broker whose name the source does not have gets as many
        queues as the largest there.  Raises AdminError.
        """
        most = max(wanted.values(), key=lambda config: config.write_queue_nums)
        masters = await self.masters()
        shared = {name: address for name, address in masters.items() if name in wanted} or masters
        queues: dict[str, int] = {}
        for name, address in shared.items():
            model = wanted.get(name, most)
            known = await self.admin.topic_config(address, topic)
            count = max(model.write_queue_nums, model.read_queue_nums)
            if known is None or known.write_queue_nums < count:
                kept = {key: value for key, value in model.attributes.items() if key in _ATTRIBUTES}
                attributes = {f"+{key}": value for key, value in kept.items()} if known is None else {}
                perm = model.perm if known is None else known.perm
                made = TopicConfig(topic, count, count, perm, attributes=attributes, order=model.order)
                await self.admin.create_topic(address, made)
                logger.info(
                    "event=topic_created cluster=%s topic=%s broker=%s queues=%d", self.name, topic, name, count
                )
            queues[name] = count if known is None else max(count, known.write_queue_nums)
        return queues


def target_queue(
    broker_name: str, queue_id: int, sources: Mapping[str, object], queues: Mapping[str, int]
) -> tuple[str, int]:
    """Return broker and id of the target's queue for a queue of the source; `queues` is that of `adopt_topic`.

    It is the queue of the same name, if there is one.  The choice is kept in the checkpoint, so it never changes.
    """
    names = sorted(queues)
    name = broker_name if broker_name in queues else names[sorted(sources).index(broker_name) % len(names)]
    return name, queue_id % queues[name]
