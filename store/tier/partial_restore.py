"""Mark of a store that was restored from an archive without some messages: its log is not byte for byte the broker's.

Fillers are where these messages were.  A master may go on with such a log.  A slave may not: it would be a copy of its
master that lacks messages, and nothing in the replication protocol compares what both have.
"""

from pathlib import Path
from typing import Final

import msgspec

from sprocket.common.errors import StoreError
from sprocket.common.files.regular_file import read_regular
from store.backup.copied_file import write_file

NAME: Final = "restoredpartly"
_MAX_BYTES: Final = 1 << 20


class PartialRestore(msgspec.Struct, frozen=True):
    """Before the physical offset `end` fillers are in the log; `lacks` says for what."""

    end: int
    lacks: list[str]


def write_mark(root: Path, found: PartialRestore) -> Path:
    """Write the mark durably, and return its path."""
    write_file(root / NAME, msgspec.json.encode(found), 0o644)
    return root / NAME


def refuse_slave(root: Path, log_begin: int) -> None:
    """Raise `StoreError` if the log of the store at `root`, which begins at `log_begin`, has such fillers."""
    try:
        found = msgspec.json.decode(read_regular(root / NAME, _MAX_BYTES), type=PartialRestore)
    except FileNotFoundError:
        return
    except (OSError, msgspec.DecodeError) as error:
        raise StoreError(f"{root / NAME}: cannot be read: {error}") from error
    if log_begin < found.end:
        raise StoreError(
            f"{root}: cannot be a slave's store: the archive that it was restored from lacked "
            f"{'; '.join(found.lacks)} (before offset {found.end}). Give the slave an empty storePathRootDir: it "
            "copies the log from its master. Or start this store as a master"
        )
