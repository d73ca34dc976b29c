"""Figures of GET_BROKER_RUNTIME_INFO about the log and the disk, under RocketMQ's names.

Source: RocketMQ 5.3.3, `DefaultMessageStore.getRuntimeInfo`.
"""

from store.config.store_config import StoreConfig
from store.disk.disk import Disk
from store.log.commit_log import CommitLog


def log_figures(log: CommitLog, disk: Disk, config: StoreConfig) -> dict[str, str]:
    """Return the log's first and last offset, and the used share of its disk, 0 to 1."""
    ratio = str(disk.used_ratio(config.commit_log_path))
    return {
        "commitLogMinOffset": str(log.min_offset),
        "commitLogMaxOffset": str(log.wrote_offset),
        "commitLogDiskRatio": ratio,
        f"commitLogDiskRatio_{config.commit_log_path}": ratio,
        "consumeQueueDiskRatio": str(disk.used_ratio(config.store_path_root_dir)),
        "earliestMessageTimeStamp": str(log.first_store_time()),
    }
