"""Figures of a broker that belong to none of its parts.

Source of the names: RocketMQ 5.3.3, `AdminBrokerProcessor.prepareRuntimeInfo`.
"""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Final

import sprocket
from broker.config.live_config import LiveConfig
from sprocket.common.figures import Declared, Figure
from sprocket.engine.choice import engine_of
from sprocket.remoting.command import VERSION
from sprocket.remoting.version_names import version_text
from store.message_store import MessageStore

# Name of `sprocket.remoting.command.VERSION`, which clusterList shows.
_VERSION_NAME: Final = version_text(VERSION)
# (total, free) bytes of the file system that holds a path.
DiskSpace = Callable[[Path], tuple[int, int]]
_PREFIXES: Final = "KMGTPE"
# These classes have no queues, so no sizes and capacities: a request is served in the turn of the loop that reads it.
# All three values are reported nevertheless, because monitors such as rocketmq-exporter fail without them.
_NO_QUEUES: Final = ("send", "pull", "litePull", "query", "ack")
_NO_QUEUE: Final = "0: requests wait in no queue"


def disk_space(path: Path) -> tuple[int, int]:
    """Return total and free bytes; zeros if the path does not exist."""
    try:
        usage = shutil.disk_usage(path)
    except OSError:
        return 0, 0
    return usage.total, usage.free


def broker_figures(config: LiveConfig, store: MessageStore, space: DiskSpace = disk_space) -> list[Declared]:
    """Return the figures."""

    def capacity() -> str:
        total, free = space(config.store.store_path_root_dir)
        return f"Total : {readable(total)}, Free : {readable(free)}."

    return [
        Figure("brokerActive", "whether the broker runs", lambda: True),
        Figure("brokerVersionDesc", "version of RocketMQ whose protocol the broker speaks", lambda: _VERSION_NAME),
        Figure("brokerVersion", "version of RocketMQ whose protocol the broker speaks, as a number", lambda: VERSION),
        Figure("sprocketVersion", "version of Sprocket", lambda: sprocket.__version__),
        Figure("sprocketEngine", "engine in use: native (compiled) or python", lambda: engine_of("broker").name),
        Figure("dispatchBehindBytes", "0: queues are written with the log", lambda: 0),
        Figure(
            "startAcceptSendRequestTimeStamp",
            "value of the configuration key, ms since 1970",
            lambda: config.broker.start_accept_send_request_time_stamp,
        ),
        Figure("remainTransientStoreBufferNumbs", "0: there is no pool of buffers", lambda: 0),
        Figure(
            "remainHowManyDataToFlush",
            "part of the CommitLog that is not flushed",
            lambda: readable(store.wrote_offset - store.flushed_offset),
        ),
        Figure("commitLogDirCapacity", "size and free space of the disk that holds storePathRootDir", capacity),
        *(
            Figure(f"{traffic}ThreadPoolQueue{value}", _NO_QUEUE, lambda: 0)
            for traffic in _NO_QUEUES
            for value in ("Size", "Capacity", "HeadWaitTimeMills")
        ),
        Figure("EndTransactionQueueSize", _NO_QUEUE, lambda: 0),
        Figure("EndTransactionThreadPoolQueueCapacity", _NO_QUEUE, lambda: 0),
    ]


def readable(size_bytes: int) -> str:
    """Return a size as in ``1.5 GiB``.  Source: RocketMQ 5.3.3, `MixAll.humanReadableByteCount`."""
    if size_bytes < 1024:
        return f"{size_bytes:.0f} B"
    power = 1
    while size_bytes >= 1024 ** (power + 1) and power < len(_PREFIXES):
        power += 1
    return f"{size_bytes / 1024**power:.1f} {_PREFIXES[power - 1]}iB"
