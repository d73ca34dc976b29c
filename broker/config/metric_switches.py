"""Switches of groups of metrics: what is off is neither exported nor computed.

Source of names, defaults and groups: RocketMQ 5.5.1, `BrokerConfig`, `BrokerMetricsManager`.
"""

from dataclasses import dataclass
from typing import Final

from sprocket.common.config.setting_fields import bool_setting

# Beginnings of the names in each group, with Sprocket's own metrics that come from the same work.
_STATS: Final = (
    "rocketmq_processor_watermark", "rocketmq_broker_permission", "rocketmq_topic_number",
    "rocketmq_consumer_group_number", "rocketmq_lmq_number",
)  # fmt: skip
_REQUESTS: Final = (
    "rocketmq_messages_", "rocketmq_throughput_", "rocketmq_message_size", "rocketmq_topic_create_",
    "rocketmq_consumer_group_create_",
)  # fmt: skip
_CONNECTIONS: Final = ("rocketmq_producer_connections", "rocketmq_consumer_connections")
_LAG_AND_DLQ: Final = (
    "rocketmq_consumer_lag_", "rocketmq_consumer_inflight_", "rocketmq_consumer_queueing_", "rocketmq_consumer_ready_",
    "rocketmq_send_to_dlq_", "sprocket_consumer_",
)  # fmt: skip
_TRANSACTIONS: Final = (
    "rocketmq_commit_messages_", "rocketmq_rollback_messages_", "rocketmq_finish_message_", "rocketmq_half_",
)  # fmt: skip
_REMOTING: Final = ("rocketmq_rpc_latency",)
_STORE: Final = (
    "rocketmq_storage_", "rocketmq_timer_", "rocketmq_timing_", "rocketmq_delay_message_", "sprocket_store_",
)  # fmt: skip
_POP: Final = ("rocketmq_pop_",)


@dataclass(frozen=True)
class MetricSwitches:
    """Settings in `BrokerConfig` that leave groups of metrics out of exports; they are read at the start."""

    enable_stats_metrics: bool = bool_setting(
        True, "Export the numbers of topics, groups and light queues, and the permission."
    )
    enable_request_metrics: bool = bool_setting(
        True, "Export messages and bytes in and out, sizes, and the times of new topics and groups."
    )
    enable_connection_metrics: bool = bool_setting(True, "Export connections of producers and consumers.")
    enable_lag_and_dlq_metrics: bool = bool_setting(True, "Export the lag of consumer groups, and dead letters.")
    enable_transaction_metrics: bool = bool_setting(True, "Export half messages, and the ends of transactions.")
    enable_remoting_metrics: bool = bool_setting(True, "Export the latency of requests.")
    enable_message_store_metrics: bool = bool_setting(True, "Export the metrics of the store and of delayed messages.")
    enable_pop_metrics: bool = bool_setting(True, "Export the metrics of pops and of their revive.")

    def exports(self, name: str) -> bool:
        """Return whether the metric `name` is exported; one that is in no group always is."""
        switches = (
            (self.enable_stats_metrics, _STATS),
            (self.enable_request_metrics, _REQUESTS),
            (self.enable_connection_metrics, _CONNECTIONS),
            (self.enable_lag_and_dlq_metrics, _LAG_AND_DLQ),
            (self.enable_transaction_metrics, _TRANSACTIONS),
            (self.enable_remoting_metrics, _REMOTING),
            (self.enable_message_store_metrics, _STORE),
            (self.enable_pop_metrics, _POP),
        )
        return all(is_on or not name.startswith(beginnings) for is_on, beginnings in switches)
