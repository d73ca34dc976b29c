"""Sends and pulls over a real socket and a real store, without the rest of a broker."""

import asyncio
import random
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from broker.client.clients import ConsumerRegistry
from broker.client.queue_locks import QueueLocks
from broker.config.broker_config import BrokerConfig
from broker.config.live_config import LiveConfig
from broker.filter.consumer_filters import ConsumerFilters
from broker.idempotence.known_ids import KnownIds
from broker.longpolling.confirm_waits import ConfirmWaits
from broker.longpolling.held_pulls import HeldPulls
from broker.longpolling.quota_reads import QuotaReads
from broker.message_id import UniqueKeys, host_bytes
from broker.metrics.message_flow import MessageFlow
from broker.namespace.namespace_table import NamespaceTable
from broker.namespace.namespaces import Namespaces
from broker.offset.consumer_offsets import ConsumerOffsets
from broker.processor.pull import PullProcessor
from broker.processor.send import SendProcessor
from broker.pull.broadcast_offsets import BroadcastOffsets
from broker.quota.quota_table import QuotaTable
from broker.quota.quotas import Quotas
from broker.send.intake import MessageIntake
from broker.send.planner import SendPlanner
from broker.subscription.subscription_groups import SubscriptionGroups
from broker.timer.timer_intake import TimerIntake
from broker.topic.topic_queue_mappings import TopicQueueMappings
from broker.topic.topics import TopicTable
from sprocket.common.clock import SystemClock
from sprocket.common.files.config_file import ConfigFile
from sprocket.remoting.bodies.topic import TopicConfig
from sprocket.remoting.client import RemotingClient
from sprocket.remoting.codes import RequestCode
from sprocket.remoting.command import ReceivedResponse
from sprocket.remoting.framing import JSON
from sprocket.remoting.headers.pull import PullMessageRequestHeader
from sprocket.remoting.headers.send import SendMessageRequestHeaderV2
from sprocket.remoting.message.properties import encode
from sprocket.remoting.routes import RouteTable
from sprocket.remoting.server import RemotingServer
from sprocket.remoting.serving.listener_settings import ConnectionSettings
from store.config.store_config import FlushDiskType, StoreConfig
from store.message_store import MessageStore
from store.record.checksum import SEAL_BYTES, sealed_crc
from store.record.record import Record, TagsCodes, decode
from store.tier.reads.tiered_reads import TieredReads
from tests.clock import ManualClock
from tests.send_headers import send_header
from tests.store.reading import stored

STORE_HOST = host_bytes("10.1.2.3", 10911)
TOPIC = "Orders"


def small_store(root: Path, **changes: object) -> StoreConfig:
    """A store configuration with files small enough for a test."""
    config = StoreConfig(
        store_path_root_dir=root, mapped_file_size_commit_log=1 << 20, mapped_file_size_consume_queue=20 * 1000
    )
    return replace(config, **changes)  # type: ignore[arg-type] # a test names the fields


def properties(**values: str) -> str:
    """Encoded properties with a unique key, as a client sends them."""
    return encode({"UNIQ_KEY": "0A000001000000000000000000000001"} | values)


@dataclass
class HotPath:
    """The parts, for a test to look into, and a client that talks to them."""

    config: LiveConfig
    store: MessageStore
    topics: TopicTable
    groups: SubscriptionGroups
    consumers: ConsumerRegistry
    offsets: ConsumerOffsets
    locks: QueueLocks
    send_processor: SendProcessor
    pull_processor: PullProcessor
    held: HeldPulls
    waits: ConfirmWaits
    server: RemotingServer
    client: RemotingClient
    clock: ManualClock
    flow: MessageFlow
    mappings: TopicQueueMappings
    namespaces: NamespaceTable

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server.port}"

    def send_header(self, **changes: Any) -> SendMessageRequestHeaderV2:
        """Return the header of a plain send with a tag."""
        return send_header(**{"topic": TOPIC, "flag": 7, "properties": properties(TAGS="TagA"), **changes})

    async def send(
        self, body: bytes = b"body", code: int = RequestCode.SEND_MESSAGE_V2, **changes: object
    ) -> ReceivedResponse:
        return await self.client.invoke(self.address, code, self.send_header(**changes), body)

    def pull_header(self, **changes: object) -> PullMessageRequestHeader:
        """A pull with its subscription in the request, not held."""
        fields = {
            "consumer_group": "CG", "topic": TOPIC, "queue_id": 0, "queue_offset": 0, "max_msg_nums": 32,
            "sys_flag": 4, "commit_offset": 0, "suspend_timeout_millis": 15_000, "subscription": "*",
            "sub_version": 0, "expression_type": "TAG",
        }  # fmt: skip
        return PullMessageRequestHeader(**(fields | changes))  # type: ignore[arg-type]

    async def pull(self, code: int = RequestCode.PULL_MESSAGE, **changes: object) -> ReceivedResponse:
        return await self.client.invoke(self.address, code, self.pull_header(**changes))

    def record(self, topic: str, queue_id: int, offset: int) -> Record:
        """What the store holds."""
        return stored(self.store, topic, queue_id, offset)


