"""Bodies about lite topics.

Source: RocketMQ 5.5.1, `LiteSubscriptionDTO`, `OffsetOption`, `LiteSubscriptionCtlRequestBody`, `LiteLagInfo`,
`GetBrokerLiteInfoResponseBody`, `GetParentTopicInfoResponseBody`, `GetLiteTopicInfoResponseBody`,
`GetLiteClientInfoResponseBody`, `GetLiteGroupInfoResponseBody`.
"""

from enum import StrEnum

import msgspec

from sprocket.remoting.bodies.stats import OffsetWrapper, TopicOffset


class LiteSubscriptionAction(StrEnum):
    """Change of the set of lite topics that a client subscribes."""

    PARTIAL_ADD = "PARTIAL_ADD"
    PARTIAL_REMOVE = "PARTIAL_REMOVE"
    COMPLETE_ADD = "COMPLETE_ADD"  # the set is the whole one
    COMPLETE_REMOVE = "COMPLETE_REMOVE"  # the client leaves


class OffsetOptionType(StrEnum):
    """Meaning of an `OffsetOption`'s value."""

    POLICY = "POLICY"  # 0 the last position, 1 the first message, 2 the end
    OFFSET = "OFFSET"
    TAIL_N = "TAIL_N"  # messages before the end
    TIMESTAMP = "TIMESTAMP"  # ms


class OffsetOption(msgspec.Struct, rename="camel"):
    """Where a new subscriber of a lite topic begins."""

    type: OffsetOptionType
    value: int = 0


class LiteSubscriptionDTO(msgspec.Struct, rename="camel"):
    """One change; a change with a lower version than the last one is too late."""

    action: LiteSubscriptionAction
    client_id: str
    group: str
    topic: str  # the parent
    lite_topic_set: list[str] | None = None
    offset_option: OffsetOption | None = None
    version: int = 0


class LiteSubscriptionCtlRequestBody(msgspec.Struct, rename="camel"):
    """Body of LITE_SUBSCRIPTION_CTL."""

    subscription_set: list[LiteSubscriptionDTO] = []


class LiteLagInfo(msgspec.Struct, rename="camel"):
    """Lag of a group in one lite topic."""

    lite_topic: str
    lag_count: int = 0
    earliest_unconsumed_timestamp: int = -1  # ms


class ClientGroup(msgspec.Struct, rename="camel"):
    """A client, and its group."""

    client_id: str
    group: str


class GetBrokerLiteInfoResponseBody(msgspec.Struct, rename="camel"):
    """Answer to GET_BROKER_LITE_INFO; `topic_meta` has the minutes until idle lite topics are deleted."""

    store_type: str = ""
    max_lmq_num: int = 0
    current_lmq_num: int = 0
    lite_subscription_count: int = 0
    order_info_count: int = 0
    cq_table_size: int = 0
    offset_table_size: int = 0
    event_map_size: int = 0
    topic_meta: dict[str, int] = {}
    group_meta: dict[str, list[str]] = {}


class GetParentTopicInfoResponseBody(msgspec.Struct, rename="camel"):
    """Answer to GET_PARENT_TOPIC_INFO; `ttl` in minutes."""

    topic: str = ""
    ttl: int = 0
    groups: list[str] = []
    lmq_num: int = 0
    lite_topic_count: int = 0


class GetLiteTopicInfoResponseBody(msgspec.Struct, rename="camel"):
    """Answer to GET_LITE_TOPIC_INFO; `sharding_to_broker`: sends of the lite topic come to this broker."""

    parent_topic: str = ""
    lite_topic: str = ""
    subscriber: list[ClientGroup] = []
    topic_offset: TopicOffset | None = None
    sharding_to_broker: bool = False


class GetLiteClientInfoResponseBody(msgspec.Struct, rename="camel"):
    """Answer to GET_LITE_CLIENT_INFO; times in ms."""

    parent_topic: str = ""
    group: str = ""
    client_id: str = ""
    last_access_time: int = 0
    last_consume_time: int = 0
    lite_topic_count: int = 0
    lite_topic_set: list[str] = []


class GetLiteGroupInfoResponseBody(msgspec.Struct, rename="camel"):
    """Answer to GET_LITE_GROUP_INFO."""

    group: str = ""
    parent_topic: str = ""
    lite_topic: str | None = None
    earliest_unconsumed_timestamp: int = -1  # ms
    total_lag_count: int = 0
    lite_topic_offset_wrapper: OffsetWrapper | None = None
    lag_count_top_k: list[LiteLagInfo] | None = msgspec.field(name="lagCountTopK", default=None)
    lag_timestamp_top_k: list[LiteLagInfo] | None = msgspec.field(name="lagTimestampTopK", default=None)
