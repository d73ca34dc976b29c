"""Columns of the data source: names, Arrow types, and the error for an unknown one."""

from collections.abc import Collection, Sequence
from difflib import get_close_matches
from typing import Final

import pyarrow as pa

from sprocket.common.errors import ConfigError

TIMESTAMP: Final = pa.timestamp("us", tz="UTC")

# First the default columns, in the order of `load(...)`; then those that are read on request only.
COLUMN_TYPES: Final[dict[str, pa.DataType]] = {
    "topic": pa.string(),
    "queueId": pa.int32(),
    "queueOffset": pa.int64(),
    "physicalOffset": pa.int64(),
    "bornTimestamp": TIMESTAMP,  # producer's clock; null outside the years 1970 to 9999
    "storeTimestamp": TIMESTAMP,  # broker's clock
    "tags": pa.string(),
    "keys": pa.string(),
    "body": pa.binary(),
    # On request:
    "brokerName": pa.string(),
    "properties": pa.map_(pa.string(), pa.string()),
    "msgId": pa.string(),  # UNIQ_KEY of the producer, else the offset message id
    "bodyString": pa.string(),  # UTF-8; invalid bytes become U+FFFD
    "compression": pa.string(),  # zlib, lz4, zstd; null for a plain body
    "bodySize": pa.int32(),  # bytes as stored
    "storeSize": pa.int32(),  # bytes of the whole record
    "bodyCRC": pa.int32(),
    "flag": pa.int32(),
    "sysFlag": pa.int32(),
    "bornHost": pa.string(),  # address:port, an IPv6 address in brackets
    "storeHost": pa.string(),
    "reconsumeTimes": pa.int32(),
    "preparedTransactionOffset": pa.int64(),
    "realTopic": pa.string(),  # destination of a waiting message (delayed, timed, half); else its topic
    "realQueueId": pa.int32(),
}
DEFAULT_COLUMNS: Final = tuple(COLUMN_TYPES)[:9]
_BY_LOWER_CASE: Final = {name.lower(): name for name in COLUMN_TYPES}


def column_type(name: str) -> pa.DataType:
    """Return the type of a column; a name that is not in `COLUMN_TYPES` is that of the corrupt column."""
    return COLUMN_TYPES.get(name, pa.string())


def column_names(requested: Sequence[str], corrupt_column: str | None = None) -> list[str]:
    """Return `requested` in the source's own spelling.  Raises ConfigError for an unknown or repeated column.

    `corrupt_column` is the name of an additional column with texts about damage.
    """
    names: list[str] = []
    for name in requested:
        known = _BY_LOWER_CASE.get(name.lower())
        if known is None and corrupt_column is not None and name.lower() == corrupt_column.lower():
            known = corrupt_column
        if known is None:
            raise ConfigError(f"unknown column {name!r}{nearest(name, COLUMN_TYPES)}; known: {', '.join(COLUMN_TYPES)}")
        if known in names:
            raise ConfigError(f"column {known!r} is requested twice")
        names.append(known)
    return names


def nearest(name: str, known: Collection[str]) -> str:
    """Return ``; did you mean 'x'?`` with the known name nearest to `name`, "" if none is near."""
    spelling = {candidate.lower(): candidate for candidate in known}
    match = get_close_matches(name.lower(), spelling, n=1, cutoff=0.5)
    return f"; did you mean {spelling[match[0]]!r}?" if match else ""
