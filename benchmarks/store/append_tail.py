"""The tail of an append over rolls of the log's segments, for the ways to write one.

    python -m benchmarks.store.append_tail [--rounds 5] [--megabytes 96] [--folder FOLDER] [--only async-16M]

Appends of 128 B to 1 KiB, one after the other; what is measured is one append, with SYNC the sync behind it included.
All ways stand side by side and take turns within a round, because the speed of a shared machine drifts; the table has
the median of the rounds.  On a busy machine a process is preempted once in a few milliseconds, and a way whose append
takes longer meets that more often: only --realtime tells the ways apart there.  Segments of 1 GiB are begun 32 MiB
before the first one's end, so that each run rolls.

    store       `store.log.commit_log.CommitLog` as the broker uses it
    warmed      the same with warmMapedFileEnable: a thread writes the whole next segment full of zeros and syncs it
    pwrite      (a) `pwrite` into segments whose blocks a thread reserves ahead
    mapping     (b) the naive way: make and map a sparse file at the roll, store through the mapping
    populated   (c) stores through a mapping of reserved blocks whose pages a thread populates 8 MiB ahead
    readahead   (d) as pwrite, and a thread has the pages brought into the page cache 8 MiB ahead (POSIX_FADV_WILLNEED)
    zeroed      (d) as pwrite, and a thread writes zeros 8 MiB ahead
"""

import argparse
import ctypes
import mmap
import os
import random
import shutil
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from store.config.store_config import StoreConfig
from store.disk.disk import RealDisk
from store.log.commit_log import CommitLog

MIB = 1 << 20
AHEAD_BYTES = 8 * MIB
STEP_BYTES = 1 * MIB
START_BEFORE_END = 32 * MIB
FLUSH_INTERVAL_S = 0.5  # flushIntervalCommitLog
SYNC_APPENDS = 600
MADV_POPULATE_WRITE = 23
_libc = ctypes.CDLL(None, use_errno=True)


class Log(Protocol):
    """One way to write."""

    def append(self, content: bytes) -> None: ...

    def sync(self) -> None: ...

    def close(self) -> None: ...


class StoreLog:
    """The real thing."""

    def __init__(self, folder: Path, segment_bytes: int, start: int, *, warm: bool = False) -> None:
        config = StoreConfig(
            store_path_root_dir=folder, mapped_file_size_commit_log=segment_bytes, warm_mapped_file_enable=warm
        )
        self._log = CommitLog(config, RealDisk())
        first = RealDisk().create(config.commit_log_path / f"{0:020d}", segment_bytes, preallocate=True)
        first.close()
        self._log.load()
        self._log.cut(start)
        self._synced = start

    def append(self, content: bytes) -> None:
        log = self._log
        at, size = log.wrote_offset, len(content)
        if at + size > log.segment_end(at):
            at = log.segment_end(at)
        log.write([(at, content)], at + size)

    def sync(self) -> None:
        end = self._log.wrote_offset
        for file in self._log.files_between(self._synced, end):
            file.sync()
        self._synced = end

    def close(self) -> None:
        self._log.close()


class Segment:
    """A file, mapped where the way to write needs it."""

    def __init__(self, path: Path, size: int, *, reserve: bool, is_mapped: bool) -> None:
        self.descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        if reserve:
            os.posix_fallocate(self.descriptor, 0, size)
        else:
            os.ftruncate(self.descriptor, size)
        self.mapping = mmap.mmap(self.descriptor, size) if is_mapped else None
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self.mapping)) if self.mapping is not None else 0
        self.touched = 0


