"""Remembers directories whose names are in the page cache alone, until a sync of what holds them."""

import threading
from pathlib import Path


class NewDirectories:
    """Which directories hold another one that is new and not durable yet.  In any thread."""

    def __init__(self) -> None:
        # How many directories were made before the newest one of each.
        self._holders: dict[Path, int] = {}
        self._made = 0
        self._lock = threading.Lock()

    def make(self, directory: Path) -> None:
        """Make `directory` and its parents.  Raises OSError; what was made until then is remembered as well."""
        with self._lock:
            self._made += 1
            for holder in holders_of_missing(directory):
                self._holders[holder] = self._made
            directory.mkdir(parents=True, exist_ok=True)

    def above(self, path: Path) -> dict[Path, int]:
        """The directories to sync for the name of `path` to be durable; give it to `synced` after that."""
        with self._lock:
            return {holder: self._holders[holder] for holder in path.parents if holder in self._holders}

    def synced(self, seen: dict[Path, int]) -> None:
        """These were synced: but for those that hold yet another one since `above` said so."""
        with self._lock:
            for holder, made in seen.items():
                if self._holders.get(holder) == made:
                    del self._holders[holder]


def holders_of_missing(directory: Path) -> list[Path]:
    """The directories that get a new entry when `directory` and its parents are made."""
    holders = []
    while not directory.exists():
        directory = directory.parent
        holders.append(directory)
    return holders
