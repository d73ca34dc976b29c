"""Manifest of a compacted queue: which files of its directory count, and what they hold.

Directory: ``<root>/compacted/<topic>/<queueId>/``.  The manifest is a sealed file (`store.disk.sealed_file`) of JSON::

    {"parts": [{"name": "00000000000000000000-00000000000000000800", "firstOffset": 0, "endOffset": 800,
                "records": 12, "logBytes": 3210, "logEnd": 1073741824}]}

A part is two files, ``<name>.log`` with whole records of the CommitLog, as they were, and ``<name>.queue`` with a unit
of `BATCH_CONSUME_QUEUE_DTYPE` for each, as in RocketMQ's `SparseConsumeQueue`.  Both may be longer than their content.
Parts cover adjacent queue offsets.  Files that no manifest names are remains of an interrupted compaction.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from sprocket.common.errors import StoreError
from store.disk.disk import Disk, RealDisk
from store.disk.sealed_file import read_sealed, seal, write_sealed
from store.layout import BATCH_CONSUME_QUEUE_UNIT_BYTES, file_name

DIRECTORY: Final = "compacted"
MANIFEST: Final = "manifest"
LOG_SUFFIX: Final = ".log"
QUEUE_SUFFIX: Final = ".queue"
_KIND: Final = b"CMPT"


class Part(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """One part: the last messages of the keys among the queue offsets from `first_offset` to before `end_offset`.

    `records` are kept, in `log_bytes` bytes.  It was made from the CommitLog before physical offset `log_end`.
    """

    name: str
    first_offset: int
    end_offset: int
    records: int
    log_bytes: int
    log_end: int

    @property
    def file_names(self) -> tuple[str, str]:
        """Names of the file with records and of the file with units."""
        return self.name + LOG_SUFFIX, self.name + QUEUE_SUFFIX

    @property
    def file_bytes(self) -> tuple[int, int]:
        """Bytes of these files that count."""
        return self.log_bytes, self.records * BATCH_CONSUME_QUEUE_UNIT_BYTES


class Manifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Parts of one queue, oldest first."""

    parts: tuple[Part, ...] = ()

    @property
    def end_offset(self) -> int:
        """End of the queue offsets that compaction has taken in; 0 without parts."""
        return self.parts[-1].end_offset if self.parts else 0


def part_name(first_offset: int, end_offset: int) -> str:
    """Return the name of a part's files without their suffixes."""
    return f"{file_name(first_offset)}-{file_name(end_offset)}"


def read_manifest(disk: Disk, directory: Path) -> Manifest:
    """Return the manifest of a queue; an empty one if there is no file.

    Raises `StoreError` if the file is damaged, because the last messages of keys may be nowhere else.
    """
    path = directory / MANIFEST
    content = read_sealed(disk, path, _KIND)
    if content is None:
        return Manifest()
    try:
        manifest = msgspec.json.decode(content, type=Manifest) if isinstance(content, bytes) else content
    except msgspec.DecodeError as error:
        manifest = str(error)
    if isinstance(manifest, Manifest):
        damage = damage_of(manifest.parts)
        if not damage:
            return manifest
        manifest = damage
    raise StoreError(
        f"{path}: damaged: {manifest}. Restore {directory} from a backup or from another member of the broker's group; "
        "if you remove the directory, the messages in it are lost"
    )


def damage_of(parts: Sequence[Part]) -> str:
    """Return what is wrong with the parts of a queue; empty if nothing is."""
    end = None
    for part in parts:
        is_adjacent = end in (None, part.first_offset) and 0 <= part.first_offset < part.end_offset
        if not is_adjacent or min(part.records, part.log_bytes, part.log_end) < 0:
            return f"part {part.name[:64]!r} does not follow the part before it"
        if part.name != part_name(part.first_offset, part.end_offset):
            return f"part {part.name[:64]!r} has another name than its offsets say"
        end = part.end_offset
    return ""


def encode_manifest(manifest: Manifest) -> bytes:
    """Return the bytes of the manifest's file."""
    return seal(_KIND, msgspec.json.encode(manifest))


def write_manifest(disk: Disk, directory: Path, manifest: Manifest) -> None:
    """Replace the manifest durably: a crash leaves the old one or the new one.  Raises `DiskFull` or `DiskFailed`."""
    write_sealed(disk, directory / MANIFEST, _KIND, msgspec.json.encode(manifest))


def compacted_parts(root: Path) -> dict[tuple[str, int], tuple[Path, Sequence[Part]]]:
    """Return directory and parts of each compacted queue in the store at `root`, which a broker may use meanwhile.

    Raises `StoreError` if a manifest is damaged.
    """
    found: dict[tuple[str, int], tuple[Path, Sequence[Part]]] = {}
    for path in sorted((root / DIRECTORY).glob(f"*/*/{MANIFEST}")):
        topic, queue_id = path.parts[-3:-1]
        if queue_id.isascii() and queue_id.isdigit():
            parts = read_manifest(RealDisk(), path.parent).parts
            if parts:
                found[topic, int(queue_id)] = path.parent, parts
    return found
