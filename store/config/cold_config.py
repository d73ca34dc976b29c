"""Settings for reads of old messages: read-ahead, and which messages count as cold.

`store.config.store_config.StoreConfig` inherits these keys.
Source of names and defaults: RocketMQ 5.3.3, `MessageStoreConfig`.
"""

from dataclasses import dataclass

from sprocket.common.config.setting_fields import bool_setting, int_setting


@dataclass(frozen=True, kw_only=True)
class ColdConfig:
    """Settings of a store for messages that memory no longer holds."""

    data_read_ahead_enable: bool = bool_setting(
        True,
        "The system reads ahead in CommitLog files (MADV_NORMAL); if false it does not (MADV_RANDOM).",
        mutable=True,
    )
    cold_data_flow_control_enable: bool = bool_setting(
        False, "Limit how fast each consumer group pulls old messages.", mutable=True
    )
    access_message_in_memory_hot_ratio: int = int_setting(
        26,
        "Messages further behind the log's end than this share of physical memory are cold.",
        0,
        "percent",
        100,
        mutable=True,
    )
    cold_data_scan_enable: bool = bool_setting(
        False, "With coldDataFlowControlEnable: a message whose page is in the page cache is not cold.", mutable=True
    )
    timer_cold_data_check_interval_ms: int = int_setting(
        60_000, "With coldDataScanEnable: interval between scans of the page cache.", 1_000, "ms", mutable=True
    )
    sample_steps: int = int_setting(
        32, "With coldDataScanEnable: one page in this many is checked.", 1, "pages", mutable=True
    )
