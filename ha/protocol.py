"""The two messages between a slave and its master.

Slave to master: ``maxPhyOffset`` (8 bytes), the end of the slave's log; also its heartbeat.  Master to slave:
``fromPhyOffset`` (8), ``size`` (4), then that many bytes of the log.  Without any bytes it is the master's heartbeat.
All numbers are big-endian.
Source: RocketMQ 5.3.3, `DefaultHAConnection`, `DefaultHAClient`.
"""

import struct
from dataclasses import dataclass
from typing import Final

from ha.piece_reader import PieceReader
from sprocket.common.errors import ProtocolError

_REPORT: Final = struct.Struct(">q")
TRANSFER_HEAD: Final = struct.Struct(">qi")
# A master sends at most haTransferBatchSize at once, 32 KiB by default.  No master sends more than this.
MAX_TRANSFER_BYTES: Final = 64 * 1024 * 1024


def report(max_offset: int) -> bytes:
    """Return a slave's report that its log ends at `max_offset`."""
    return _REPORT.pack(max_offset)


def transfer_head(from_offset: int, size_bytes: int) -> bytes:
    """Return the head of `size_bytes` bytes of the log that begin at `from_offset`."""
    return TRANSFER_HEAD.pack(from_offset, size_bytes)


class ReportReader:
    """Reader of a slave's reports, however the bytes are split."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[int]:
        """Add `data` and return the reports that are complete.  Raises ProtocolError for an offset below 0."""
        if self._rest:
            data = self._rest + data
        end = len(data) - len(data) % _REPORT.size
        self._rest = data[end:]
        offsets = [offset for (offset,) in _REPORT.iter_unpack(data[:end])]
        if offsets and min(offsets) < 0:
            raise ProtocolError("ha_report", f"a slave reports the offset {min(offsets)}")
        return offsets


@dataclass(frozen=True, slots=True)
class Transfer:
    """A piece of the master's log, or its heartbeat when `content` is empty."""

    from_offset: int
    content: memoryview


class TransferReader(PieceReader[Transfer]):
    """Reader of a master's transfers.

    `feed` raises ProtocolError for a size or an offset below 0, and for a size above `MAX_TRANSFER_BYTES`.
    """

    def __init__(self) -> None:
        super().__init__(TRANSFER_HEAD.size)

    def _content_bytes(self, head: bytearray) -> int:
        return _head_at(head, 0)[1]

    def _cut(self, view: memoryview) -> tuple[list[Transfer], int]:
        transfers = []
        at, end = 0, len(view)
        while at + TRANSFER_HEAD.size <= end:
            from_offset, size_bytes = _head_at(view, at)
            stop = at + TRANSFER_HEAD.size + size_bytes
            if stop > end:
                break
            transfers.append(Transfer(from_offset, view[at + TRANSFER_HEAD.size : stop].toreadonly()))
            at = stop
        return transfers, at


def _head_at(content: memoryview | bytearray, at: int) -> tuple[int, int]:
    """Return offset and size of the transfer at `at`.  Raises ProtocolError."""
    from_offset, size_bytes = TRANSFER_HEAD.unpack_from(content, at)
    if from_offset < 0 or not 0 <= size_bytes <= MAX_TRANSFER_BYTES:
        raise ProtocolError("ha_transfer", f"a master sends {size_bytes} bytes from offset {from_offset}")
    return from_offset, size_bytes
