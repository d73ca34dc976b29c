"""Settings of lite topics.  Source of names and defaults: RocketMQ 5.5.1, `BrokerConfig`."""

from dataclasses import dataclass

from sprocket.common.config.setting_fields import bool_setting, int_setting


@dataclass(frozen=True)
class LiteSettings:
    """Settings in `BrokerConfig` of subscriptions to lite topics, and of the deletion of idle ones."""

    max_lite_subscription_count: int = int_setting(
        100_000, "Max subscriptions to lite topics; each lite topic of each client counts.", 0, mutable=True
    )
    max_client_event_count: int = int_setting(
        100,
        "Lite topics with messages that wait for one client at a time; the group attribute "
        "lite.sub.client.max.event.cnt overrides it.",
        1,
        mutable=True,
    )
    lite_event_check_interval: int = int_setting(
        10_000,
        "Interval at which lite topics that wait for a client that does not pop are given to others of its group.",
        1,
        "ms",
        mutable=True,
    )
    lite_subscription_check_interval: int = int_setting(
        120_000,
        "Interval at which clients without a recent LITE_SUBSCRIPTION_CTL lose their subscriptions.",
        1,
        "ms",
        mutable=True,
    )
    lite_subscription_check_timeout_mills: int = int_setting(
        180_000,
        "Max time without a LITE_SUBSCRIPTION_CTL after which a client's subscriptions to lite topics end.",
        1,
        "ms",
        mutable=True,
    )
    lite_ttl_check_interval: int = int_setting(
        120_000,
        "Interval at which idle lite topics are deleted, see the topic attribute lite.topic.expiration.",
        1,
        "ms",
        mutable=True,
    )
    min_lite_ttl: int = int_setting(
        900_000,
        "Lite topics are not deleted earlier than this after their last message, or after the start of the broker.",
        0,
        "ms",
        mutable=True,
        key="minLiteTTl",
    )
    lite_lag_count_metrics_enable: bool = bool_setting(
        False,
        "Export the lag of groups in the lite topics of a parent, as rocketmq_consumer_lag_messages and "
        "rocketmq_consumer_ready_messages.",
        mutable=True,
    )
    lite_lag_latency_metrics_enable: bool = bool_setting(
        False,
        "Export the age of the oldest message in lite topics that a group has not consumed, as "
        "rocketmq_consumer_lag_latency.",
        mutable=True,
    )
