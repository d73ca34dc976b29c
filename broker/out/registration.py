"""Registration of this broker and its topics with every name server.

Source: RocketMQ 5.3.3, `BrokerController.registerBrokerAll`, `registerSingleTopicAll`, `BrokerOuterAPI`.

Each name server has a task of its own, so that one that is down delays no other.  Beyond the reference, a
registration that failed is tried again after a second, and one whose connection ended (which makes the
name server forget the broker) is repeated at once.

A name server with deleteTopicWithBrokerRegistration takes the topics of a registration for all that the broker has.
RocketMQ's broker registers a changed topic alone (`registerIncrementBrokerData`), which removes its other routes there.
So a REGISTER_BROKER from here names every topic, or it is marked as a part (`_PART_MARK`), which removes nothing there.

A name server ignores a registration whose version it already has.  So each part has a version of its own, and only the
whole table has the table's.  After a part the next periodic registration sends the whole table, which repairs whatever
the name server missed.
"""

import asyncio
import logging
import zlib
from collections.abc import Callable, Sequence
from copy import copy

from broker.config.broker_config import BrokerConfig
from broker.config.live_config import LiveConfig
from broker.out.master_address import MasterAddress
from broker.periodic import pause
from broker.topic.topic_queue_mappings import TopicQueueMappings
from broker.topic.topics import TopicTable
from sprocket.common.errors import ClientError, ProtocolError
from sprocket.remoting.bodies.registration import RegisterBrokerBody, TopicConfigAndMapping
from sprocket.remoting.bodies.route import QueueData, TopicRouteData
from sprocket.remoting.bodies.stats import KVTable
from sprocket.remoting.bodies.topic import DataVersion, TopicConfig
from sprocket.remoting.bodies.topic_queue_mapping import TopicQueueMappingInfo
from sprocket.remoting.channel import RemotingChannel
from sprocket.remoting.client import RemotingClient
from sprocket.remoting.codec.fastjson import dumps, loads
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.headers.namesrv import (
    QueryDataVersionRequestHeader,
    QueryDataVersionResponseHeader,
    RegisterBrokerRequestHeader,
    RegisterBrokerResponseHeader,
    RegisterTopicRequestHeader,
    UnregisterBrokerRequestHeader,
)

logger = logging.getLogger(__name__)

_MIN_PERIOD_S = 10.0
_MAX_PERIOD_S = 60.0
# A slave may start before its master, which waits for it if both are new.
_HURRY_S = 60.0
_HURRY_PERIOD_S = 2.0
# How often a lost connection is looked for, and how soon a failed registration is tried again.
_CHECK_S = 1.0
_UNREGISTER_TIMEOUT_S = 3.0
# An operator's answer waits this long for name servers.
SETTLE_TIMEOUT_S = 2.0
_READ_WRITE = 0x6
# With more changed topics than this, one part of the list costs less than a request for each.
_MAX_SINGLE_TOPICS = 64
# Topics that change so soon after the last ones are registered together with those that follow.
_GATHER_S = 0.01
# A name server refuses a first registration of a single topic.
_MIN_PART_TOPICS = 2
# No name server removes routes for a registration that has queue mappings.  This one belongs to a topic without
# queues, so no client ever gets it with a route.
_PART_MARK = "rmq_sys_PART_OF_A_LIST_OF_TOPICS"


