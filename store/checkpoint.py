"""The checkpoint file: up to where log and queues were on the disk.  Source: RocketMQ 5.3.3, `StoreCheckpoint`."""

import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from store.disk import Disk
from store.layout import CHECKPOINT_BYTES

_FIELDS: Final = struct.Struct(">qqqqq")


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


def load_checkpoint(disk: Disk, path: Path) -> Checkpoint:
    """Read the checkpoint; one that is missing or too short promises nothing."""
    content = disk.read(path)
    if content is None or len(content) < _FIELDS.size:
        return Checkpoint()
    return Checkpoint(*_FIELDS.unpack_from(content))
