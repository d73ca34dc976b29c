"""Bodies in which clients describe themselves, and brokers their clients.

Source: RocketMQ 5.3.3, `HeartbeatData`, `ConsumerData`, `ProducerData`, `SubscriptionData`, `MessageQueue`,
`LockBatchRequestBody`, `UnlockBatchRequestBody`, `ConsumerConnection`, `ProducerConnection`, `Connection`.
"""

from collections.abc import Mapping
from typing import TypeVar

import msgspec

from sprocket.remoting.codec.fastjson import loads

T = TypeVar("T")


class MessageQueue(msgspec.Struct, rename="camel", frozen=True, order=True):
    """One queue; ordered by topic, broker name, queue id, which is the order that rebalance relies on."""

    topic: str
    broker_name: str
    queue_id: int


# Tables by queue have objects as keys.  A body with one is written with `MessageQueue` keys and
# `sprocket.remoting.codec.fastjson.dumps`, and read with `str` keys, each the JSON text of a queue:
# ``Body[MessageQueue](...)``, ``loads(data, Body[str])``.
QueueKey = TypeVar("QueueKey", MessageQueue, str)


def by_queue(table: Mapping[str, T]) -> dict[MessageQueue, T]:
    """Return a table that was read, with queues as its keys.  Raises ProtocolError when a key is none."""
    return {loads(text.encode(), MessageQueue): value for text, value in table.items()}


class SubscriptionData(msgspec.Struct, rename="camel"):
    """Subscription of a consumer to a topic."""

    topic: str
    sub_string: str | None = "*"
    class_filter_mode: bool = False
    tags_set: list[str] | None = []
    code_set: list[int] | None = []  # Java hash codes of the tags
    sub_version: int = 0  # ms; the newest wins
    expression_type: str | None = "TAG"


class ConsumerData(msgspec.Struct, rename="camel"):
    """A consumer group as one member describes it."""

    group_name: str
    consume_type: str | None = "CONSUME_PASSIVELY"  # CONSUME_ACTIVELY, CONSUME_PASSIVELY, CONSUME_POP
    message_model: str | None = "CLUSTERING"  # or BROADCASTING, LITE_SELECTIVE
    consume_from_where: str | None = "CONSUME_FROM_LAST_OFFSET"
    subscription_data_set: list[SubscriptionData] = []
    unit_mode: bool = False


class ProducerData(msgspec.Struct, rename="camel"):
    """A producer group."""

    group_name: str


class HeartbeatData(msgspec.Struct, rename="camel"):
    """Body of HEART_BEAT."""

    client_id: str = msgspec.field(name="clientID")
    producer_data_set: list[ProducerData] = []
    consumer_data_set: list[ConsumerData] = []
    heartbeat_fingerprint: int = 0
    without_sub: bool = False


class CheckClientRequestBody(msgspec.Struct, rename="camel"):
    """Body of CHECK_CLIENT_CONFIG."""

    client_id: str | None = None
    group: str | None = None
    subscription_data: SubscriptionData | None = None
    namespace: str | None = None


class LockBatchRequestBody(msgspec.Struct, rename="camel"):
    """Body of LOCK_BATCH_MQ and UNLOCK_BATCH_MQ."""

    consumer_group: str
    client_id: str
    only_this_broker: bool = False
    mq_set: list[MessageQueue] = []


class LockBatchResponseBody(msgspec.Struct, rename="camel"):
    """Queues that the client now holds."""

    lock_ok_mq_set: list[MessageQueue] = msgspec.field(name="lockOKMQSet", default_factory=list)


class ConsumerIdList(msgspec.Struct, rename="camel"):
    """Answer to GET_CONSUMER_LIST_BY_GROUP: client ids."""

    consumer_id_list: list[str] = []


class Connection(msgspec.Struct, rename="camel"):
    """One client connection."""

    client_id: str
    client_addr: str
    language: str
    version: int


class ConsumerConnection(msgspec.Struct, rename="camel"):
    """Answer to GET_CONSUMER_CONNECTION_LIST."""

    connection_set: list[Connection] = []
    subscription_table: dict[str, SubscriptionData] = {}
    consume_type: str | None = None
    message_model: str | None = None
    consume_from_where: str | None = None


class ProducerConnection(msgspec.Struct, rename="camel"):
    """Answer to GET_PRODUCER_CONNECTION_LIST."""

    connection_set: list[Connection] = []


class ProducerInfo(msgspec.Struct, rename="camel", kw_only=True):
    """One connected producer, in the answer to GET_ALL_PRODUCER_INFO."""

    client_id: str
    remote_ip: str = msgspec.field(name="remoteIP")
    language: str
    version: int
    last_update_timestamp: int  # ms


class ProducerTableInfo(msgspec.Struct, rename="camel"):
    """Answer to GET_ALL_PRODUCER_INFO: group -> producers."""

    data: dict[str, list[ProducerInfo]] = {}
