"""Settings of compacted topics.

`store.config.store_config.StoreConfig` inherits these keys.
Source of names and defaults: RocketMQ 5.3.3, `MessageStoreConfig`.
"""

from dataclasses import dataclass

from sprocket.common.config.setting_fields import bool_setting, int_setting


@dataclass(frozen=True, kw_only=True)
class CompactionConfig:
    """Settings of a store for topics with cleanup.policy=COMPACTION."""

    enable_compaction: bool = bool_setting(
        True, "Compact topics with cleanup.policy=COMPACTION; if false, they are kept and read as any other topic."
    )
    compaction_schedule_internal: int = int_setting(
        15 * 60 * 1000,
        "Interval between rounds of compaction. A round takes in the CommitLog files that are full.",
        100,
        "ms",
        mutable=True,
    )
    max_offset_map_size: int = int_setting(
        100 * 1024 * 1024,
        "Memory for the keys of one compaction, 256 bytes for each. With more keys it takes in less at a time.",
        4096,
        "bytes",
        mutable=True,
    )
    compaction_delete_retention: int = int_setting(
        24 * 3600 * 1000,
        "How long a message without a body, which deletes its key, is kept for readers. Not in RocketMQ.",
        0,
        "ms",
        mutable=True,
    )
    compaction_max_bytes_per_second: int = int_setting(
        32 * 1024 * 1024, "How fast compaction reads at most. Not in RocketMQ.", 1024, "bytes", mutable=True
    )
