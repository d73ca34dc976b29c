"""Actions of a repair as data, written to the side folder before anything is changed.

A killed repair is finished by performing all its actions again: each may be repeated with the same result.  Undo goes
through them in reverse order and restores the copies.
"""

from typing import Final

import msgspec

from sprocket.common.errors import StoreError

JOURNAL_NAME: Final = "journal.json"
OPEN: Final = "open"
DONE: Final = "done"
UNDONE: Final = "undone"
_HOW_TO_UNDO: Final = "sprocket store repair DIR --undo THIS_FOLDER --yes"


class Write(msgspec.Struct, tag="write", tag_field="action", rename="camel", frozen=True):
    """Write `content` at `position` of a file; the old bytes are kept."""

    path: str
    position: int
    content: bytes
    reason: str
    kept: str = ""


class Fill(msgspec.Struct, tag="fill", tag_field="action", rename="camel", frozen=True):
    """Write filler records at `position`, `size_bytes` bytes of them; the old bytes are kept."""

    path: str
    position: int
    size_bytes: int
    physical_offset: int
    timestamp: int
    reason: str
    kept: str = ""


class Zero(msgspec.Struct, tag="zero", tag_field="action", rename="camel", frozen=True):
    """Write zeros at `position`, `size_bytes` of them; the old bytes are kept."""

    path: str
    position: int
    size_bytes: int
    reason: str
    kept: str = ""


class Resize(msgspec.Struct, tag="resize", tag_field="action", rename="camel", frozen=True):
    """Resize a file to `size_bytes` bytes: append zeros, or cut off the end, which is kept."""

    path: str
    size_bytes: int
    size_before: int
    reason: str
    kept: str = ""


class Create(msgspec.Struct, tag="create", tag_field="action", rename="camel", frozen=True):
    """Create a file of `size_bytes` bytes that begins with `content`."""

    path: str
    size_bytes: int
    content: bytes
    reason: str


class Move(msgspec.Struct, tag="move", tag_field="action", rename="camel", frozen=True):
    """Move a file or folder into the side folder, as `kept`."""

    path: str
    reason: str
    kept: str = ""


class Restore(msgspec.Struct, tag="restore", tag_field="action", rename="camel", frozen=True):
    """Copy `source` to `path`, whose old file was moved before."""

    path: str
    source: str
    reason: str


class RebuildQueues(msgspec.Struct, tag="rebuildQueues", tag_field="action", rename="camel", frozen=True):
    """Rebuild these queues, (topic, queue id), from the log.

    `blanks` are (topic, queue id, queue offset) of lost messages: their entries become blank.  Records at `skipped`,
    (physical offset, count) of runs, have no place in any queue.
    """

    queues: list[tuple[str, int]]
    file_bytes: int
    blanks: list[tuple[str, int, int]]
    skipped: list[tuple[int, int]]
    reason: str


class RebuildBatchQueues(msgspec.Struct, tag="rebuildBatchQueues", tag_field="action", rename="camel", frozen=True):
    """Rebuild these Batch ConsumeQueues, (topic, queue id), from the log."""

    queues: list[tuple[str, int]]
    file_bytes: int
    reason: str


class RebuildIndex(msgspec.Struct, tag="rebuildIndex", tag_field="action", rename="camel", frozen=True):
    """Rebuild all index files from the log."""

    slot_count: int
    capacity: int
    first_offset: int
    reason: str


Action = Write | Fill | Zero | Resize | Create | Move | Restore | RebuildQueues | RebuildBatchQueues | RebuildIndex


class Journal(msgspec.Struct, rename="camel"):
    """Journal of one repair."""

    started: str
    state: str
    log_directory: str
    segment_bytes: int
    delay_levels: str
    actions: list[Action]
    how_to_undo: str = _HOW_TO_UNDO


def encode(journal: Journal) -> bytes:
    """Return the journal as indented JSON."""
    return msgspec.json.format(msgspec.json.encode(journal), indent=2)


def decode(content: bytes, source: str) -> Journal:
    """Return the journal in `content`.  Raises `StoreError` if it is invalid."""
    try:
        return msgspec.json.decode(content, type=Journal)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise StoreError(f"{source}: is not a journal of a repair: {error}") from None


def describe(action: Action) -> str:
    """Return one line for people."""
    match action:
        case Write():
            what = f"write {len(action.content)} bytes at {action.position}"
        case Fill():
            what = f"fill {action.size_bytes} bytes at {action.position} with records that nobody reads"
        case Zero():
            what = f"zero {action.size_bytes} bytes at {action.position}"
        case Resize():
            what = f"resize from {action.size_before} to {action.size_bytes} bytes"
        case Create():
            what = f"create with {action.size_bytes} bytes"
        case Move():
            what = "move aside"
        case Restore():
            what = f"restore from {action.source}"
        case RebuildQueues() | RebuildBatchQueues():
            names = ", ".join(f"{topic}/{queue_id}" for topic, queue_id in action.queues[:5])
            more = f" and {len(action.queues) - 5} more" if len(action.queues) > 5 else ""
            folder = "consumequeue" if isinstance(action, RebuildQueues) else "batchconsumequeue"
            return f"{folder}: rebuild {names}{more} from the log: {action.reason}"
        case RebuildIndex():
            return f"index: rebuild from the log: {action.reason}"
    return f"{action.path}: {what}: {action.reason}"