class Registration:
    """Registration of the broker with all name servers of `namesrvAddr`, from `start` to `stop`.

    A master that does not hold its lease registers nothing again: it must not take the route from its successor.
    """

    def __init__(
        self,
        config: LiveConfig,
        topics: TopicTable,
        mappings: TopicQueueMappings,
        client: RemotingClient,
        master: MasterAddress,
        holds_lease: Callable[[], bool] | None = None,
    ) -> None:
        self._holds_lease = holds_lease
        self._config = config
        self._topics = topics
        self._mappings = mappings
        self._client = client
        self.sessions: list[NameServerSession] = []
        # Listeners for each accepted registration; the response has the address of the broker group's master.
        self.on_registered: list[Callable[[RegisterBrokerResponseHeader], None]] = []
        self._registered = asyncio.Event()
        self._master = master
        self._hurries_until = 0.0

    @property
    def address(self) -> str:
        """Address that is registered for clients."""
        return self._config.broker.address

    @property
    def ha_address(self) -> str:
        """Address that is registered for slaves."""
        return self._config.broker.ha_address

    @property
    def is_registered(self) -> bool:
        """Whether the last registration at one name server or more succeeded."""
        return any(session.is_registered for session in self.sessions)

    def start(self) -> None:
        """Start to register, without waiting for any name server."""
        self._hurries_until = asyncio.get_running_loop().time() + _HURRY_S
        for name_server in self._config.broker.name_servers:
            session = NameServerSession(self, name_server)
            self.sessions.append(session)
            session.start()

    async def wait_registered(self, timeout_s: float) -> bool:
        """Wait until one name server has accepted the broker; return False after the timeout."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._registered.wait()
        except TimeoutError:
            return False
        return True

    def topics_changed(self, changed: list[TopicConfig]) -> None:
        """Register changed topics with every name server at once; an empty list stands for the whole table."""
        for session in self.sessions:
            session.add(changed)

    async def settle(self, timeout_s: float = SETTLE_TIMEOUT_S) -> None:
        """Wait until every name server that is up has all changes so far."""
        waits = [session.settled() for session in self.sessions if session.is_registered]
        if waits:
            await asyncio.wait(waits, timeout=timeout_s)

    async def stop(self) -> None:
        """Stop registering, then unregister from every name server that is connected, at the same time."""
        stopped = await self.pause()
        async with asyncio.TaskGroup() as group:
            for session in stopped:
                group.create_task(self._unregister(session.name_server))

    async def pause(self) -> "list[NameServerSession]":
        """Stop registering, and stay registered: the broker registers again at once, in another role."""
        stopped, self.sessions = self.sessions, []
        for session in stopped:
            await session.stop()
        return stopped

    # What the sessions send

    async def register_all(self, name_server: str, registered: DataVersion | None) -> DataVersion:
        """Register every topic, in parts with enableSplitRegistration.  Return the version of the table that was sent.

        `registered` is the version that this name server has; None if it has none or that of a part.  Raises
        ClientError if it refuses.
        """
        config = self._config.broker
        topics, version = list(self._topics.by_name.values()), copy(self._topics.data_version)
        size = max(config.split_registration_size, _MIN_PART_TOPICS)
        if not config.enable_split_registration or len(topics) <= size:
            await self._register(name_server, topics, version)
            self._registered.set()
            return version
        parts = [topics[at : at + size] for at in range(0, len(topics), size)]
        for number, part in enumerate(parts, 1):
            # With the last part the name server has the whole table and its version.
            is_last = number == len(parts) or version == registered
            part_version = version if is_last else self._topics.part_version()
            await self._register(name_server, part, part_version, is_part=True)
        self._registered.set()
        return version

    async def register_part(self, name_server: str, topics: Sequence[TopicConfig]) -> None:
        """Register changed topics in addition to the registered ones.  Raises ClientError if it refuses."""
        await self._register(name_server, topics, self._topics.part_version(), is_part=True)

    async def register_alone(self, name_server: str, topics: Sequence[TopicConfig]) -> bool:
        """Register topics one by one, in addition to the registered ones.

        Return False if the name server is too old for that.  Raises ClientError if it refuses.
        """
        calls = [self._register_topic(name_server, topic) for topic in topics]
        results = await asyncio.gather(*calls, return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result
        return all(results)

    async def _register_topic(self, name_server: str, topic: TopicConfig) -> bool:
        config = self._config.broker
        perm = _limited(topic, config.broker_permission).perm
        queues = QueueData(
            config.broker_name, topic.read_queue_nums, topic.write_queue_nums, perm, topic.topic_sys_flag
        )
        response = await self._client.invoke(
            name_server,
            RequestCode.REGISTER_TOPIC_IN_NAMESRV,
            RegisterTopicRequestHeader(topic=topic.topic_name),
            dumps(TopicRouteData(queue_datas=[queues])),
            timeout_s=_timeout_s(config),
        )
        if response.code not in (ResponseCode.SUCCESS, ResponseCode.REQUEST_CODE_NOT_SUPPORTED):
            raise ClientError(f"name server {name_server} refused topic {topic.topic_name}: {response.remark}")
        return response.code == ResponseCode.SUCCESS

    async def _register(
        self, name_server: str, topics: Sequence[TopicConfig], version: DataVersion, *, is_part: bool = False
    ) -> None:
        """Send one REGISTER_BROKER with `topics`.  Raises ClientError if the name server refuses it."""
        config = self._config.broker
        limited = [_limited(topic, config.broker_permission) for topic in topics]
        mappings = self._mapping_infos(topics)
        if is_part:
            mappings[_PART_MARK] = TopicQueueMappingInfo(_PART_MARK, bname=config.broker_name, curr_id_map={})
        content = TopicConfigAndMapping({topic.topic_name: topic for topic in limited}, version, mappings)
        body = RegisterBrokerBody(content).encode(config.compressed_register)
        header = RegisterBrokerRequestHeader(
            broker_name=config.broker_name,
            broker_addr=self.address,
            cluster_name=config.broker_cluster_name,
            ha_server_addr=self.ha_address,
            broker_id=config.broker_id,
            enable_acting_master=config.enable_slave_acting_master,
            heartbeat_timeout_millis=_heartbeat_timeout_ms(config),
            compressed=config.compressed_register,
            body_crc32=zlib.crc32(body) & 0x7FFFFFFF,
        )
        response = await self._client.invoke(
            name_server, RequestCode.REGISTER_BROKER, header, body, timeout_s=_timeout_s(config)
        )
        if response.code != ResponseCode.SUCCESS:
            raise ClientError(f"name server {name_server} refused the registration: {response.code} {response.remark}")
        master = response.header(RegisterBrokerResponseHeader)
        for listener in self.on_registered:
            listener(master)
        if response.body:
            self._topics.update_order(loads(response.body, KVTable).table)

    def _mapping_infos(self, topics: Sequence[TopicConfig]) -> dict[str, TopicQueueMappingInfo]:
        """Return what name servers get of the mappings of those of `topics` that are static."""
        found = ((topic.topic_name, self._mappings.get(topic.topic_name)) for topic in topics)
        return {name: detail.info() for name, detail in found if detail is not None}

    async def is_outdated(self, name_server: str) -> bool:
        """Whether the data version of the name server differs from that of the topic table."""
        config = self._config.broker
        header = QueryDataVersionRequestHeader(
            broker_name=config.broker_name,
            broker_addr=self.address,
            cluster_name=config.broker_cluster_name,
            broker_id=config.broker_id,
        )
        body = dumps(self._topics.data_version)
        response = await self._client.invoke(
            name_server, RequestCode.QUERY_DATA_VERSION, header, body, timeout_s=_timeout_s(config)
        )
        return response.code != ResponseCode.SUCCESS or response.header(QueryDataVersionResponseHeader).changed

    async def _unregister(self, name_server: str) -> None:
        if self._client.open_channel(name_server) is None:
            return
        config = self._config.broker
        header = UnregisterBrokerRequestHeader(
            broker_name=config.broker_name,
            broker_addr=self.address,
            cluster_name=config.broker_cluster_name,
            broker_id=config.broker_id,
        )
        try:
            response = await self._client.invoke(
                name_server, RequestCode.UNREGISTER_BROKER, header, timeout_s=_UNREGISTER_TIMEOUT_S
            )
            logger.info("event=unregistered name_server=%s code=%d", name_server, response.code)
        except ClientError as error:
            logger.warning("event=unregister_failed name_server=%s detail=%r", name_server, str(error))

    # What the sessions read

    @property
    def period_s(self) -> float:
        """registerNameServerPeriod, limited, in seconds; short while a new slave does not know its master."""
        if self.lacks_master and asyncio.get_running_loop().time() < self._hurries_until:
            return _HURRY_PERIOD_S
        return max(_MIN_PERIOD_S, min(self._config.broker.register_name_server_period / 1000, _MAX_PERIOD_S))

    @property
    def may_repeat(self) -> bool:
        """Whether a name server that has this broker may be told again."""
        return self._holds_lease is None or self._holds_lease()

    @property
    def lacks_master(self) -> bool:
        """Whether this is a slave that does not know its master's address yet."""
        return self._master.is_missing

    @property
    def force(self) -> bool:
        return self._config.broker.force_register

    def registers_alone(self, topics: Sequence[TopicConfig]) -> bool:
        """Whether changed topics are registered one by one.  A mapping travels only with REGISTER_BROKER."""
        is_on = self._config.broker.enable_single_topic_register and len(topics) <= _MAX_SINGLE_TOPICS
        return is_on and not any(topic.topic_name in self._mappings.by_name for topic in topics)

    @property
    def topic_count(self) -> int:
        return len(self._topics.by_name)

    def connection(self, name_server: str) -> RemotingChannel | None:
        return self._client.open_channel(name_server)