def records(body: bytes) -> list[Record]:
    """The records in the body of a pull's answer."""
    found, at, view = [], 0, memoryview(body)
    while at < len(body):
        size = int.from_bytes(body[at : at + 4], "big")
        record = decode(view[at : at + size])
        assert isinstance(record, Record), record
        found.append(record)
        at += size
    return found


def property_map(record: Record) -> dict[str, str]:
    """The properties of a record without the seal that ends them, checked to be well formed."""
    content = bytes(record.properties)
    assert sealed_crc(content[-SEAL_BYTES:]) >= 0
    text = content[:-SEAL_BYTES].decode()
    assert text.endswith("\x02")
    items = [item.partition("\x01") for item in text[:-1].split("\x02")]
    names = [name for name, _, _ in items]
    assert len(names) == len(set(names)), names
    return {name: value for name, _, value in items}


@asynccontextmanager
async def hot_path(
    root: Path,
    *,
    broker: Mapping[str, object] | None = None,
    store: Mapping[str, object] | None = None,
    serialization: int = JSON,
) -> AsyncIterator[HotPath]:
    """Start everything, stop everything."""
    loop = asyncio.get_running_loop()
    broker_config = BrokerConfig(broker_name="b", broker_ip1="10.1.2.3", namesrv_addr="")
    config = LiveConfig(replace(broker_config, **(broker or {})), small_store(root, **(store or {})))  # type: ignore[arg-type]
    message_store = MessageStore(config.store, clock=SystemClock(), notify=loop.call_soon_threadsafe)
    message_store.store_host = STORE_HOST
    clock, flow = ManualClock(), MessageFlow()
    settings = root / "config"
    topics = TopicTable(config, ConfigFile(settings / "topics.json"), clock)
    groups = SubscriptionGroups(config, ConfigFile(settings / "subscriptionGroup.json"), clock)
    consumers = ConsumerRegistry(clock, config.plan_version)
    offsets = ConsumerOffsets(ConfigFile(settings / "consumerOffset.json"), clock, config.plan_version)
    locks = QueueLocks(clock)
    waits = ConfirmWaits(message_store, SystemClock(), loop.call_later)
    keys = UniqueKeys(bytes((10, 1, 2, 3)), 1, 1, clock)
    below = random.Random(7).randrange
    timer = TimerIntake(config, SystemClock(), below, lambda slot_time: 0)
    mappings = TopicQueueMappings(ConfigFile(settings / "topicQueueMapping.json"), clock, config.plan_version)
    namespaces = NamespaceTable(ConfigFile(settings / "namespaces.json"), clock, config.plan_version)
    filters = ConsumerFilters(config, ConfigFile(settings / "consumerFilter.json"), clock)
    consumers.on_subscribed.append(filters.subscribed)
    quotas = Quotas(QuotaTable(ConfigFile(settings / "quotas.json"), clock, config.plan_version), clock)
    core: Any = SimpleNamespace(
        config=config, store=message_store, topics=topics, groups=groups, consumers=consumers, offsets=offsets,
        locks=locks, filters=filters, flow=flow, mappings=mappings, clock=clock, waits=waits, random_below=below,
        ids=KnownIds(config, message_store, clock, loop.call_later), quotas=quotas, namespaces=Namespaces(namespaces),
        quota_reads=QuotaReads(quotas, clock, loop.call_later, filters.sql),
        tier=TieredReads(lambda: config.store, message_store, clock, None),
    )  # fmt: skip
    intake = MessageIntake(core, TagsCodes(config.store.message_delay_level), keys, timer)
    sends = SendProcessor(core, SendPlanner(core), intake)
    held = HeldPulls(message_store, SystemClock(), loop.call_later)
    pulls = PullProcessor(core, held, BroadcastOffsets(core))
    message_store.on_arrival.append(held.arrived)
    message_store.on_queues_removed.append(config.plan_version.rise)
    server = RemotingServer(RouteTable([*sends.routes(), *pulls.routes()]), ConnectionSettings("127.0.0.1"))
    server.on_close.append(lambda channel: held.drop_channel(channel.id))
    client = RemotingClient(serialization=serialization)
    message_store.start()
    topics.update([TopicConfig(TOPIC, 4, 4)])
    await server.start()
    try:
        yield HotPath(
            config, message_store, topics, groups, consumers, offsets, locks, sends, pulls, held, waits, server,
            client, clock, flow, mappings, namespaces,
        )  # fmt: skip
    finally:
        await client.close()
        await server.stop()
        held.close()
        waits.close()
        message_store.shutdown()


__all__ = [
    "JSON",
    "STORE_HOST",
    "TOPIC",
    "FlushDiskType",
    "HotPath",
    "hot_path",
    "properties",
    "property_map",
    "records",
]
