"""Figures about topics, groups and brokers.

Source: RocketMQ 5.3.3, `TopicStatsTable`, `ConsumeStats`, `KVTable`, `QueueTimeSpan`,
`QuerySubscriptionResponseBody`, `ResetOffsetBody`, `HARuntimeInfo`, `BrokerStatsData`.
"""

import math
from collections.abc import Mapping
from typing import Generic

import msgspec

from sprocket.remoting.bodies.client import MessageQueue, QueueKey, SubscriptionData


class KVTable(msgspec.Struct, rename="camel"):
    """Answer to GET_BROKER_RUNTIME_INFO and GET_KVLIST_BY_NAMESPACE."""

    table: dict[str, str] = {}


def first_average(table: Mapping[str, str], key: str) -> float:
    """Return the first average of a broker's figure such as ``12.3 10.1 9.8``, 0 if there is none."""
    return _finite(next(iter(table.get(key, "").split()), "0"))


def figure(table: Mapping[str, str], key: str) -> float:
    """Return a broker's figure, 0 if it is absent or no number."""
    return _finite(table.get(key, "0"))


def _finite(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        return 0.0
    return value if math.isfinite(value) else 0.0


class TopicOffset(msgspec.Struct, rename="camel"):
    """Extent of one queue."""

    min_offset: int
    max_offset: int
    last_update_timestamp: int  # ms, store time of the last message; 0 for none


class TopicStatsTable(msgspec.Struct, rename="camel"):
    """Answer to GET_TOPIC_STATS_INFO; encode with `sprocket.remoting.codec.fastjson.dumps`, the keys are objects."""

    offset_table: dict[MessageQueue, TopicOffset] = {}
    topic_put_tps: float = 0.0


class OffsetWrapper(msgspec.Struct, rename="camel"):
    """Offset of a group in one queue."""

    broker_offset: int
    consumer_offset: int
    pull_offset: int
    last_timestamp: int  # ms, store time of the last consumed message; 0 for none


class ConsumeStats(msgspec.Struct, Generic[QueueKey], rename="camel"):
    """Answer to GET_CONSUME_STATS."""

    offset_table: dict[QueueKey, OffsetWrapper] = {}
    consume_tps: float = 0.0


class QueueTimeSpan(msgspec.Struct, rename="camel"):
    """Time range of one queue, ms."""

    message_queue: MessageQueue
    min_time_stamp: int
    max_time_stamp: int
    consume_time_stamp: int
    delay_time: int


class QueryConsumeTimeSpanBody(msgspec.Struct, rename="camel"):
    """Answer to QUERY_CONSUME_TIME_SPAN."""

    consume_time_span_set: list[QueueTimeSpan] = []


class QuerySubscriptionResponseBody(msgspec.Struct, rename="camel"):
    """Answer to QUERY_SUBSCRIPTION_BY_CONSUMER; without a subscription when there is none."""

    group: str
    topic: str | None = None
    subscription_data: SubscriptionData | None = None


class ResetOffsetBody(msgspec.Struct, Generic[QueueKey], rename="camel"):
    """Answer to INVOKE_BROKER_TO_RESET_OFFSET, and the body of RESET_CONSUMER_CLIENT_OFFSET."""

    offset_table: dict[QueueKey, int] = {}


class HAConnectionRuntimeInfo(msgspec.Struct, rename="camel"):
    """One slave, as its master sees it."""

    addr: str = ""
    slave_ack_offset: int = 0
    diff: int = 0  # bytes that it lacks
    in_sync: bool = False
    transferred_byte_in_second: int = 0
    transfer_from_where: int = 0
    # ms since the slave last had the whole log; -1 if it never had.  RocketMQ has no such field and ignores it.
    behind_millis: int = 0


class HAClientRuntimeInfo(msgspec.Struct, rename="camel"):
    """A slave's end of the replication; zeros on a master."""

    master_addr: str | None = None  # HA port of the master; None while it is unknown
    transferred_byte_in_second: int = 0
    max_offset: int = 0  # end of the slave's log
    last_read_timestamp: int = 0  # ms
    last_write_timestamp: int = 0  # ms
    master_flush_offset: int = 0
    activated: bool = False


class HARuntimeInfo(msgspec.Struct, rename="camel"):
    """Answer to GET_BROKER_HA_STATUS."""

    master: bool = True
    master_commit_log_max_offset: int = 0
    in_sync_slave_nums: int = 0
    ha_connection_info: list[HAConnectionRuntimeInfo] = []
    ha_client_runtime_info: HAClientRuntimeInfo = msgspec.field(default_factory=HAClientRuntimeInfo)


class BrokerStatsItem(msgspec.Struct, rename="camel"):
    """Counts over a span of time."""

    sum: int = 0
    tps: float = 0.0
    avgpt: float = 0.0  # counted per call


class BrokerStatsData(msgspec.Struct, rename="camel"):
    """Answer to VIEW_BROKER_STATS_DATA."""

    stats_minute: BrokerStatsItem = msgspec.field(default_factory=BrokerStatsItem)
    stats_hour: BrokerStatsItem = msgspec.field(default_factory=BrokerStatsItem)
    stats_day: BrokerStatsItem = msgspec.field(default_factory=BrokerStatsItem)
