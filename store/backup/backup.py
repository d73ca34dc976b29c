"""One backup: copies what is new in a store, which may be in use, and makes it valid with one rename.

The order of the steps is the promise.  Offset tables are read, then the log's end is fixed, then definitions are read.
Segments and tables are written to new files and synced, the records in them checked.  Then the manifest is replaced.
Only after that are files removed that no manifest names any more.  A crash anywhere before the rename leaves the
previous backup as it was; a crash after it leaves the new one, and files that the next backup removes.
"""

import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sprocket.common.clock import Clock
from sprocket.common.errors import StoreError
from sprocket.common.failpoints import failpoint
from sprocket.common.files.regular_file import open_regular
from store.backup.compacted_files import CompactedFiles
from store.backup.copied_file import (
    Progress,
    copy_file,
    make_directories,
    require_space,
    sha256_of,
    sync_folders,
    write_file,
)
from store.backup.log_end import check_records, confirm_mark, open_segment, verified_end
from store.backup.manifest import FORMAT, MANIFEST, Manifest, Part, load, save
from store.backup.tables import definition_tables, offset_tables
from store.disk.store_lock import StoreLock, take_lock
from store.inspection.file_sequence import FileSequence, PartFile
from store.inspection.file_view import is_locked
from store.retention.leases import Leases

LOCK: Final = "backup.lock"
_COMMIT_LOG: Final = "commitlog"
_LEASE_MS: Final = 3_600_000
# A broker under load writes its mark every second, an idle one every 10 s.
_MARK_WAIT_S: Final = 20.0
_MARK_PAUSE_S: Final = 0.1
# The stores are taken as the same if the first segment that both have begins with these same bytes.
_HEAD_BYTES: Final = 4096
_SEGMENT_COPIED: Final = failpoint("backup.segment_copied")
_TABLES_COPIED: Final = failpoint("backup.tables_copied")
_BEFORE_MANIFEST: Final = failpoint("backup.before_manifest")
_AFTER_MANIFEST: Final = failpoint("backup.after_manifest")


@dataclass(frozen=True, slots=True)
class BackupReport:
    """Result: the new manifest, and how much of it was copied."""

    manifest: Manifest
    copied_segments: int
    copied_bytes: int


