"""The checkpoint file: how far log and queues are on the disk.  Source: RocketMQ 5.3.3, `StoreCheckpoint`."""

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
    """Fields as on the disk.  Times are store timestamps in ms; 0 means none.

    `confirm_phy_offset`: log and ConsumeQueues are on the disk for all records before it.  RocketMQ sets it to the last
    record at a start and then flushes both, so this also holds for its value.
    """

    physic_msg_timestamp: int = 0
    logics_msg_timestamp: int = 0
    index_msg_timestamp: int = 0
    master_flushed_offset: int = 0
    confirm_phy_offset: int = 0

    def encode(self) -> bytes:
        """Return the file's content, one page."""
        fields = _FIELDS.pack(
            self.physic_msg_timestamp,
            self.logics_msg_timestamp,
            self.index_msg_timestamp,
            self.master_flushed_offset,
            self.confirm_phy_offset,
        )
        return fields.ljust(CHECKPOINT_BYTES, b"\0")

    def min_timestamp(self) -> int:
        """Return the time before which all records are on the disk, in log and queues; 3 s less for unsteady clocks."""
        return max(0, min(self.physic_msg_timestamp, self.logics_msg_timestamp) - 3000)


def load_checkpoint(disk: Disk, path: Path, now_ms: int | None = None) -> Checkpoint:
    """Read the checkpoint; all fields are 0 if the file is missing or implausible.

    Implausible is a file that is too short, or holds a negative number or a time more than a day after `now_ms`.  This
    is logged.  Raises `DiskFailed`.
    """
    content = disk.read(path)
    if content is None:
        return Checkpoint()
    fields = _FIELDS.unpack_from(content) if len(content) >= _FIELDS.size else ()
    reason = _implausible(len(content), fields, now_ms)
    if reason is not None:
        _log.warning("event=checkpoint_not_trusted file=%s reason=%r", path, reason)
        return Checkpoint()
    return Checkpoint(*fields)


def _implausible(size_bytes: int, fields: tuple[int, ...], now_ms: int | None) -> str | None:
    """Return why the fields are implausible; None if they are plausible."""
    if not fields:
        return f"has {size_bytes} bytes, needs {_FIELDS.size}"
    if min(fields) < 0:
        return f"a field is negative: {fields}"
    if now_ms is not None and max(fields[:_TIMES]) > now_ms + _DAY_MS:
        return f"a time is in the future: {fields}"
    return None
