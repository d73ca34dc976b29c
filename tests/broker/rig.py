"""A whole broker in the test's process, on a free port, and a client that talks to it."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec

from broker.config.broker_config import BrokerConfig
from broker.server import Broker
from sprocket.common.clock import Clock
from sprocket.common.errors import SprocketError
from sprocket.remoting.bodies.client import ConsumerData, HeartbeatData, ProducerData, SubscriptionData
from sprocket.remoting.client import RemotingClient
from sprocket.remoting.codec.fastjson import dumps
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.command import ReceivedResponse, Request, Response
from sprocket.remoting.headers.admin import CreateTopicRequestHeader
from sprocket.remoting.headers.base import Header
from sprocket.remoting.headers.client import HeartbeatRequestHeader
from sprocket.remoting.headers.pull import PullMessageRequestHeader
from sprocket.remoting.headers.send import SendMessageResponseHeader
from sprocket.remoting.message.properties import encode
from sprocket.remoting.routes import Action, NoHeader, Resource, Route
from store.config.store_config import StoreConfig
from store.record.record import Record
from tests.loop_syncs import loop_syncs
from tests.send_headers import send_header
from tests.store import reading

TOPIC = "Orders"
GROUP = "CG"
# What a broker may ask its clients.
_CLIENT_CODES = (
    RequestCode.NOTIFY_CONSUMER_IDS_CHANGED,
    RequestCode.RESET_CONSUMER_CLIENT_OFFSET,
)


def store_config(root: Path, **changes: Any) -> StoreConfig:
    """Files small enough for a test."""
    config = StoreConfig(
        store_path_root_dir=root / "store",
        mapped_file_size_commit_log=1 << 20,
        mapped_file_size_consume_queue=20 * 1000,
        disk_space_warning_level_ratio=100,  # however full the machine's disk is
        clean_file_forcibly_enable=False,
        os_page_cache_busy_time_out_mills=600_000,  # and however slow
        max_hash_slot_num=1000,
        max_index_num=4000,
    )
    return replace(config, **changes)


def broker_config(**changes: Any) -> BrokerConfig:
    """On a free port of this machine, with no name server."""
    config = BrokerConfig(broker_name="broker-a", broker_ip1="127.0.0.1", listen_port=0, namesrv_addr="")
    return replace(config, **changes)


def create(topic: str = TOPIC, **changes: Any) -> CreateTopicRequestHeader:
    """Header that creates `topic` with two queues, but for `changes`."""
    header = CreateTopicRequestHeader(
        topic=topic,
        default_topic="TBW102",
        read_queue_nums=2,
        write_queue_nums=2,
        perm=6,
        topic_filter_type="SINGLE_TAG",
    )
    return msgspec.structs.replace(header, **changes)


@dataclass
class TestClient:
    """One connection to the broker; `asked` are the requests that the broker sent in turn.

    Those of a code in `answers` are answered, unless the answer is None.
    """

    __test__ = False

    address: str
    asked: list[Request[Any]] = field(default_factory=list)
    answers: dict[RequestCode, Response | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        codes = {*_CLIENT_CODES, *self.answers}
        self.remoting = RemotingClient(
            [Route(code, NoHeader, self._take, Resource.NONE, Action.NONE) for code in codes]
        )

    def _take(self, request: Request[Any]) -> Response | None:
        self.asked.append(request)
        return self.answers.get(RequestCode(request.code))

    async def ask(self, code: int, header: Header | None = None, body: bytes = b"") -> ReceivedResponse:
        return await self.remoting.invoke(self.address, code, header, body, timeout_s=60)

    async def ask_well(self, code: int, header: Header | None = None, body: bytes = b"") -> ReceivedResponse:
        """The answer, which must be SUCCESS."""
        response = await self.ask(code, header, body)
        assert response.code == ResponseCode.SUCCESS, (response.code, response.remark)
        return response

    async def send(
        self, body: bytes = b"body", topic: str = TOPIC, queue_id: int = 0, **properties: str
    ) -> SendMessageResponseHeader:
        """Send one message; the topic is created if it is new."""
        text = encode({"UNIQ_KEY": "0A000001000000000000000000000001"} | properties)
        header = send_header(topic, queue_id=queue_id, flag=7, properties=text)
        response = await self.ask_well(RequestCode.SEND_MESSAGE_V2, header, body)
        return response.header(SendMessageResponseHeader)

    async def pull(
        self, topic: str = TOPIC, queue_id: int = 0, offset: int = 0, group: str = GROUP, sys_flag: int = 4
    ) -> ReceivedResponse:
        """Pull without being held; the subscription is in the request (4) or that of the heartbeats (0)."""
        header = PullMessageRequestHeader(
            consumer_group=group,
            topic=topic,
            queue_id=queue_id,
            queue_offset=offset,
            max_msg_nums=32,
            sys_flag=sys_flag,
            commit_offset=0,
            suspend_timeout_millis=1_000,
            subscription="*",
            sub_version=0,
            expression_type="TAG",
        )
        return await self.ask(RequestCode.PULL_MESSAGE, header)

    async def heartbeat(
        self,
        client_id: str,
        *topics: str,
        group: str = GROUP,
        model: str = "CLUSTERING",
        producer_group: str | None = None,
        **data: Any,
    ) -> ReceivedResponse:
        """A heartbeat of a consumer of `topics`, or of a producer."""
        subscriptions = [SubscriptionData(topic, sub_version=1) for topic in topics]
        consumers = [ConsumerData(group, message_model=model, subscription_data_set=subscriptions)] if topics else []
        producers = [ProducerData(producer_group)] if producer_group else []
        body = HeartbeatData(client_id, producers, consumers, **data)
        return await self.ask_well(RequestCode.HEART_BEAT, HeartbeatRequestHeader(), dumps(body))

    async def close(self) -> None:
        await self.remoting.close()


@asynccontextmanager
async def running_broker(
    root: Path,
    *,
    clock: Clock | None = None,
    store: dict[str, Any] | None = None,
    on_fatal: Callable[[SprocketError], None] | None = None,
    **changes: Any,
) -> AsyncIterator[tuple[Broker, TestClient]]:
    """A started broker and a client; both are stopped in the end.  Meanwhile the broker syncs nothing on the loop."""
    fatal: list[SprocketError] = []
    broker = Broker(
        broker_config(**changes),
        store_config(root, **(store or {})),
        clock=clock,
        on_fatal=on_fatal or fatal.append,
    )
    await broker.start()
    client = TestClient(f"127.0.0.1:{broker.port}")
    try:
        with loop_syncs() as syncs:
            yield broker, client
    finally:
        await client.close()
        await broker.stop()
    assert not fatal
    assert not syncs, "\n".join(syncs)


def stored(broker: Broker, topic: str, queue_id: int, offset: int) -> Record:
    """What the store holds."""
    return reading.stored(broker.store, topic, queue_id, offset)


def records(broker: Broker, topic: str) -> list[Record]:
    """All messages of a topic on one broker, in the order of their queues and offsets."""
    store = broker.store
    return [
        stored(broker, topic, queue_id, offset)
        for name, queue_id in store.queues()
        if name == topic
        for offset in range(store.min_offset(topic, queue_id), store.max_offset(topic, queue_id))
    ]


def bodies_in_order(broker: Broker, topic: str) -> list[bytes]:
    return [bytes(record.body) for record in records(broker, topic)]
