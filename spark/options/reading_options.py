"""Options of reads for damage, transactions, compressed bodies, CRC checks and leases."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from spark.decode.columns import COLUMN_TYPES
from spark.decode.decoder import DecodeOptions
from spark.options.option_values import MAX_DIGITS, one_of, whole_number, yes_or_no
from sprocket.common.errors import ConfigError
from sprocket.common.limits import MAX_INFLATED_BYTES

READING_OPTIONS: Final = (
    "inflateBodies",  # true: compressed bodies are inflated
    "inflateMaxBytes",  # maximum size of an inflated body
    "mode",  # FAILFAST (default), DROPMALFORMED or PERMISSIVE
    "columnNameOfCorruptRecord",  # with PERMISSIVE: column with the text about damage
    "isolationLevel",  # read_committed (default) or read_uncommitted
    "checkCRC",  # true or false; default: true where bodies are read
    "leaseTime",  # ms; time of the lease on the segments of a query, which its tasks renew; 0: no lease
)
CORRUPT_COLUMN: Final = "_corrupt_record"
_MODES: Final = ("FAILFAST", "DROPMALFORMED", "PERMISSIVE")
_ISOLATION_LEVELS: Final = ("read_committed", "read_uncommitted")
_DAY_MS: Final = 24 * 3_600_000


@dataclass(frozen=True)
class ReadingOptions(DecodeOptions):
    """Values of the options, those of the decoder among them.

    `corrupt_column` is set with PERMISSIVE, `drop_malformed` with each mode that skips damage.
    """

    lease_ms: int = 600_000


def read_reading_options(given: Mapping[str, str]) -> ReadingOptions:
    """Return the options of `READING_OPTIONS` in `given`.  Raises ConfigError."""
    mode = one_of(given, "mode", _MODES)
    column = given.get("columnNameOfCorruptRecord", CORRUPT_COLUMN)
    if "columnNameOfCorruptRecord" in given and mode != "PERMISSIVE":
        raise ConfigError("option 'columnNameOfCorruptRecord' is for mode=PERMISSIVE")
    if not column or column.lower() in {name.lower() for name in COLUMN_TYPES}:
        raise ConfigError(f"option 'columnNameOfCorruptRecord': {column!r} is taken; choose a name of its own")
    return ReadingOptions(
        inflate_bodies=yes_or_no(given, "inflateBodies", False),
        inflate_max_bytes=whole_number(given, "inflateMaxBytes", MAX_INFLATED_BYTES, 1, MAX_DIGITS),
        drop_malformed=mode != "FAILFAST",
        corrupt_column=column if mode == "PERMISSIVE" else None,
        read_uncommitted=one_of(given, "isolationLevel", _ISOLATION_LEVELS) == "read_uncommitted",
        check_crc=yes_or_no(given, "checkCRC", True) if "checkCRC" in given else None,
        lease_ms=_lease(given.get("leaseTime", "600000")),
    )


def _lease(text: str) -> int:
    if not re.fullmatch(r"\d{1,18}", text) or int(text) > _DAY_MS:
        raise ConfigError(f"option 'leaseTime': {text!r} is not a number of milliseconds from 0 to {_DAY_MS}")
    return int(text)
