"""Settings of reads from the object store.  `store.config.store_config.StoreConfig` inherits these keys.

Source of names and defaults: RocketMQ 5.3.3, `tieredstore.MessageStoreConfig`.  tieredStoreReadCacheSize stands for
readAheadCacheSizeThresholdRate, a share of Java's heap; keys without a counterpart there say so.
"""

from dataclasses import dataclass
from enum import StrEnum

from sprocket.common.config.setting_fields import bool_setting, int_setting, setting

_MIB = 1024 * 1024


class TieredStorageLevel(StrEnum):
    """Which reads of messages in the object store are served from there."""

    DISABLE = "DISABLE"
    NOT_IN_DISK = "NOT_IN_DISK"
    NOT_IN_MEM = "NOT_IN_MEM"
    FORCE = "FORCE"


@dataclass(frozen=True, kw_only=True)
class TierReadConfig:
    """Settings of a store for messages that it reads from the object store."""

    tiered_storage_level: TieredStorageLevel = setting(
        TieredStorageLevel.NOT_IN_DISK,
        "Which messages are read from the object store: none (DISABLE), those that are no longer on the disk "
        "(NOT_IN_DISK), also those that are probably not in memory (NOT_IN_MEM), all that are there (FORCE).",
        mutable=True,
    )
    read_ahead_cache_enable: bool = bool_setting(
        True, "Load what a group will probably read next from the object store.", mutable=True
    )
    read_ahead_message_size_threshold: int = int_setting(
        16 * _MIB, "How much is loaded from the object store for one group at a time.", _MIB, "bytes", mutable=True
    )
    tiered_store_read_cache_size: int = int_setting(
        256 * _MIB,
        "Memory for what was read from the object store, and at most as much for what is on its way to all groups "
        "together (RocketMQ has no such key).",
        16 * _MIB,
        "bytes",
        mutable=True,
    )
    tiered_store_max_reads_per_group: int = int_setting(
        16,
        "Requests to the object store that one group may have under way (RocketMQ has no such key).",
        1,
        "requests",
        mutable=True,
    )
    tiered_store_max_reads: int = int_setting(
        64,
        "Requests to the object store that all groups together may have under way (RocketMQ has no such key).",
        1,
        "requests",
        mutable=True,
    )
    tiered_store_read_timeout: int = int_setting(
        10_000,
        "A read that the object store has not answered after this time is answered with: try again (RocketMQ has "
        "no such key).",
        100,
        "ms",
        mutable=True,
    )
