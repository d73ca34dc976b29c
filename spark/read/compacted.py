"""Messages of compacted topics that the log of a store no longer has: those that its compacted queues keep.

A record keeps its offsets there.  Only records before the begin of the log are read, so no message comes twice.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from spark.decode.decoder import CHUNK_ROWS, DecodeOptions
from spark.files.store_directory import StoreDirectory
from spark.rows.chunk_rows import Rows, chunk_rows
from spark.rows.filters import RowFilter
from spark.wire.records import PulledChunk, PulledSegment
from sprocket.common.errors import StoreError
from store.compaction.manifest import Part, compacted_parts
from store.layout import BATCH_CONSUME_QUEUE_DTYPE

_WINDOW_BYTES: Final = 8 * 1024 * 1024


@dataclass(frozen=True)
class CompactedPart:
    """A part of a compacted queue in `directory`; its records before the physical offset `log_begin` are to be read."""

    broker_name: str
    directory: Path
    part: Part
    log_begin: int


def parts_before(store: StoreDirectory, log_begin: int, rows: RowFilter) -> list[CompactedPart]:
    """Return the parts of the queues that `rows` may want.  Raises `StoreError` for a damaged manifest."""
    return [
        CompactedPart(store.broker_name, directory, part, log_begin)
        for (topic, _), (directory, parts) in compacted_parts(store.root).items()
        for part in parts
        if part.records and rows.may_have(topic)
    ]


def read_compacted(
    one: CompactedPart, columns: Sequence[str], rows: RowFilter, options: DecodeOptions
) -> Iterator[Rows]:
    """Yield (one array per column, number of rows) for each chunk with rows that pass `rows`.

    Raises `StoreError` if the part is damaged, or if a compaction has removed it since the query was planned.
    """
    log, queue = (one.directory / name for name in one.part.file_names)
    try:
        with queue.open("rb") as units, log.open("rb") as records:
            sizes = np.fromfile(units, BATCH_CONSUME_QUEUE_DTYPE, one.part.records)["size"].astype(np.int64)
            if sizes.size < one.part.records or sizes.min() <= 0 or int(sizes.sum()) != one.part.log_bytes:
                raise StoreError(f"{queue}: is damaged: run sprocket store check")
            for size_bytes in _windows(sizes):
                content = records.read(size_bytes)
                if len(content) < size_bytes:
                    raise StoreError(f"{log}: is damaged: run sprocket store check")
                segment = PulledSegment(str(log), [content])
                positions = segment.positions[segment.physical_offsets < one.log_begin]
                for at in range(0, positions.size, CHUNK_ROWS):
                    chunk = PulledChunk(segment, positions[at : at + CHUNK_ROWS], options)
                    yield from chunk_rows(chunk, columns, rows, options)
    except FileNotFoundError as error:
        raise StoreError(f"{log}: the topic was compacted again while it was read: run the query again") from error


def _windows(sizes: "np.ndarray[tuple[int], np.dtype[np.int64]]") -> Iterator[int]:
    """Yield the bytes of records to read at once."""
    ends = np.cumsum(sizes)
    begin = 0
    while begin < int(ends[-1]):
        first = int(np.searchsorted(ends, begin, "right"))
        last = max(first, int(np.searchsorted(ends, begin + _WINDOW_BYTES, "right")) - 1)
        yield int(ends[last]) - begin
        begin = int(ends[last])
