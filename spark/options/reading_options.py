"""Options of reads for damage, transactions, CRC checks and leases."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from spark.decode.columns import COLUMN_TYPES
from spark.options.option_values import one_of, yes_or_no
from sprocket.common.errors import ConfigError

READING_OPTIONS: Final = (
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
class ReadingOptions:
    """Values of the options.

    `corrupt_column` is set with PERMISSIVE, `drop_malformed` with each mode that skips damage.
    """

    drop_malformed: bool = False
    corrupt_column: str | None = None
    read_uncommitted: bool = False
    check_crc: bool | None = None
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
