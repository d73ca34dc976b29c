"""The two messages between a slave and its master.

Slave to master: ``maxPhyOffset`` (8 bytes), the end of the slave's log; also its heartbeat.  Master to slave:
``fromPhyOffset`` (8), ``size`` (4), then so many bytes of the log; without any it is the master's heartbeat.  All
big-endian.
Source: RocketMQ 5.3.3, `DefaultHAConnection`, `DefaultHAClient`.
"""

import struct
from dataclasses import dataclass
from typing import Final

from sprocket.common.errors import ProtocolError

_REPORT: Final = struct.Struct(">q")
TRANSFER_HEAD: Final = struct.Struct(">qi")
# A master sends at most haTransferBatchSize at once, 32 KiB unless configured; nobody sends more than this.
MAX_TRANSFER_BYTES: Final = 64 * 1024 * 1024


def report(max_offset: int) -> bytes:
    """What a slave tells: its log ends at `max_offset`."""
    return _REPORT.pack(max_offset)


def transfer_head(from_offset: int, size_bytes: int) -> bytes:
    """What stands in front of `size_bytes` bytes of the log that begin at `from_offset`."""
    return TRANSFER_HEAD.pack(from_offset, size_bytes)


class ReportReader:
    """Takes a slave's reports out of what comes from it, however that is split."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[int]:
        """The reports that are whole now.  Raises ProtocolError for an offset below 0."""
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


class TransferReader:
    """Takes a master's transfers out of what comes from it.

    A piece is handed out as soon as it is whole, without a copy if one read brought all of it: it is then a view of
    what was fed, and good as long as that.
    """

    def __init__(self) -> None:
        self._rest = bytearray()

    @property
    def pending_bytes(self) -> int:
        """Bytes of a transfer that is not whole yet."""
        return len(self._rest)

    def feed(self, data: bytes | memoryview) -> list[Transfer]:
        """The transfers that are whole now.

        Raises ProtocolError for a size or an offset below 0, and for a size above `MAX_TRANSFER_BYTES`.
        """
        view = memoryview(data)
        transfers: list[Transfer] = []
        if self._rest:
            view = view[self._complete(view) :]
            transfers, at = self._cut(memoryview(self._rest))
            if not at:
                return []
            # The views handed out keep the old bytes.
            self._rest = bytearray()
        more, at = self._cut(view)
        self._rest += view[at:]
        return transfers + more

    def _complete(self, view: memoryview) -> int:
        """Add to the transfer that has begun what it lacks, as far as it is there; how many bytes these are."""
        rest, used = self._rest, 0
        for _ in range(2):  # the head, and then the content whose size it says
            wanted = TRANSFER_HEAD.size
            if len(rest) >= wanted:
                wanted += _head_at(rest, 0)[1]
            part = view[used : used + wanted - len(rest)]
            rest += part
            used += len(part)
        return used

    @staticmethod
    def _cut(view: memoryview) -> tuple[list[Transfer], int]:
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
    """Offset and size of the transfer at `at`.  Raises ProtocolError."""
    from_offset, size_bytes = TRANSFER_HEAD.unpack_from(content, at)
    if from_offset < 0 or not 0 <= size_bytes <= MAX_TRANSFER_BYTES:
        raise ProtocolError("ha_transfer", f"a master sends {size_bytes} bytes from offset {from_offset}")
    return from_offset, size_bytes