class RawLog:
    """Segments made ahead by a thread, which also touches pages ahead where `touch` says how."""

    def __init__(
        self,
        folder: Path,
        segment_bytes: int,
        start: int,
        *,
        is_mapped: bool,
        ahead: bool,
        touch: Callable[[Segment, int, int], None] | None = None,
    ) -> None:
        self._folder, self._size, self._position = folder, segment_bytes, start
        self._is_mapped, self._is_ahead, self._touch = is_mapped, ahead, touch
        self._number = 0
        self._segment = self._make(0)
        self._next: Segment | None = None
        self._unsynced = [self._segment]
        self._wanted, self._stopped = threading.Event(), False
        self._thread = threading.Thread(target=self._prepare, daemon=True)
        if ahead:
            self._thread.start()
            self._segment.touched = start
            self._touch_ahead()
            self._wanted.set()

    def _make(self, number: int) -> Segment:
        path = self._folder / f"{number:020d}"
        return Segment(path, self._size, reserve=self._is_ahead, is_mapped=self._is_mapped)

    def append(self, content: bytes) -> None:
        end = self._position + len(content)
        if end > self._size:
            self._roll()
            end = len(content)
        segment = self._segment
        if segment.mapping is not None:
            segment.mapping[self._position : end] = content
        else:
            os.pwrite(segment.descriptor, content, self._position)
        self._position = end
        if self._is_ahead and self._is_behind(end) and not self._wanted.is_set():
            self._wanted.set()

    def _is_behind(self, end: int) -> bool:
        """Whether the thread has something to do."""
        if self._next is None and end > self._size // 2:
            return True
        return self._touch is not None and self._segment.touched - end < AHEAD_BYTES - STEP_BYTES

    def _roll(self) -> None:
        self._number += 1
        while self._is_ahead and self._next is None:
            time.sleep(0.0001)
        segment = self._next or self._make(self._number)
        self._next = None
        self._unsynced = [self._segment, segment]
        self._segment, self._position = segment, 0

    def _prepare(self) -> None:
        while True:
            self._wanted.wait()
            self._wanted.clear()
            if self._stopped:
                return
            if self._next is None and self._position > self._size // 2:
                self._next = self._make(self._number + 1)
            self._touch_ahead()

    def _touch_ahead(self) -> None:
        touch = self._touch
        if touch is None:
            return
        for segment, position in ((self._segment, self._position), (self._next, self._position - self._size)):
            end = min(position + AHEAD_BYTES, self._size)
            while segment is not None and segment.touched < end:
                # A step that the writer has come up to is the writer's.
                at = max(segment.touched, position + STEP_BYTES // 4 if segment is self._segment else 0)
                at -= at % mmap.PAGESIZE
                length = min(STEP_BYTES, self._size - at)
                if (length > 0 and at >= self._position + STEP_BYTES // 8) or segment is not self._segment:
                    touch(segment, at, length)
                segment.touched = at + length

    def sync(self) -> None:
        for segment in self._unsynced:
            os.fdatasync(segment.descriptor)

    def close(self) -> None:
        self._stopped = True
        self._wanted.set()
        if self._is_ahead:
            self._thread.join()
        for segment in [*self._unsynced, self._next]:
            if segment is not None:
                os.close(segment.descriptor)


def populate(segment: Segment, at: int, length: int) -> None:
    """Fault pages in for writing; the call goes around the interpreter lock."""
    _libc.madvise(ctypes.c_void_p(segment.address + at), ctypes.c_size_t(length), MADV_POPULATE_WRITE)


def read_ahead(segment: Segment, at: int, length: int) -> None:
    """Ask for the pages: of reserved blocks nothing is read, they are zeros."""
    os.posix_fadvise(segment.descriptor, at, length, os.POSIX_FADV_WILLNEED)


_ZEROS = bytes(STEP_BYTES)


def write_zeros(segment: Segment, at: int, length: int) -> None:
    """Dirty the pages.  Not fit for use: nothing keeps the writer off the range meanwhile."""
    os.pwrite(segment.descriptor, _ZEROS[:length], at)


WAYS: dict[str, Callable[[Path, int, int], Log]] = {
    "store": StoreLog,
    "warmed": lambda folder, size, start: StoreLog(folder, size, start, warm=True),
    "pwrite": lambda folder, size, start: RawLog(folder, size, start, is_mapped=False, ahead=True),
    "mapping": lambda folder, size, start: RawLog(folder, size, start, is_mapped=True, ahead=False),
    "populated": lambda folder, size, start: RawLog(folder, size, start, is_mapped=True, ahead=True, touch=populate),
    "readahead": lambda folder, size, start: RawLog(folder, size, start, is_mapped=False, ahead=True, touch=read_ahead),
    "zeroed": lambda folder, size, start: RawLog(folder, size, start, is_mapped=False, ahead=True, touch=write_zeros),
}
# name -> (segment bytes, whether each append is synced)
RUNS = {
    "async-16M": (16 * MIB, False),
    "async-1G": (1024 * MIB, False),
    "sync-128K": (MIB // 8, True),
    "sync-1G": (1024 * MIB, True),
}


def contents(total_bytes: int) -> list[bytes]:
    """Appends of 128 B to 1 KiB, the same for every way."""
    chance, made, sizes = random.Random(7), 0, []
    while made < total_bytes:
        sizes.append(chance.randrange(128, 1025))
        made += sizes[-1]
    whole = random.Random(8).randbytes(1024)
    return [whole[:size] for size in sizes]


def run(way: str, folder: Path, segment_bytes: int, appends: list[bytes], *, is_sync: bool) -> list[int]:
    """Nanoseconds of each append."""
    start = max(0, segment_bytes - (SYNC_APPENDS * 288 if is_sync else START_BEFORE_END))
    if segment_bytes <= START_BEFORE_END:
        start = 0
    folder.mkdir()
    log = WAYS[way](folder, segment_bytes, start)
    os.sync()
    stopped = threading.Event()
    flusher = threading.Thread(target=_flush, args=(log, stopped), daemon=True)
    if not is_sync:
        flusher.start()
    now, append, sync = time.perf_counter_ns, log.append, log.sync
    taken = []
    for content in appends:
        began = now()
        append(content)
        if is_sync:
            sync()
        taken.append(now() - began)
    stopped.set()
    if not is_sync:
        flusher.join()
    log.close()
    shutil.rmtree(folder)
    return taken


def _flush(log: Log, stopped: threading.Event) -> None:
    while not stopped.wait(FLUSH_INTERVAL_S):
        log.sync()


def figures(taken: list[int]) -> tuple[float, ...]:
    """p50, p99, p99.9 and the longest, us."""
    taken = sorted(taken)
    ranks = [int(len(taken) * share) for share in (0.5, 0.99, 0.999)]
    return tuple(taken[rank] / 1000 for rank in [*ranks, len(taken) - 1])


def main() -> None:
    """Print one table per run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--megabytes", type=int, default=96, help="bytes that one ASYNC run appends")
    parser.add_argument("--folder", type=Path, default=None)
    parser.add_argument("--realtime", action="store_true", help="run as SCHED_FIFO: others' processes do not preempt")
    parser.add_argument("--only", choices=list(RUNS), default=None)
    arguments = parser.parse_args()
    if arguments.realtime:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    root = Path(tempfile.mkdtemp(prefix="append-tail-", dir=arguments.folder))
    try:
        for name, (segment_bytes, is_sync) in RUNS.items():
            if arguments.only in (None, name):
                appends = contents(arguments.megabytes * MIB)
                appends = appends[:SYNC_APPENDS] if is_sync else appends
                measure(name, root, segment_bytes, appends, arguments.rounds, is_sync=is_sync)
    finally:
        shutil.rmtree(root)


def measure(name: str, root: Path, segment_bytes: int, appends: list[bytes], rounds: int, *, is_sync: bool) -> None:
    """All ways in turn, `rounds` times; each round begins with another one."""
    found: dict[str, list[tuple[float, ...]]] = {way: [] for way in WAYS}
    ways = list(WAYS)
    for number in range(rounds):
        for way in ways[number % len(ways) :] + ways[: number % len(ways)]:
            found[way].append(figures(run(way, root / way, segment_bytes, appends, is_sync=is_sync)))
    print(f"{name}: {len(appends)} appends, {rounds} rounds\n")
    print("| way | p50 us | p99 us | p99.9 us | longest us |\n|---|--:|--:|--:|--:|")
    for way, results in found.items():
        columns = " | ".join(f"{statistics.median(column):,.1f}" for column in zip(*results, strict=True))
        print(f"| {way} | {columns} |", flush=True)
    print()


if __name__ == "__main__":
    main()
