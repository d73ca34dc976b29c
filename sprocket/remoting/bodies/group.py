"""Subscription groups as brokers keep them.

Source: RocketMQ 5.3.3, `SubscriptionGroupConfig`, `GroupRetryPolicy`, `SubscriptionGroupWrapper`.
"""

import msgspec

from sprocket.remoting.bodies.topic import DataVersion


class ExponentialRetryPolicy(msgspec.Struct, rename="camel"):
    """Delay grows by a factor; ms."""

    initial: int = 5_000
    max: int = 7_200_000
    multiplier: int = 2


_SECOND_MS, _MINUTE_MS, _HOUR_MS = 1_000, 60_000, 3_600_000
# 1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h
_DELAYS_MS = (
    *(seconds * _SECOND_MS for seconds in (1, 5, 10, 30)),
    *(minutes * _MINUTE_MS for minutes in (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 20, 30)),
    *(hours * _HOUR_MS for hours in (1, 2)),
)


class CustomizedRetryPolicy(msgspec.Struct, rename="camel"):
    """Delays given one by one, by default those of messageDelayLevel; ms."""

    next: tuple[int, ...] = _DELAYS_MS


class GroupRetryPolicy(msgspec.Struct, rename="camel"):
    """Delay before a message that was not consumed is redelivered."""

    type: str = "CUSTOMIZED"
    exponential_retry_policy: ExponentialRetryPolicy | None = None
    customized_retry_policy: CustomizedRetryPolicy | None = None


class SimpleSubscriptionData(msgspec.Struct, rename="camel"):
    """One subscription of a group, as configured."""

    topic: str | None = None
    expression_type: str | None = None
    expression: str | None = None
    version: int = 0


class SubscriptionGroupConfig(msgspec.Struct, rename="camel"):
    """One consumer group on one broker."""

    group_name: str
    consume_enable: bool = True
    consume_from_min_enable: bool = True
    consume_broadcast_enable: bool = True
    consume_message_orderly: bool = False
    retry_queue_nums: int = 1
    retry_max_times: int = 16
    group_retry_policy: GroupRetryPolicy = msgspec.field(default_factory=GroupRetryPolicy)
    broker_id: int = 0
    which_broker_when_consume_slowly: int = 1
    notify_consumer_ids_changed_enable: bool = True
    group_sys_flag: int = 0
    consume_timeout_minute: int = 15
    subscription_data_set: tuple[SimpleSubscriptionData, ...] | None = None
    attributes: dict[str, str] = {}


class SubscriptionGroupTable(msgspec.Struct, rename="camel"):
    """Answer to GET_ALL_SUBSCRIPTIONGROUP_CONFIG, and the content of subscriptionGroup.json."""

    subscription_group_table: dict[str, SubscriptionGroupConfig] = {}
    forbidden_table: dict[str, dict[str, int]] = {}
    data_version: DataVersion = msgspec.field(default_factory=DataVersion)


class GroupList(msgspec.Struct, rename="camel"):
    """Names of groups."""

    group_list: list[str] = []


class SubscriptionGroupList(msgspec.Struct, rename="camel"):
    """Body of UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST."""

    group_config_list: list[SubscriptionGroupConfig] = []


class DeleteSubscriptionGroupListRequestBody(msgspec.Struct, rename="camel"):
    """Body of DELETE_SUBSCRIPTION_GROUP_LIST."""

    group_name_list: list[str] = []
    clean_offset: bool = False


class GroupForbidden(msgspec.Struct, rename="camel"):
    """Answer to UPDATE_AND_GET_GROUP_FORBIDDEN."""

    topic: str
    group: str
    readable: bool
