"""What a disk holds, and what of it survives a loss of power.

A file's content survives by pages of 4 KiB: without a sync each page is, after a crash, what the last sync made durable
or what any later write made of it.  The file's length survives by itself: a prefix of its changes.  Names survive by
themselves too: of each directory's changes a prefix.  Nothing else is promised, so nothing else is modelled.
"""

import mmap
import random
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Final, TypeAlias

PAGE_BYTES: Final = 4096
SECTOR_BYTES: Final = 512
# Beyond this a buffer is mapped, so that pages nobody touches cost nothing.
_LARGE_BYTES: Final = 1 << 20
Buffer: TypeAlias = bytearray | mmap.mmap
Node: TypeAlias = "File | Directory"
Names: TypeAlias = "dict[str, File | Directory | None]"


class Survivors(Enum):
    """Which of what was not synced a crash leaves."""

    NONE = "none"
    ALL = "all"
    RANDOM = "random"
    NEWEST = "newest"
    OLDEST = "oldest"
    ALTERNATING = "alternating"
    # As random, and some pages are half old and half new, cut between two sectors.
    TORN = "torn"


@dataclass(frozen=True)
class Subset:
    """One outcome of a crash; the same one each time."""

    survivors: Survivors
    seed: int = 0


class File:
    """An inode: what every reader sees, and what is durable.

    ``base`` with ``synced`` pages laid over it and zeros behind it is durable, up to ``durable_size``.  ``dirty`` holds
    for each page its states since the last sync, ``resizes`` the lengths since then, both with the number of the
    operation that made them.
    """

    __slots__ = ("_base", "_buffer", "dirty", "durable_size", "number", "resizes", "size", "synced")

    def __init__(self, number: int) -> None:
        self.number = number
        self.size = self.durable_size = 0
        self.synced: dict[int, bytes] = {}
        self.dirty: dict[int, list[tuple[int, bytes]]] = {}
        self.resizes: list[tuple[int, int]] = []
        self._base = b""
        self._buffer: Buffer | None = None

    @property
    def buffer(self) -> Buffer:
        """The content as readers see it; made when it is first looked at."""
        if self._buffer is None:
            self._buffer = _filled(self.size, self._base, self.synced)
        return self._buffer

    def write(self, number: int, position: int, content: bytes | bytearray | memoryview) -> None:
        buffer, end = self.buffer, position + len(content)
        if end > self.size:
            self.resize(number, end)
            buffer = self.buffer
        buffer[position:end] = content
        for page in range(position // PAGE_BYTES, -(-end // PAGE_BYTES)):
            at = page * PAGE_BYTES
            self.dirty.setdefault(page, []).append((number, bytes(buffer[at : min(at + PAGE_BYTES, self.size)])))

    def resize(self, number: int, size: int) -> None:
        """ftruncate or fallocate.  A view shows zeros where the file was cut; it is stale if the file outgrows it."""
        buffer = self.buffer
        if size < self.size:
            buffer[size : self.size] = bytes(self.size - size)
        elif size > len(buffer):
            grown = _filled(size, b"", {})
            grown[: self.size] = buffer[: self.size]
            self._buffer = grown
        self.size = size
        self.resizes.append((number, size))

    def sync(self) -> None:
        """Everything is durable."""
        if self._is_shrunk():
            self._base, self.synced = bytes(self.buffer[: self.size]), {}
        else:
            self.synced.update((page, states[-1][1]) for page, states in self.dirty.items())
        self.durable_size = self.size
        self.dirty.clear()
        self.resizes.clear()

    def lose(self, rng: random.Random) -> None:
        """A sync failed: some dirty pages are durable, and the system has forgotten that the others are not."""
        for page, states in self.dirty.items():
            if rng.random() < 0.5:
                self.synced[page] = states[-1][1]
        self.dirty.clear()

    def crashed(self, pages: dict[int, bytes], newest: dict[int, int], resizes: int) -> "File":
        """The file after a crash that leaves these states of pages and the first `resizes` lengths.

        `newest` says which operation made each of the `pages`.
        """
        left = File(self.number)
        kept = self.resizes[:resizes]
        size = kept[-1][1] if kept else self.durable_size
        if any(after < before for before, after in _steps(self.durable_size, kept)):
            left._base = self._replay(pages, newest, kept, size)
        else:
            left._base = self._base
            left.synced = self.synced.copy()
            # Bytes after the surviving length are not part of the file, even if it grows again.
            left.synced.update((page, state) for page, state in pages.items() if page * PAGE_BYTES < size)
        left.size = left.durable_size = size
        return left

    def _replay(self, pages: dict[int, bytes], newest: dict[int, int], kept: list[tuple[int, int]], size: int) -> bytes:
        """The content when the file was cut in between: what was written before the cut does not come back."""
        content = bytearray(_filled(max([self.durable_size, self.size, *(length for _, length in kept)]), b"", {}))
        content[: self.durable_size] = _filled(self.durable_size, self._base, self.synced)
        events: list[tuple[int, int, bytes | None]] = [(number, length, None) for number, length in kept]
        events += [(newest[page], page * PAGE_BYTES, state) for page, state in pages.items()]
        for _, at, state in sorted(events, key=lambda event: (event[0], event[2] is not None)):
            if state is None:
                content[at:] = bytes(len(content) - at)
            else:
                content[at : at + len(state)] = state[: max(0, len(content) - at)]
        return bytes(content[:size])

    def _is_shrunk(self) -> bool:
        return any(after < before for before, after in _steps(self.durable_size, self.resizes))


def _steps(size: int, resizes: list[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    for _, length in resizes:
        yield size, length
        size = length


def _filled(size: int, base: bytes, pages: dict[int, bytes]) -> Buffer:
    buffer: Buffer = mmap.mmap(-1, size) if size > _LARGE_BYTES else bytearray(size)
    known = min(size, len(base))
    buffer[:known] = base[:known]
    for page, state in pages.items():
        at = page * PAGE_BYTES
        if at < size:
            end = min(at + len(state), size)
            buffer[at:end] = state[: end - at]
    return buffer


class Directory:
    """Names, as everybody sees them and as they are durable.  A rename is one change of two names."""

    __slots__ = ("durable", "entries", "number", "pending")

    def __init__(self, number: int) -> None:
        self.number = number
        self.entries: dict[str, Node] = {}
        self.durable: dict[str, Node] = {}
        self.pending: list[tuple[int, Names]] = []

    def change(self, number: int, names: Names) -> None:
        _apply(self.entries, names)
        self.pending.append((number, names))

    def sync(self) -> None:
        self.durable = dict(self.entries)
        self.pending.clear()


def _apply(entries: dict[str, Node], names: Names) -> None:
    for name, node in names.items():
        if node is None:
            entries.pop(name, None)
        else:
            entries[name] = node


class Crash:
    """One loss of power: makes the tree of directories and files that is left of another."""

    def __init__(self, subset: Subset, root: Directory) -> None:
        self._survivors = subset.survivors
        self._rng = random.Random(subset.seed)
        self._chosen = self._choose(root)
        self.root = self._directory(root)

    def _choose(self, root: Directory) -> set[tuple[int, int]]:
        """(file, page) of the pages whose newest state survives, where the whole disk decides that."""
        dirty = [(states[-1][0], file.number, page) for file in _files(root) for page, states in file.dirty.items()]
        dirty.sort()
        half = len(dirty) // 2
        match self._survivors:
            case Survivors.NEWEST:
                dirty = dirty[half:]
            case Survivors.OLDEST:
                dirty = dirty[: len(dirty) - half]
            case Survivors.ALTERNATING:
                dirty = dirty[::2]
            case Survivors.NONE:
                dirty = []
        return {(file, page) for _, file, page in dirty}

    def _prefix(self, count: int) -> int:
        """How many of `count` changes survive that can only be lost from the last one on."""
        match self._survivors:
            case Survivors.NONE:
                return 0
            case Survivors.RANDOM | Survivors.TORN:
                return self._rng.randint(0, count)
            case Survivors.OLDEST:
                return (count + 1) // 2
            case _:
                return count

    def _directory(self, directory: Directory) -> Directory:
        left = Directory(directory.number)
        entries = dict(directory.durable)
        for _, names in directory.pending[: self._prefix(len(directory.pending))]:
            _apply(entries, names)
        left.entries = {
            name: self._directory(node) if isinstance(node, Directory) else self._file(node)
            for name, node in entries.items()
        }
        left.durable = dict(left.entries)
        return left

    def _file(self, file: File) -> File:
        pages, newest = {}, {}
        for page, states in file.dirty.items():
            if self._survivors in (Survivors.RANDOM, Survivors.TORN):
                index = self._rng.randint(0, len(states)) - 1
            else:
                index = len(states) - 1 if (file.number, page) in self._chosen else -1
            if index >= 0:
                newest[page], pages[page] = states[index]
                if self._survivors is Survivors.TORN and self._rng.random() < 0.5:
                    pages[page] = self._torn(file, page, states[index][1])
        return file.crashed(pages, newest, self._prefix(len(file.resizes)))

    def _torn(self, file: File, page: int, state: bytes) -> bytes:
        before = file.synced.get(page) or file._base[page * PAGE_BYTES : (page + 1) * PAGE_BYTES]
        cut = SECTOR_BYTES * self._rng.randint(1, PAGE_BYTES // SECTOR_BYTES - 1)
        first, second = (state, before) if self._rng.random() < 0.5 else (before, state)
        return first.ljust(len(state), b"\0")[:cut] + second.ljust(len(state), b"\0")[cut : len(state)]


def _files(directory: Directory) -> Iterator[File]:
    """Every file that a crash might leave, once."""
    seen: set[int] = set()
    waiting: list[Node] = [directory]
    while waiting:
        node = waiting.pop()
        if node.number in seen:
            continue
        seen.add(node.number)
        if isinstance(node, File):
            yield node
        else:
            waiting += node.entries.values()
            waiting += node.durable.values()
            for _, names in node.pending:
                waiting += (other for other in names.values() if other is not None)