class NameServerSession:
    """Registration with one name server."""

    def __init__(self, owner: Registration, name_server: str) -> None:
        self._owner = owner
        self.name_server = name_server
        self._changed: dict[str, TopicConfig] = {}
        self._needs_all = True
        self._wake = asyncio.Event()
        # Set while an operator waits for changes.
        self._hurry = asyncio.Event()
        self._gathers_until = 0.0
        self._task: asyncio.Task[None] | None = None
        self._is_registered: bool | None = None
        # Connection over which the name server last got the whole table, and the version of that table.
        self._registered_over: RemotingChannel | None = None
        self._registered_version: DataVersion | None = None
        # Waits for changes that are not sent yet, and waits for those being sent (None while nothing is sent).
        self._settling: list[asyncio.Future[None]] = []
        self._sending: list[asyncio.Future[None]] | None = None

    @property
    def is_registered(self) -> bool:
        """Whether the last registration succeeded."""
        return bool(self._is_registered)

    def settled(self) -> "asyncio.Future[None]":
        """Return a future that is done once all changes so far have been sent, successfully or not."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self._changed or self._needs_all:
            self._settling.append(future)
            self._hurry.set()
        elif self._sending is not None:
            self._sending.append(future)
        else:
            future.set_result(None)
        return future

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        for future in (*self._settling, *(self._sending or ())):
            future.cancel()

    def add(self, changed: list[TopicConfig]) -> None:
        if changed:
            self._changed.update((topic.topic_name, topic) for topic in changed)
        else:
            self._needs_all = True
        self._wake.set()

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        next_full_at = loop.time()
        while True:
            if self._is_registered and not self._owner.may_repeat:
                await pause(_CHECK_S)
                continue
            is_due = loop.time() >= next_full_at
            if is_due or self._needs_all or self._changed:
                if not (is_due or self._needs_all):
                    await self._gather()
                self._hurry.clear()
                self._sending, self._settling = self._settling, []
                succeeded = await self._register(periodic=is_due and not self._needs_all)
                sent, self._sending = self._sending, None
                for future in sent:
                    if not future.done():
                        future.set_result(None)
                next_full_at = loop.time() + (self._owner.period_s if succeeded else _CHECK_S)
                self._gathers_until = loop.time() + _GATHER_S
            self._wake.clear()
            if self._needs_all or self._changed:
                if self._is_registered:
                    continue
                # While a name server is down, changes wait for the next attempt.
                await _wait(self._wake, _CHECK_S)
                continue
            await _wait(self._wake, _CHECK_S)
            # Other parts use the connection, too, and may have opened a new one.
            if self._is_registered and self._owner.connection(self.name_server) is not self._registered_over:
                self._needs_all = True

    async def _gather(self) -> None:
        """Wait for more changes if the last were registered a moment ago, and no operator waits.

        Sends that create topics one after the other would each cost a request.
        """
        seconds = self._gathers_until - asyncio.get_running_loop().time()
        if seconds > 0:
            await _wait(self._hurry, seconds)

    async def _register(self, *, periodic: bool) -> bool:
        """Register all topics or those that changed; return whether it succeeded."""
        owner = self._owner
        changed, self._changed = self._changed, {}
        needs_all, self._needs_all = self._needs_all, False
        everything = needs_all or periodic or not self._has_all
        try:
            if (
                periodic
                and not changed
                and not owner.force
                and not owner.lacks_master
                and not await owner.is_outdated(self.name_server)
            ):
                return True
            if everything:
                self._registered_version = await owner.register_all(self.name_server, self._registered_version)
                self._registered_over = owner.connection(self.name_server)
            else:
                await self._register_changed(list(changed.values()))
                # If the name server has restarted meanwhile, it has only these topics.
                self._needs_all = self._needs_all or not self._has_all
        except (ClientError, ProtocolError) as error:
            self._failed(error)
            return False
        if not self._is_registered or changed:
            count = owner.topic_count if everything else len(changed)
            logger.info("event=registered name_server=%s topics=%d", self.name_server, count)
        self._is_registered = True
        return True

    async def _register_changed(self, topics: list[TopicConfig]) -> None:
        owner = self._owner
        if owner.registers_alone(topics) and await owner.register_alone(self.name_server, topics):
            return
        self._registered_version = None
        await owner.register_part(self.name_server, topics)

    @property
    def _has_all(self) -> bool:
        """Whether all topics were sent to the name server over the open connection."""
        return self.is_registered and self._owner.connection(self.name_server) is self._registered_over

    def _failed(self, error: Exception) -> None:
        self._needs_all = True
        self._registered_version = None
        if self._is_registered is not False:
            logger.warning("event=register_failed name_server=%s detail=%r", self.name_server, str(error))
        self._is_registered = False


async def _wait(event: asyncio.Event, seconds: float) -> None:
    """Wait for `event`, for `seconds` at most."""
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        pass


def _limited(topic: TopicConfig, broker_permission: int) -> TopicConfig:
    """Return the topic with its permission limited by the broker's."""
    if broker_permission & _READ_WRITE == _READ_WRITE:
        return topic
    limited = copy(topic)
    limited.perm = topic.perm & broker_permission
    return limited


def _heartbeat_timeout_ms(config: BrokerConfig) -> int | None:
    """Return the timeout of heartbeats; None without heartbeats, which leaves it to the name server."""
    return config.broker_not_active_timeout_millis if config.enable_slave_acting_master else None


def _timeout_s(config: BrokerConfig) -> float:
    return config.register_broker_timeout_mills / 1000
