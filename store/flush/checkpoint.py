"""The checkpoint file: up to where log and queues were on the disk.  Source: RocketMQ 5.3.3, `StoreCheckpoint`."""

import logging
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from store.disk.disk import Disk
from store.layout import CHECKPOINT_BYTES

_log = logging.getLogger(__name__)
_FIELDS: Final = struct.Struct(">qqqqq")
_TIMES: Final = 3
_DAY_MS: Final = 86_400_000


@dataclass(slots=True)
class Checkpoint:
    """Fields as on disk.  Times are store timestamps in ms; 0 means none.

    `confirm_phy_offset`: log and ConsumeQueues are on the disk for all records before it.  RocketMQ sets
    it to the last record when it starts and then flushes both, so its value keeps that promise too.
    """

    physic_msg_timestamp: int = 0
    logics_msg_timestamp: int = 0
    index_msg_timestamp: int = 0
    master_flushed_offset: int = 0
    confirm_phy_offset: int = 0

    def encode(self) -> bytes:
        """The file's content, one page."""
        fields = _FIELDS.pack(
            self.physic_msg_timestamp,
            self.logics_msg_timestamp,
            self.index_msg_timestamp,
            self.master_flushed_offset,
            self.confirm_phy_offset,
        )
        return fields.ljust(CHECKPOINT_BYTES, b"\0")

    def min_timestamp(self) -> int:
        """Time before which all records are in log and queues on the disk, with 3 s for clocks' unrest."""
        return max(0, min(self.physic_msg_timestamp, self.logics_msg_timestamp) - 3000)


def load_checkpoint(disk: Disk, path: Path, now_ms: int | None = None) -> Checkpoint:
    """Read the checkpoint; one that is missing promises nothing.

    Nor does one that cannot be right: too short, a negative number, a time more than a day after `now_ms`.  That is
    said once in the log.  Raises `DiskFailed`.
    """
    content = disk.read(path)
    if content is None:
        return Checkpoint()
    fields = _FIELDS.unpack_from(content) if len(content) >= _FIELDS.size else ()
    reason = _implausible(len(content), fields, now_ms)
    if reason is not None:
        _log.warning("file=%s action=not-trusted reason=%r", path, reason)
        return Checkpoint()
    return Checkpoint(*fields)


def _implausible(size_bytes: int, fields: tuple[int, ...], now_ms: int | None) -> str | None:
    """Why the fields cannot be right."""
    if not fields:
        return f"has {size_bytes} bytes, needs {_FIELDS.size}"
    if min(fields) < 0:
        return f"a field is negative: {fields}"
    if now_ms is not None and max(fields[:_TIMES]) > now_ms + _DAY_MS:
        return f"a time is in the future: {fields}"
    return None
