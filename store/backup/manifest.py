"""Manifest of a backup: which files belong to it, and their checksums.  It is written last and replaced as a whole.

A backup is a folder::

    manifest.json
    commitlog/<segment>            a sealed segment, whole
    commitlog/<segment>.<number>   the open segment up to the backup's end, or a segment that had to be copied again
    tables.<number>/...            tables of the store, as they were at backup `number`

A file that the manifest does not name is no part of the backup.  No file that it names is ever changed: a backup writes
new files, then the new manifest, then removes files that are not named any more.
"""

import hashlib
from pathlib import Path
from typing import Final

import msgspec

from sprocket.common.errors import StoreError
from sprocket.common.files.atomic_file import replace_file
from store.inspection.file_view import read_small

MANIFEST: Final = "manifest.json"
FORMAT: Final = 1


class BackupDamaged(StoreError):
    """A file of a backup is not what was written there."""


class Part(msgspec.Struct, frozen=True):
    """One file.  `file` is its path in the backup, `name` its path in the store.

    `start` is the physical offset of a segment's first byte; -1 for a table.  `modified_ns` is the time of the source's
    last change when it was copied, for sealed segments: if it is still the same, the source is not read again.
    """

    name: str
    file: str
    size_bytes: int
    sha256: str
    start: int = -1
    modified_ns: int = 0


class Manifest(msgspec.Struct, frozen=True):
    """Content of a backup.  The log is [`log_start`, `log_end`) in physical offsets; the last record ends at its end.

    `segments` are in order; only the last may be shorter than `segment_bytes`.
    """

    format: int
    number: int
    created_ms: int
    log_start: int
    log_end: int
    segment_bytes: int
    segments: list[Part]
    tables: list[Part]

    @property
    def parts(self) -> list[Part]:
        """All files."""
        return [*self.segments, *self.tables]


class _Sealed(msgspec.Struct):
    sha256: str
    backup: msgspec.Raw


def encode(manifest: Manifest) -> bytes:
    """Return the file's bytes: the document, and the SHA-256 of its bytes."""
    content = msgspec.json.encode(manifest)
    return msgspec.json.encode(_Sealed(hashlib.sha256(content).hexdigest(), msgspec.Raw(content))) + b"\n"


def decode(content: bytes) -> Manifest | str:
    """Return the manifest, or a few words on why it cannot be trusted.  Never raises on any bytes."""
    try:
        sealed = msgspec.json.decode(content, type=_Sealed)
        manifest = msgspec.json.decode(bytes(sealed.backup), type=Manifest)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return f"it is not the manifest of a backup: {error}"
    if encode(manifest) != content:
        return "it does not match its checksum"
    if manifest.format != FORMAT:
        return f"its format is {manifest.format}; this version reads {FORMAT}"
    for part in manifest.parts:
        for path in (part.name, part.file):
            if path.startswith("/") or not path or ".." in Path(path).parts or part.size_bytes < 0:
                return f"it names {path!r}"
    return manifest


def load(backup: Path) -> Manifest | None:
    """Return the manifest of the backup in folder `backup`; None without one.  Raises `BackupDamaged`."""
    path = backup / MANIFEST
    content = read_small(path)
    if content is None:
        return None
    found = decode(content)
    if isinstance(found, str):
        raise BackupDamaged(f"{path}: {found}: the backup is damaged; use another one")
    return found


def require(backup: Path) -> Manifest:
    """Return the manifest of `backup`.  Raises `StoreError` if the folder is no backup or `BackupDamaged`."""
    manifest = load(backup)
    if manifest is None:
        raise StoreError(f"{backup}: is no store backup: there is no {MANIFEST} in it")
    return manifest


def save(backup: Path, manifest: Manifest) -> None:
    """Replace the manifest durably.  Raises OSError."""
    path = backup / MANIFEST
    replace_file(path, encode(manifest), 0o600)
    # The files that the previous one names are about to go.
    path.with_name(path.name + ".bak").unlink(missing_ok=True)
