"""Copies of compacted queues for a backup: only they have the last messages whose segments are removed.

A broker may compact meanwhile, and then the files of a part go: the queue is then copied again, as it is now.
"""

from pathlib import Path
from typing import Final

from sprocket.common.errors import StoreError
from store.backup.copied_file import Progress, copy_file, write_file
from store.backup.manifest import Part
from store.compaction import manifest as compacted
from store.disk.disk import RealDisk

_TRIES: Final = 5


class CompactedFiles:
    """Copier of the compacted queues of the store at `root` to the folder `target`, for the backup of this `number`.

    Files that `previous` has as they are now are not copied again.  `written` has the paths of new files.
    """

    def __init__(self, root: Path, target: Path, number: int, previous: list[Part], progress: Progress) -> None:
        self._root = root
        self._target = target
        self._number = number
        self._previous = {part.name: part for part in previous}
        self._progress = progress
        self.written: list[Path] = []

    def copy(self) -> list[Part]:
        """Return the files of all queues.  Call it before the end of the log is fixed: they must not be ahead of it.

        Raises `StoreError` and OSError.
        """
        found: list[Part] = []
        for directory, _ in compacted.compacted_parts(self._root).values():
            found += self._queue(directory)
        return found

    def _queue(self, directory: Path) -> list[Part]:
        for tries_left in reversed(range(_TRIES)):
            manifest = compacted.read_manifest(RealDisk(), directory)
            if not manifest.parts:
                return []
            try:
                parts = [
                    self._part(directory / name, size_bytes)
                    for part in manifest.parts
                    for name, size_bytes in zip(part.file_names, part.file_bytes, strict=True)
                ]
            except FileNotFoundError:
                if tries_left:
                    continue
                raise StoreError(f"{directory}: changes all the time: run the backup again") from None
            return [*parts, self._manifest(directory / compacted.MANIFEST, compacted.encode_manifest(manifest))]
        raise AssertionError("unreachable")

    def _part(self, path: Path, size_bytes: int) -> Part:
        name, modified_ns = self._name(path), path.stat().st_mtime_ns
        known = self._previous.get(name)
        if known is not None and (known.size_bytes, known.modified_ns) == (size_bytes, modified_ns):
            return known
        file = f"{compacted.DIRECTORY}.{self._number}/{name}"
        digest = copy_file(path, self._target / file, size_bytes, self._progress)
        self.written.append(self._target / file)
        return Part(name, file, size_bytes, digest, modified_ns=modified_ns)

    def _manifest(self, path: Path, content: bytes) -> Part:
        name = self._name(path)
        file = f"{compacted.DIRECTORY}.{self._number}/{name}"
        digest = write_file(self._target / file, content, 0o600)
        self.written.append(self._target / file)
        return Part(name, file, len(content), digest)

    def _name(self, path: Path) -> str:
        return path.relative_to(self._root).as_posix()
