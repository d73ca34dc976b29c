"""A `Disk` in memory that can fail and lose power at any operation.

It grants what the docstrings of `store.disk.disk.Disk` promise and no more: see `tests.sim.sim_image` for what a crash
may leave.  Every step that a crash can fall behind (a write, each new directory, name or length, each sync) is an
operation with a number.  After each, `after` is called: it may look at the disk, make crashed copies of it, or raise.
"""

import errno
import hashlib
import os
import random
from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sprocket.common.errors import DiskFailed, DiskFull, StoreError
from store.disk.disk import Content, DiskFile
from tests.sim.sim_image import Crash, Directory, File, Node, Subset

ROOT: Final = Path("/sim")
_DIRECTORY_BYTES: Final = 4096


@dataclass(frozen=True)
class Operation:
    """One step: its number from 1 on, what it did, and to which path."""

    number: int
    kind: str
    path: Path


@dataclass(frozen=True)
class Fault:
    """What an operation meets instead of doing its work; of a write, the share `arrived` is there nevertheless."""

    error: type[DiskFull] | type[DiskFailed] = DiskFailed
    arrived: float = 0.0


class SimFile:
    """An open file.  It stays usable when its name is gone, and not after `close`."""

    def __init__(self, disk: "SimDisk", path: Path, file: File, *, is_new: bool) -> None:
        self._disk = disk
        self._file = file
        self._is_new = is_new
        self._is_open = True
        self._view: memoryview | None = None
        self.path = path
        self.size_bytes = file.size

    @property
    def view(self) -> memoryview:
        if self._view is None:
            self._check_open("map")
            self._view = memoryview(self._file.buffer)[: self.size_bytes].toreadonly()
        return self._view

    def write(self, position: int, content: Content) -> None:
        self._check_open("write")
        fault = self._disk.fault_at("write", self.path)
        if fault is not None:
            arrived = bytes(content)[: int(len(content) * fault.arrived)]
            if arrived:
                self._file.write(self._disk.next_number(), position, arrived)
            raise fault.error(f"write {self.path}: {_words(fault)}")
        self._file.write(self._disk.next_number(), position, content)
        self._disk.done("write", self.path, (position, len(content)), content)

    def sync(self) -> None:
        self._check_open("sync")
        fault = self._disk.fault_at("sync", self.path)
        if fault is not None:
            self._file.lose(self._disk.rng)
            raise DiskFailed(f"sync {self.path}: {_words(fault)}")
        self._file.sync()
        self._disk.done("sync", self.path)
        if self._is_new:
            self._disk.sync_names(self.path)
            self._is_new = False

    def read(self, position: int, size_bytes: int) -> bytes:
        self._check_open("read")
        return bytes(memoryview(self._file.buffer)[position : min(position + size_bytes, self.size_bytes)])

    def content_end(self, position: int) -> int:
        self._check_open("read")
        content = bytes(memoryview(self._file.buffer)[position : self.size_bytes])
        return position + len(content.rstrip(b"\0"))

    def read_ahead(self, enabled: bool) -> None:
        """All of it is memory."""

    def cached_pages(self) -> bytes:
        return b"\x01" * (-(-self.size_bytes // 4096))

    def close(self) -> None:
        self._is_open = False

    def _check_open(self, action: str) -> None:
        if not self._is_open:
            raise DiskFailed(f"{action} {self.path}: {os.strerror(errno.EBADF)}")


class SimLock:
    """A held lock of a `SimDisk`."""

    def __init__(self, held: set[Path], path: Path) -> None:
        self._held = held
        self._path = path

    def release(self) -> None:
        self._held.discard(self._path)


class SimDisk:
    """The disk.  One thread uses it."""

    def __init__(self, seed: int = 0, *, syncs_names: bool = True) -> None:
        """With `syncs_names` the sync of any file makes its name durable, as on ext4; else only that of a new one."""
        self.rng = random.Random(seed)
        self.operations = 0
        self.after: Callable[[Operation], None] | None = None
        # Asked before each operation that can fail, with its kind and path.
        self.fault: Callable[[str, Path], Fault | None] | None = None
        self.used = 0.1
        self._syncs_names = syncs_names
        # Directories in which another one is new: what the process that uses the disk knows of that.
        self._unsynced: set[int] = set()
        self._trace = hashlib.sha256()
        self._held: set[Path] = set()
        self._numbers = 0
        self._root = Directory(0)
        top = Directory(self.next_number())
        self._root.entries[ROOT.name] = self._root.durable[ROOT.name] = top

    # Life

    def crash(self, subset: Subset) -> "SimDisk":
        """The disk after a loss of power now.  This one goes on as if nothing had happened."""
        left = SimDisk(subset.seed, syncs_names=self._syncs_names)
        left._root = Crash(subset, self._root).root
        left._numbers = self._numbers
        left.operations = self.operations
        left._trace = self._trace.copy()
        return left

    def kill(self) -> None:
        """Every process that used the disk is gone, and with it what it held and knew.  Nothing else changes."""
        self._held.clear()
        self._unsynced.clear()

    @property
    def trace(self) -> str:
        """Hash of all operations so far."""
        return self._trace.hexdigest()

    def files(self) -> dict[Path, bytes]:
        """Every file and its content, as readers see it."""
        return {path: bytes(node.buffer[: node.size]) for path, node in self._walk(ROOT, self._top())}

    def look(self, path: Path) -> memoryview:
        """A file's content as readers see it; nothing if there is no such file."""
        node = self._find(path)
        return memoryview(node.buffer)[: node.size] if isinstance(node, File) else memoryview(b"")

    def damage(self, path: Path, change: Callable[[bytes], bytes]) -> None:
        """Change a file's content, durably, as no broker did."""
        file = self._expect_file(path, "damage")
        content = change(bytes(file.buffer[: file.size]))
        file.resize(self.next_number(), 0)
        if content:
            file.write(self.next_number(), 0, content)
        file.sync()

    # What the disk's files and this class need

    def next_number(self) -> int:
        self._numbers += 1
        return self._numbers

    def done(self, kind: str, path: Path, numbers: tuple[int, ...] = (), content: Content = b"") -> None:
        """Count an operation, add it to the trace, tell `after`."""
        self.operations += 1
        self._trace.update(f"{kind} {path} {numbers}\n".encode())
        self._trace.update(content)
        if self.after is not None:
            self.after(Operation(self.operations, kind, path))

    def fault_at(self, kind: str, path: Path) -> Fault | None:
        return None if self.fault is None else self.fault(kind, path)

    def sync_directory(self, directory: Directory, path: Path) -> None:
        """Make the names in `directory` durable, on behalf of `path`."""
        fault = self.fault_at("sync_directory", path)
        if fault is not None:
            raise DiskFailed(f"sync {path.parent}: {_words(fault)}")
        directory.sync()
        self.done("sync_directory", path)

    def sync_names(self, path: Path) -> None:
        """Make the name of a file durable, and those of new directories on the way to it."""
        above = self._above(path)
        for directory in reversed(above):
            if directory is above[-1] or directory.number in self._unsynced or self._syncs_names:
                self.sync_directory(directory, path)
                self._unsynced.discard(directory.number)

    # Disk

    def create(self, path: Path, size_bytes: int, *, preallocate: bool) -> SimFile:
        fault = self.fault_at("create", path)
        self._unsynced.update(directory.number for directory in self._make_directories(path.parent))
        directory = self._expect_directory(path.parent)
        file = directory.entries.get(path.name)
        if file is None:
            file = File(self.next_number())
            directory.change(self.next_number(), {path.name: file})
            self.done("link", path)
        elif isinstance(file, Directory):
            raise DiskFailed(f"create {path}: {os.strerror(errno.EISDIR)}")
        else:
            file.resize(self.next_number(), 0)
            self.done("resize", path, (0,))
        if fault is not None:
            directory.change(self.next_number(), {path.name: None})
            self.done("unlink", path)
            raise fault.error(f"create {path}: {_words(fault)}")
        file.resize(self.next_number(), size_bytes)
        self.done("resize", path, (size_bytes,))
        return SimFile(self, path, file, is_new=True)

    def open(self, path: Path, *, preallocate: bool) -> SimFile:
        return SimFile(self, path, self._expect_file(path, "open"), is_new=self._syncs_names)

    def peek(self, path: Path | str, file_bytes: int, position: int, size_bytes: int) -> bytes | None:
        node = self._find(Path(path))
        if not isinstance(node, File) or node.size != file_bytes:
            return None
        return bytes(memoryview(node.buffer)[: node.size][position : position + size_bytes])

    def names(self, directory: Path) -> list[str]:
        node = self._find(directory)
        return sorted(node.entries) if isinstance(node, Directory) else []

    def entries(self, directory: Path, skipped: Container[str] = ()) -> list[tuple[str, int | None]]:
        node = self._find(directory)
        if node is None:
            return []
        if isinstance(node, File):
            raise DiskFailed(f"list {directory}: {os.strerror(errno.ENOTDIR)}")
        entries = {name: entry for name, entry in node.entries.items() if name not in skipped}
        return sorted((name, entry.size if isinstance(entry, File) else None) for name, entry in entries.items())

    def size(self, path: Path) -> int | None:
        node = self._find(path)
        if node is None:
            return None
        return node.size if isinstance(node, File) else _DIRECTORY_BYTES

    def read(self, path: Path) -> bytes | None:
        if self._find(path) is None:
            return None
        file = self._expect_file(path, "read")
        return bytes(file.buffer[: file.size])

    def write_small(self, path: Path, content: bytes) -> None:
        for changed in self._make_directories(path.parent):
            self.sync_directory(changed, path)
        directory = self._expect_directory(path.parent)
        fault = self.fault_at("write_small", path)
        is_new = path.name not in directory.entries
        if is_new:
            directory.change(self.next_number(), {path.name: File(self.next_number())})
            self.done("link", path)
        file = SimFile(self, path, self._expect_file(path, "write"), is_new=False)
        if fault is not None:
            content = content[: int(len(content) * fault.arrived)]
        if content:
            file._file.write(self.next_number(), 0, content)
            self.done("write", path, (0, len(content)), content)
        if fault is not None:
            raise fault.error(f"write {path}: {_words(fault)}")
        if file._file.size != len(content):
            file._file.resize(self.next_number(), len(content))
            self.done("resize", path, (len(content),))
        file.sync()
        if is_new:
            self.sync_directory(directory, path)

    def remove(self, path: Path) -> None:
        if self._find(path) is None:
            return
        self._expect_file(path, "remove")
        self._unlink(path)
        self.sync_directory(self._expect_directory(path.parent), path)

    def sync_many(self, files: Sequence[DiskFile]) -> None:
        for file in files:
            file.sync()

    def sync_entries(self, directory: Path) -> None:
        node = self._find(directory)
        if isinstance(node, Directory):
            self.sync_directory(node, directory / "*")

    def remove_tree(self, directory: Path) -> None:
        node = self._find(directory)
        if node is None:
            return
        if isinstance(node, File):
            raise DiskFailed(f"remove {directory}: {os.strerror(errno.ENOTDIR)}")
        self._empty(directory, node)
        self._unlink(directory)
        self.sync_directory(self._expect_directory(directory.parent), directory)

    def remove_files(self, directory: Path, names: Sequence[str]) -> None:
        node = self._find(directory)
        if node is None:
            return
        if isinstance(node, File):
            raise DiskFailed(f"remove {directory}: {os.strerror(errno.ENOTDIR)}")
        for name in names:
            if name in node.entries:
                self._unlink(directory / name)
        if not node.entries:
            self._unlink(directory)

    def rename(self, source: Path, target: Path) -> None:
        assert source.parent == target.parent
        node = self._expect_file(source, "rename")
        fault = self.fault_at("rename", source)
        if fault is not None:
            raise fault.error(f"rename {source}: {_words(fault)}")
        directory = self._expect_directory(source.parent)
        directory.change(self.next_number(), {source.name: None, target.name: node})
        self.done("rename", target)
        self.sync_directory(directory, target)

    def lock(self, path: Path) -> SimLock:
        for changed in self._make_directories(path.parent):
            self.sync_directory(changed, path)
        directory = self._expect_directory(path.parent)
        if path.name not in directory.entries:
            directory.change(self.next_number(), {path.name: File(self.next_number())})
            self.done("link", path)
        if path in self._held:
            raise StoreError(f"{path}: the store is in use by another broker")
        self._held.add(path)
        return SimLock(self._held, path)

    def used_ratio(self, path: Path) -> float:
        return self.used

    # The tree

    def _top(self) -> Directory:
        top = self._root.entries[ROOT.name]
        assert isinstance(top, Directory)
        return top

    def _find(self, path: Path) -> "Node | None":
        node: Node | None = self._root
        for part in path.parts[1:]:
            if not isinstance(node, Directory):
                return None
            node = node.entries.get(part)
        return node

    def _above(self, path: Path) -> list[Directory]:
        """The directories in whose entries a name on the way to `path` could be new."""
        node: Node = self._root
        above = []
        for part in path.parts[1:]:
            if not isinstance(node, Directory):
                break
            above.append(node)
            found = node.entries.get(part)
            if found is None:  # removed, and the file with it
                break
            node = found
        return above[1:]

    def _expect_file(self, path: Path, action: str) -> File:
        node = self._find(path)
        if not isinstance(node, File):
            number = errno.ENOENT if node is None else errno.EISDIR
            raise DiskFailed(f"{action} {path}: {os.strerror(number)}")
        return node

    def _expect_directory(self, path: Path) -> Directory:
        node = self._find(path)
        if not isinstance(node, Directory):
            raise DiskFailed(f"open {path}: {os.strerror(errno.ENOTDIR)}")
        return node

    def _make_directories(self, directory: Path) -> list[Directory]:
        """Make `directory` and its parents; the directories in which another one is new, innermost first."""
        node = self._root
        changed: list[Directory] = []
        path = Path("/")
        for part in directory.parts[1:]:
            path = path / part
            child = node.entries.get(part)
            if child is None:
                child = Directory(self.next_number())
                node.change(self.next_number(), {part: child})
                changed.append(node)
                self.done("mkdir", path)
            elif isinstance(child, File):
                raise DiskFailed(f"create {directory}: {os.strerror(errno.ENOTDIR)}")
            node = child
        return changed[::-1]

    def _unlink(self, path: Path) -> None:
        fault = self.fault_at("remove", path)
        if fault is not None:
            raise DiskFailed(f"remove {path}: {_words(fault)}")
        self._expect_directory(path.parent).change(self.next_number(), {path.name: None})
        self.done("unlink", path)

    def _empty(self, path: Path, directory: Directory) -> None:
        for name, node in list(directory.entries.items()):
            if isinstance(node, Directory):
                self._empty(path / name, node)
            self._unlink(path / name)

    def _walk(self, path: Path, directory: Directory) -> Iterator[tuple[Path, File]]:
        for name, node in sorted(directory.entries.items()):
            if isinstance(node, File):
                yield path / name, node
            else:
                yield from self._walk(path / name, node)


def _words(fault: Fault) -> str:
    return os.strerror(errno.ENOSPC if fault.error is DiskFull else errno.EIO)
