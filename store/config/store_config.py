"""Settings of the store: the supported keys of RocketMQ's `MessageStoreConfig`.

Each field's metadata holds its meaning and the allowed values; its name is RocketMQ's key.
Source of names and defaults: RocketMQ 5.3.3, `MessageStoreConfig`.
"""

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

from sprocket.common.config.setting_fields import bool_setting, int_setting, key_of, made_setting, setting, text_setting
from sprocket.common.errors import ConfigError
from sprocket.common.limits import MAX_MESSAGE_BYTES
from store.config.cold_config import ColdConfig
from store.config.compaction_config import CompactionConfig
from store.config.delay_levels import parse_delay_levels
from store.config.dledger_config import DLedgerConfig
from store.config.ha_config import HaConfig
from store.config.tier_config import TierConfig
from store.config.tier_read_config import TierReadConfig
from store.config.timer_config import TimerConfig
from store.layout import (
    BATCH_CONSUME_QUEUE_UNIT_BYTES,
    BATCH_CONSUME_QUEUE_UNITS_PER_FILE,
    COMMIT_LOG_FILE_BYTES,
    CONSUME_QUEUE_ENTRIES_PER_FILE,
    CONSUME_QUEUE_UNIT_BYTES,
    INDEX_SLOTS_PER_FILE,
    INDEX_UNITS_PER_FILE,
    index_file_bytes,
)

# `MessageExtEncoder`: a record may exceed maxMessageSize by this much, for everything except its body.
RECORD_OVERHEAD_BYTES: Final = 64 * 1024
DEFAULT_DELAY_LEVELS: Final = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
_MAX_FILE_BYTES: Final = (1 << 31) - 1


class FlushDiskType(StrEnum):
    """When the broker responds to a send: after the write, or after the write is on the disk."""

    ASYNC_FLUSH = "ASYNC_FLUSH"
    SYNC_FLUSH = "SYNC_FLUSH"