class Backup:
    """Backup of the store at `root` in the folder `target`, which is a backup already, or is empty, or does not exist.

    `commit_log` is the folder of the log if it is not in the store's root; `segment_bytes` the size of a segment,
    which the files show if there are at least two.  `sleep` waits for a number of seconds.
    """

    def __init__(
        self,
        root: Path,
        target: Path,
        clock: Clock,
        sleep: Callable[[float], None],
        *,
        commit_log: Path | None = None,
        segment_bytes: int | None = None,
        allow_shorter: bool = False,
        progress: Progress = lambda size_bytes: None,
    ) -> None:
        self._root = root.absolute()
        self._target = target.absolute()
        self._clock = clock
        self._sleep = sleep
        self._commit_log = commit_log or root / _COMMIT_LOG
        self._segment_bytes = segment_bytes
        self._allow_shorter = allow_shorter
        self._progress = progress
        self._written: list[Path] = []

    def run(self) -> BackupReport:
        """Make the backup.

        Raises `StoreError` that says what was refused: `root` is no store, `target` holds something else or the backup
        of another store, space is missing, or the log is damaged.  The previous backup is then still valid.
        """
        self._check_places()
        try:
            make_directories(self._target)
            lock = take_lock(self._target / LOCK)
            if lock is None:
                raise StoreError(f"{self._target}: another backup writes to this folder: wait until it has ended")
            return self._locked(lock)
        except OSError as error:
            raise StoreError(f"{error.filename or self._target}: {error.strerror or error}") from error

    def _locked(self, lock: StoreLock) -> BackupReport:
        try:
            previous = load(self._target)
            self._remove_unnamed(previous)
            if not is_locked(self._root / "lock"):
                return self._copied(previous)
            # The lease keeps the cleaner of the broker from removing segments meanwhile.
            name = "backup-" + hashlib.sha256(os.fsencode(self._target)).hexdigest()[:8]
            leases = Leases(self._root, clock=self._clock)
            leases.acquire(name, str(self._target), 0, _LEASE_MS)
            try:
                return self._copied(previous, lambda: leases.acquire(name, str(self._target), 0, _LEASE_MS))
            finally:
                leases.release(name, str(self._target))
        finally:
            lock.release()

    def _copied(self, previous: Manifest | None, keep_lease: Callable[[], object] = lambda: None) -> BackupReport:
        number = 1 if previous is None else previous.number + 1
        tables = offset_tables(self._root)
        compacted = CompactedFiles(
            self._root, self._target, number, [] if previous is None else previous.tables, self._progress
        )
        compacted_parts = compacted.copy()
        log, sources, end = self._fixed_log(self._clock.wall_ms())
        self._check_same(previous, log, end)
        tables |= definition_tables(self._root)
        kept = self._kept(previous, log, sources)
        sizes = {part.start: min(log.file_bytes, end - part.start) for part in sources}
        wanted = sum(size for start, size in sizes.items() if start not in kept)
        require_space(self._target, wanted + sum(map(len, tables.values())))
        segments = []
        for source in sources:
            found = kept.get(source.start)
            if found is None:
                keep_lease()
                found = self._copy_segment(source, sizes[source.start], log.file_bytes, number, previous)
            segments.append(found)
        manifest = Manifest(
            format=FORMAT, number=number, created_ms=self._clock.wall_ms(), log_start=log.first_offset, log_end=end,
            segment_bytes=log.file_bytes, segments=segments,
            tables=[
                *(self._copy_table(name, content, number) for name, content in sorted(tables.items())),
                *compacted_parts,
            ],
        )  # fmt: skip
        _TABLES_COPIED()
        sync_folders([*self._written, *compacted.written])
        _BEFORE_MANIFEST()
        save(self._target, manifest)
        _AFTER_MANIFEST()
        self._remove_unnamed(manifest)
        return BackupReport(manifest, len(sources) - len(kept), wanted)

    # What may be copied

    def _check_places(self) -> None:
        if not self._root.is_dir() or not self._commit_log.is_dir():
            raise StoreError(f"{self._root}: is no store directory: there is no commitlog/ in it")
        for inner, outer in ((self._target, self._root), (self._root, self._target)):
            if inner.resolve().is_relative_to(outer.resolve()):
                raise StoreError(f"{self._target}: lies in the store or holds it: name a folder outside {self._root}")
        if self._target.exists() and not self._target.is_dir():
            raise StoreError(f"{self._target}: is not a folder: name a new folder")
        names = {path.name for path in self._target.glob("*")} if self._target.exists() else set()
        if MANIFEST not in names and LOCK not in names and names:
            raise StoreError(f"{self._target}: is neither empty nor a backup: name a new folder")

    def _fixed_log(self, tables_read_ms: int) -> tuple[FileSequence, list[PartFile], int]:
        """Return the log, its segments with records, and the end to copy up to."""
        limit = self._confirmed(tables_read_ms)
        log = FileSequence(self._commit_log, self._segment_bytes)
        last = open_segment(log)
        if last is None:
            return log, [], log.first_offset
        if missing := log.missing():
            raise StoreError(f"{log.path_at(missing[0])}: this segment is missing; see what sprocket store check says")
        if limit is not None:
            last = next((part for part in reversed(log.parts) if part.start <= min(limit, last.start)), log.parts[0])
        end = verified_end(log, last, limit)
        return log, [part for part in log.parts if part.start < end], end

    def _confirmed(self, tables_read_ms: int) -> int | None:
        """Return the confirm offset, not older than the tables; None if nothing limits it."""
        deadline = self._clock.monotonic() + _MARK_WAIT_S
        while (mark := confirm_mark(self._root)) is not None:
            if mark.written_ms > tables_read_ms:
                return mark.offset
            if self._clock.monotonic() >= deadline:
                raise StoreError(
                    f"{self._root}: the broker has not noted for {_MARK_WAIT_S:.0f} s up to where its log is confirmed:"
                    " see whether it is stuck, then run the backup again"
                )
            self._sleep(_MARK_PAUSE_S)
        return None

    def _check_same(self, previous: Manifest | None, log: FileSequence, end: int) -> None:
        """Raise `StoreError` unless the previous backup is one of this store."""
        if previous is None or not previous.segments:
            return
        text = f"{self._target}: is the backup of another store: "
        if log.file_bytes and previous.segment_bytes != log.file_bytes:
            raise StoreError(f"{text}its segments have {previous.segment_bytes} bytes; name a new folder")
        here = {part.start: part for part in log.parts}
        common = next((part for part in previous.segments if part.start in here), None)
        if common is None:
            raise StoreError(f"{text}it shares no segment with {self._root}; name a new folder")
        size = min(_HEAD_BYTES, common.size_bytes)
        with os.fdopen(open_regular(self._target / common.file), "rb") as file:
            kept = file.read(size)
        if kept != bytes(log.view(here[common.start]).data[:size]):
            raise StoreError(f"{text}{common.name} begins with other bytes; name a new folder")
        if end < previous.log_end and not self._allow_shorter:
            raise StoreError(
                f"{self._root}: its log ends at {end}, but the backup has it up to {previous.log_end}: the store has "
                "lost records. Name a new folder, or cut the backup with --allow-shorter"
            )

    def _kept(self, previous: Manifest | None, log: FileSequence, sources: list[PartFile]) -> dict[int, Part]:
        """Return the sealed segments that the previous backup has as they are now, by start."""
        kept: dict[int, Part] = {}
        had = {} if previous is None else {part.start: part for part in previous.segments}
        for source in sources:
            part = had.get(source.start)
            if part is None or part.size_bytes != log.file_bytes or not self._is_whole(part):
                continue
            modified_ns = source.path.stat().st_mtime_ns
            if modified_ns != part.modified_ns:
                if sha256_of(source.path, lambda size_bytes: None) != part.sha256:
                    continue
                part = Part(part.name, part.file, part.size_bytes, part.sha256, part.start, modified_ns)
            kept[source.start] = part
        return kept

    def _is_whole(self, part: Part) -> bool:
        path = self._target / part.file
        return path.is_file() and path.stat().st_size == part.size_bytes

    # What is written and removed

    def _copy_segment(
        self, source: PartFile, size_bytes: int, segment_bytes: int, number: int, previous: Manifest | None
    ) -> Part:
        name = f"{_COMMIT_LOG}/{source.path.name}"
        taken = set() if previous is None else {part.file for part in previous.parts}
        is_sealed = size_bytes == segment_bytes
        file = name if is_sealed and name not in taken else f"{name}.{number}"
        modified_ns = source.path.stat().st_mtime_ns if is_sealed else 0
        path = self._target / file
        digest = copy_file(source.path, path, size_bytes, self._progress)
        self._written.append(path)
        check_records(path, source.start, segment_bytes, size_bytes)
        _SEGMENT_COPIED()
        return Part(name, file, size_bytes, digest, source.start, modified_ns)

    def _copy_table(self, name: str, content: bytes, number: int) -> Part:
        file = f"tables.{number}/{name}"
        digest = write_file(self._target / file, content, 0o600)
        self._written.append(self._target / file)
        return Part(name, file, len(content), digest)

    def _remove_unnamed(self, manifest: Manifest | None) -> None:
        named = {MANIFEST, LOCK} | (set() if manifest is None else {part.file for part in manifest.parts})
        for path in sorted(self._target.rglob("*"), reverse=True):
            if path.is_dir() and not path.is_symlink():
                if not any(path.iterdir()):
                    path.rmdir()
            elif path.relative_to(self._target).as_posix() not in named:
                path.unlink()
