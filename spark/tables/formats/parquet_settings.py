"""How the Parquet files of a table are written: compression, dictionaries and statistics of each column."""

from enum import StrEnum
from functools import lru_cache
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

# Hardly two values are equal: a dictionary of them would be built in vain.
_UNIQUE: Final = frozenset(
    {"queueOffset", "physicalOffset", "bornTimestamp", "storeTimestamp", "keys", "msgId", "body"}
)


class Compression(StrEnum):
    """Of the pages of a file.  What reads Parquet reads these three."""

    ZSTD = "zstd"  # level 1: the smallest
    SNAPPY = "snappy"
    NONE = "none"


@lru_cache(8)
def writer_settings(schema: pa.Schema, compression: Compression) -> dict[str, Any]:
    """Arguments of `pyarrow.parquet.ParquetWriter` for files of `schema`.

    They name leaves: ``lines`` means nothing where ``lines.list.element.count`` is what is stored.
    """
    leaves = _leaves(schema)
    settings: dict[str, Any] = {
        "compression": compression.value,
        "use_dictionary": [each for each in leaves if each not in _UNIQUE],
        "write_statistics": [each for each in leaves if each != "body"],
    }
    if compression is Compression.ZSTD:
        settings["compression_level"] = 1
    return settings


def _leaves(schema: pa.Schema) -> list[str]:
    """The columns as Parquet names them, of a file that holds nothing."""
    empty = pa.BufferOutputStream()
    with pq.ParquetWriter(empty, schema):
        pass
    columns = pq.read_metadata(pa.BufferReader(empty.getvalue())).schema
    return [columns.column(index).path for index in range(len(columns))]
