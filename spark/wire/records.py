"""Records of pull responses in the form of a segment, so that the decoder of segments reads them.

The decoder accepts a record only at its own physical offset.  In a response a record is elsewhere, so each gets its
place in the buffer as offset, and the true offsets are kept separately.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spark.decode.decoder import Chunk, DecodeOptions
from spark.files.segment import Positions, Segment
from sprocket.common.errors import CorruptRecord
from sprocket.remoting.message.record import MIN_RECORD_BYTES, SysFlag

_QUEUE_OFFSET_AT = 20
_PHYSICAL_OFFSET_AT = 28
_SYS_FLAG_AT = 36


class PulledSegment(Segment):
    """Records of several responses, one after the other, from the broker `peer`.

    Raises CorruptRecord if a response does not consist of whole records.
    """

    def __init__(self, peer: str, bodies: Sequence[bytes]) -> None:
        content = bytearray().join(bodies)
        self.path = Path(peer)
        self.start = 0
        self.size = self.file_end = len(content)
        self.positions = record_positions(content, [len(body) for body in bodies], peer)
        self.physical_offsets = _longs(content, _PHYSICAL_OFFSET_AT)[self.positions].astype(np.int64)
        self.queue_offsets = _longs(content, _QUEUE_OFFSET_AT)[self.positions].astype(np.int64)
        flags = np.ndarray((max(0, len(content) - _SYS_FLAG_AT - 3),), ">i4", content, _SYS_FLAG_AT, (1,))
        self.has_batches = bool((flags[self.positions] & SysFlag.INNER_BATCH).any())
        _longs(content, _PHYSICAL_OFFSET_AT)[self.positions] = self.positions
        self.data = cast(bytes, content)  # read like bytes from here on


class PulledChunk(Chunk):
    """Columns of the records of a `PulledSegment`."""

    # The CRC of a whole record covers its offset in the log, which is replaced here.
    has_seals = False

    def __init__(self, segment: PulledSegment, positions: Positions, options: DecodeOptions) -> None:
        self._pulled = segment
        super().__init__(segment, positions, options)

    def column(self, name: str) -> pa.Array:
        if name == "physicalOffset":
            return pa.array(self._physical_offsets(self.positions))
        return super().column(name)

    def _physical_offsets(self, positions: Positions) -> Positions:
        offsets: Positions = self._pulled.physical_offsets[np.searchsorted(self._pulled.positions, positions)]
        return offsets


def record_positions(content: bytearray, sizes: Sequence[int], peer: str) -> Positions:
    """Return the starts of records in responses of `sizes`, which follow each other in `content`.

    There is one cursor for each response; all advance by one record at a time.
    """
    ends = np.cumsum(np.array(sizes, np.int64))
    cursors = ends - np.array(sizes, np.int64)
    cursors, ends = cursors[cursors < ends], ends[cursors < ends]
    found: list[Positions] = []
    if cursors.size and len(content) >= MIN_RECORD_BYTES:
        lengths = np.ndarray((len(content) - 3,), ">u4", content, 0, (1,))
        while cursors.size:
            whole = cursors + MIN_RECORD_BYTES <= ends
            following = cursors + lengths[np.minimum(cursors, len(content) - 4)]
            whole &= (following - cursors >= MIN_RECORD_BYTES) & (following <= ends)
            if not whole.all():
                raise CorruptRecord(0, f"the answer of {peer} to a pull does not consist of whole records")
            found.append(cursors)
            left = following < ends
            cursors, ends = following[left], ends[left]
    elif cursors.size:
        raise CorruptRecord(0, f"the answer of {peer} to a pull does not consist of whole records")
    return np.sort(np.concatenate(found)) if found else np.empty(0, np.int64)


def _longs(content: bytearray, at: int) -> npt.NDArray[np.int64]:
    """Return the 8 bytes `at` bytes after each position, as big-endian integers."""
    return np.ndarray((max(0, len(content) - at - 7),), ">i8", content, at, (1,))
