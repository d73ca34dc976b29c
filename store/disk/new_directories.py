"""Register of directories whose names are only in the page cache, until their parents are synced."""

import threading
from pathlib import Path


class NewDirectories:
    """Table of directories with a new entry that is not durable yet.  For any thread."""

    def __init__(self) -> None:
        # Directory -> number of the `make` call that last added an entry to it.
        self._holders: dict[Path, int] = {}
        self._made = 0
        self._lock = threading.Lock()

    def make(self, directory: Path) -> None:
        """Create `directory` and its parents.  Raises OSError; directories created before the error are registered."""
        with self._lock:
            self._made += 1
            for holder in holders_of_missing(directory):
                self._holders[holder] = self._made
            directory.mkdir(parents=True, exist_ok=True)

    def above(self, path: Path) -> dict[Path, int]:
        """Return the directories whose sync makes the name of `path` durable.  Pass the result to `synced` then."""
        with self._lock:
            return {holder: self._holders[holder] for holder in path.parents if holder in self._holders}

    def synced(self, seen: dict[Path, int]) -> None:
        """Remove synced directories from the table, except those that got another entry since `above`."""
        with self._lock:
            for holder, made in seen.items():
                if self._holders.get(holder) == made:
                    del self._holders[holder]


def holders_of_missing(directory: Path) -> list[Path]:
    """Return the directories that get a new entry when `directory` and its parents are created."""
    holders = []
    while not directory.exists():
        directory = directory.parent
        holders.append(directory)
    return holders