@dataclass(frozen=True)
class StoreConfig(TimerConfig, HaConfig, ColdConfig, CompactionConfig, DLedgerConfig, TierConfig, TierReadConfig):
    """Settings of the store, a part of the broker's configuration.  `check` runs when the store starts."""

    store_path_root_dir: Path = made_setting(
        lambda: Path.home() / "store", "Root directory of all files of the broker."
    )
    store_path_commit_log: Path | None = setting(
        None, "Directory of the CommitLog; storePathRootDir/commitlog if unset."
    )
    store_path_epoch_file: Path | None = setting(
        None,
        "Controller mode: file with the epochs of the log's masters; storePathRootDir/epochFileCheckpoint if unset.",
    )
    mapped_file_size_commit_log: int = int_setting(
        COMMIT_LOG_FILE_BYTES, "Size of one CommitLog file.", 4096, "bytes", (1 << 31) - 1
    )
    mapped_file_size_consume_queue: int = int_setting(
        CONSUME_QUEUE_ENTRIES_PER_FILE * CONSUME_QUEUE_UNIT_BYTES,
        "Size of one ConsumeQueue file; rounded up to whole entries of 20 bytes.",
        CONSUME_QUEUE_UNIT_BYTES,
        "bytes",
        (1 << 31) - 1,
    )
    mapped_file_size_batch_consume_queue: int = int_setting(
        BATCH_CONSUME_QUEUE_UNITS_PER_FILE * BATCH_CONSUME_QUEUE_UNIT_BYTES,
        "Size of one file of a Batch ConsumeQueue; rounded up to whole units of 46 bytes.",
        BATCH_CONSUME_QUEUE_UNIT_BYTES,
        "bytes",
        (1 << 31) - 1,
        key="mapperFileSizeBatchConsumeQueue",
    )
    flush_disk_type: FlushDiskType = setting(
        FlushDiskType.ASYNC_FLUSH,
        "ASYNC_FLUSH responds to a send after the write; SYNC_FLUSH after the write is on the disk.",
        allowed=tuple(FlushDiskType),
    )
    warm_mapped_file_enable: bool = bool_setting(
        False,
        "Fill the next CommitLog file with zeros before it is used: shorter syncs, but twice the bytes written.",
        mutable=True,
        key="warmMapedFileEnable",
    )
    flush_least_pages_when_warm_mapped_file: int = int_setting(
        4096,
        "With warmMapedFileEnable: sync the file after each this many pages of zeros.",
        1,
        "pages",
        mutable=True,
        key="flushLeastPagesWhenWarmMapedFile",
    )
    flush_interval_commit_log: int = int_setting(
        500, "ASYNC_FLUSH: interval between flushes of the CommitLog.", 1, "ms", mutable=True
    )
    flush_commit_log_least_pages: int = int_setting(
        4, "ASYNC_FLUSH: flush only if at least this many pages of 4 KiB are unflushed.", 0, "pages", mutable=True
    )
    flush_commit_log_thorough_interval: int = int_setting(
        10_000, "ASYNC_FLUSH: flush at this interval, however few pages are unflushed.", 1, "ms", mutable=True
    )
    flush_interval_consume_queue: int = int_setting(
        1_000, "Interval between flushes of ConsumeQueues.", 1, "ms", mutable=True
    )
    flush_consume_queue_least_pages: int = int_setting(
        2, "Flush a ConsumeQueue only if at least this many of its pages are unflushed.", 0, "pages", mutable=True
    )
    flush_consume_queue_thorough_interval: int = int_setting(
        60_000, "Interval at which every ConsumeQueue is flushed and the checkpoint is written.", 1, "ms", mutable=True
    )
    max_message_size: int = int_setting(MAX_MESSAGE_BYTES, "Largest body of a message.", 1, "bytes", mutable=True)
    sync_flush_timeout: int = int_setting(
        5_000, "SYNC_FLUSH: a send that waits longer gets the response FLUSH_DISK_TIMEOUT.", 1, "ms", mutable=True
    )
    check_crc_on_recover: bool = bool_setting(
        True, "Recovery checks the CRC of each body before it accepts a record.", key="checkCRCOnRecover"
    )
    enabled_append_prop_crc: bool = bool_setting(
        True,
        "Each record ends with the property __CRC32#, a CRC of all bytes before that property.",
        mutable=True,
        key="enabledAppendPropCRC",
    )
    force_verify_prop_crc: bool = bool_setting(
        False,
        "A record without the property __CRC32# counts as damaged when its CRC is checked.",
        mutable=True,
        key="forceVerifyPropCRC",
    )
    max_filter_message_size: int = int_setting(
        16_000, "Maximum bytes of a ConsumeQueue that one pull may search.", 20, "bytes", mutable=True
    )
    max_transfer_bytes_on_message_in_memory: int = int_setting(
        256 * 1024, "Maximum bytes of one pull near the log's end.", 1, "bytes", mutable=True
    )
    max_transfer_count_on_message_in_memory: int = int_setting(
        32, "Maximum messages of one pull near the log's end.", 1, mutable=True
    )
    max_transfer_bytes_on_message_in_disk: int = int_setting(
        64 * 1024, "Maximum bytes of one pull far behind the log's end.", 1, "bytes", mutable=True
    )
    max_transfer_count_on_message_in_disk: int = int_setting(
        8, "Maximum messages of one pull far behind the log's end.", 1, mutable=True
    )
    max_consume_queue_scan: int = int_setting(
        20_000,
        "With estimateAccumulation: max entries of a queue that are looked at to estimate a lag.",
        1,
        maximum=10_000_000,
        mutable=True,
    )
    sample_count_threshold: int = int_setting(
        5_000,
        "With estimateAccumulation: number of wanted messages after which the rest of a lag is estimated.",
        1,
        mutable=True,
    )
    access_message_in_memory_max_ratio: int = int_setting(
        40,
        "Messages no further behind the log's end than this share of physical memory count as in memory.",
        0,
        "percent",
        100,
        mutable=True,
    )
    message_index_enable: bool = bool_setting(
        True, "Index messages by key and unique key; if false, new messages are not indexed."
    )
    message_index_safe: bool = bool_setting(
        False, "Wait at the start until the index covers the log; if false, catch up while serving."
    )
    max_hash_slot_num: int = int_setting(
        INDEX_SLOTS_PER_FILE, "Hash slots of one index file; a change rebuilds the index.", 1
    )
    max_index_num: int = int_setting(
        INDEX_UNITS_PER_FILE, "Entries of one index file, plus 1; a change rebuilds the index.", 2
    )
    max_msgs_num_batch: int = int_setting(64, "Maximum messages that one query by key finds.", 1, mutable=True)
    default_query_max_num: int = int_setting(
        32, "Maximum messages that a query by unique key finds, whatever the client asks for.", 1, mutable=True
    )
    message_delay_level: str = text_setting(
        DEFAULT_DELAY_LEVELS, "Delay of each level, from level 1 on; units s, m, h, d."
    )
    file_reserved_time: int = int_setting(
        72, "CommitLog files whose last message is older expire.", 0, "hours", mutable=True
    )
    delete_when: str = text_setting(
        "04", "Hours of the day, separated by ;, in which expired files are removed.", mutable=True
    )
    disk_max_used_space_ratio: int = int_setting(
        75,
        "If more of the disk is used, expired files are removed at any hour; at least 10.",
        0,
        "percent",
        100,
        mutable=True,
    )
    disk_space_clean_forcibly_ratio: int = int_setting(
        85,
        "If more of the disk is used, the oldest files are removed whatever their age; at least 30.",
        0,
        "percent",
        100,
        mutable=True,
    )
    disk_space_warning_level_ratio: int = int_setting(
        90,
        "If more of the disk is used, sends are refused; at least 35.  100 never refuses.",
        0,
        "percent",
        100,
        mutable=True,
    )
    clean_file_forcibly_enable: bool = bool_setting(
        True, "Whether diskSpaceCleanForciblyRatio removes files.", mutable=True
    )
    clean_resource_interval: int = int_setting(
        10_000, "Interval between checks whether files must be removed.", 1, "ms", mutable=True
    )
    delete_file_batch_max: int = int_setting(10, "Maximum CommitLog files removed per check.", 1, mutable=True)
    delete_commit_log_files_interval: int = int_setting(
        100, "Minimum time between removals of two CommitLog files.", 0, "ms", mutable=True
    )
    delete_consume_queue_files_interval: int = int_setting(
        100, "Minimum time between removals of two ConsumeQueue files.", 0, "ms", mutable=True
    )
    destroy_maped_file_interval_forcibly: int = int_setting(
        120_000,
        "While a reader still holds the space of a removed file, wait this long before removing more to free space.",
        0,
        "ms",
        mutable=True,
    )
    redelete_hanged_file_interval: int = int_setting(
        120_000, "Retry the removal of a file after this time.", 0, "ms", mutable=True
    )
    max_lease_time: int = int_setting(
        86_400_000, "A lease on files with a later deadline is ignored.", 0, "ms", mutable=True
    )
    max_unflushed_bytes: int = int_setting(
        2 << 30,
        "While more of the CommitLog is unflushed, sends are refused with SYSTEM_BUSY.",
        1 << 20,
        "bytes",
        mutable=True,
    )
    max_flush_time: int = int_setting(
        30_000,
        "While one flush of the CommitLog takes longer, sends are refused with SYSTEM_BUSY.",
        1,
        "ms",
        mutable=True,
    )
    max_waiting_bytes: int = int_setting(
        256 << 20,
        "While messages that wait for a flush or for slaves hold more memory, sends are refused with SYSTEM_BUSY.",
        1 << 20,
        "bytes",
        mutable=True,
    )
    os_page_cache_busy_time_out_mills: int = int_setting(
        1_000,
        "After a write to the CommitLog that took longer, sends are refused for a moment with SYSTEM_BUSY.",
        1,
        "ms",
        mutable=True,
    )

    enable_lmq: bool = bool_setting(
        False, "Names that begin with %LMQ% are light topics and groups, which need not be created."
    )
    enable_multi_dispatch: bool = bool_setting(
        False, "With enableLmq: a message also enters the light queues that its property INNER_MULTI_DISPATCH names."
    )
    max_lmq_consume_queue_num: int = int_setting(
        20_000, "Maximum light queues; beyond it, messages for new ones are refused.", 1, mutable=True
    )

    @property
    def commit_log_path(self) -> Path:
        """Directory of the CommitLog."""
        return self.store_path_commit_log or self.store_path_root_dir / "commitlog"

    @property
    def epoch_file_path(self) -> Path:
        """File with the epochs of the log's masters."""
        return self.store_path_epoch_file or self.store_path_root_dir / "epochFileCheckpoint"

    @property
    def consume_queue_path(self) -> Path:
        """Directory of all ConsumeQueues."""
        return self.store_path_root_dir / "consumequeue"

    @property
    def index_path(self) -> Path:
        """Directory of the index files."""
        return self.store_path_root_dir / "index"

    @property
    def warm_bytes(self) -> int:
        """Bytes of zeros written to the next CommitLog file between two syncs; 0: no warming."""
        return self.flush_least_pages_when_warm_mapped_file * 4096 if self.warm_mapped_file_enable else 0

    @property
    def batch_consume_queue_path(self) -> Path:
        """Directory of the Batch ConsumeQueues."""
        return self.store_path_root_dir / "batchconsumequeue"

    @property
    def batch_consume_queue_file_bytes(self) -> int:
        """`mapped_file_size_batch_consume_queue` rounded up to whole units."""
        unit = BATCH_CONSUME_QUEUE_UNIT_BYTES
        return -(-self.mapped_file_size_batch_consume_queue // unit) * unit

    @property
    def consume_queue_file_bytes(self) -> int:
        """`mapped_file_size_consume_queue` rounded up to whole entries, as RocketMQ rounds it."""
        unit = CONSUME_QUEUE_UNIT_BYTES
        return -(-self.mapped_file_size_consume_queue // unit) * unit

    @property
    def max_record_bytes(self) -> int:
        """Maximum size of a record: by maxMessageSize, and by a CommitLog file with room for a blank."""
        return min(self.max_message_size + RECORD_OVERHEAD_BYTES, self.mapped_file_size_commit_log - 8)

    def check(self) -> None:
        """Raise `ConfigError` that names the first key whose value is out of bounds."""
        for name, declared in self.__dataclass_fields__.items():
            value = getattr(self, name)
            minimum, maximum = declared.metadata.get("minimum"), declared.metadata.get("maximum")
            if (minimum is not None and value < minimum) or (maximum is not None and value > maximum):
                raise ConfigError(f"{key_of(declared)}={value}: allowed are {minimum} to {maximum or 'any'}")
            allowed = declared.metadata.get("allowed")
            if allowed is not None and value not in allowed:
                raise ConfigError(f"{key_of(declared)}={value}: allowed are {', '.join(allowed)}")
        parse_delay_levels(self.message_delay_level)
        delete_hours(self.delete_when)
        delete_hours(self.timer_check_metrics_when, "timerCheckMetricsWhen")
        if index_file_bytes(self.max_hash_slot_num, self.max_index_num) > _MAX_FILE_BYTES:
            raise ConfigError("maxHashSlotNum and maxIndexNum: an index file may have at most 2147483647 bytes")


def delete_hours(text: str, key: str = "deleteWhen") -> frozenset[int]:
    """Return the hours of the day in `text`, the value of `key`: ``04`` or ``04;16``.

    Raises `ConfigError`.  Source: RocketMQ 5.3.3, `UtilAll.isItTimeToDo`.
    """
    hours = [word.strip() for word in text.split(";")]
    if not all(word.isascii() and word.isdigit() and int(word) < 24 for word in hours):
        raise ConfigError(f"{key}={text}: allowed are hours from 00 to 23, several separated by ;")
    return frozenset(map(int, hours))
