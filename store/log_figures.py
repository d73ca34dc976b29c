"""Figures of the log and the disk, under RocketMQ's names.

A file of its own: `MessageStore` itself has no figures, and is long enough.
Source: RocketMQ 5.3.3, `DefaultMessageStore.getRuntimeInfo`.
"""

from sprocket.common.figures import Declared, Figure, FigureFamily
from store.config.store_config import StoreConfig
from store.disk.disk import Disk
from store.log.commit_log import CommitLog


def log_figures(log: CommitLog, disk: Disk, config: StoreConfig) -> list[Declared]:
    """Return the figures of `log` and of the disk that holds it."""
    path = config.commit_log_path
    return [
        Figure("commitLogMinOffset", "offset at which the CommitLog begins", lambda: log.min_offset),
        Figure("commitLogMaxOffset", "offset at which the CommitLog ends", lambda: log.wrote_offset),
        Figure("commitLogDiskRatio", "used share of the CommitLog's disk, 0 to 1", lambda: disk.used_ratio(path)),
        FigureFamily(
            "commitLogDiskRatio_<path>",
            "used share of the disk of a CommitLog folder, 0 to 1",
            lambda: {path: disk.used_ratio(path)},
        ),
        Figure(
            "consumeQueueDiskRatio",
            "used share of the disk that holds storePathRootDir, 0 to 1",
            lambda: disk.used_ratio(config.store_path_root_dir),
        ),
        Figure("earliestMessageTimeStamp", "store time of the oldest message, ms since 1970", log.first_store_time),
    ]
