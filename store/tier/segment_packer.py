"""Program that packs parts of a CommitLog into segment objects; `store.tier.segment_process` runs it beside a broker.

Scans, hashes and compression would share the interpreter's lock with the broker's event loop.  In a process of their
own they do not, and step aside while others want the processor (nice 19), until the broker says that they must not.

Messages on standard input and output, one socket, are a head (`HEAD`: kind and size) and that many bytes.  In: `JOB`,
and `HURRY` at any time.  Out, for each job: `PIECE`s of the object, then `WRITTEN`; or `FAULT`.  The process ends with
its input.
"""

import os
import re
import select
import signal
import struct
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import BinaryIO, Final, Literal

import msgspec

from sprocket.common.errors import StoreError
from store.disk.disk import RealDisk
from store.layout import file_name
from store.record.record import TagsCodes
from store.tier.segment_writer import Kept, LogDamaged, LogPart, SegmentWriter

HEAD: Final = struct.Struct(">BI")
JOB, HURRY, PIECE, WRITTEN, FAULT = range(5)
_NICE: Final = 19
# Blocks that pass together: each message costs the broker's loop some turns.  A hurry waits for them.
_BLOCKS_AT_ONCE: Final = 4
_GROUP: Final = re.compile(r"^0::/(.*)$", re.MULTILINE)


class Job(msgspec.Struct, frozen=True):
    """A part of the log in `directory`, whose files have `file_bytes`; `is_urgent`: at the broker's own priority."""

    directory: str
    file_bytes: int
    part: LogPart
    kept: Kept
    delay_levels: str
    is_urgent: bool


class Fault(msgspec.Struct, frozen=True):
    """Why a part cannot be packed; `kind`: what is to blame."""

    reason: str
    kind: Literal["log", "memory", "other"]


class _Packer:
    """Packs one part after another.  Linux lowers the priority of a thread, but raises none: so there are two."""

    def __init__(self, jobs: int, answers: BinaryIO) -> None:
        self._jobs, self._answers = jobs, answers
        self._patient = ThreadPoolExecutor(1, initializer=_step_aside)
        self._urgent = ThreadPoolExecutor(1)
        self._disk = RealDisk()

    def run(self) -> None:
        while (message := self._message()) is not None:
            kind, content = message
            if kind == JOB:
                self._pack(msgspec.msgpack.decode(content, type=Job))

    def _pack(self, job: Job) -> None:
        read, is_urgent = _ReadFiles(self._disk, Path(job.directory), job.file_bytes), job.is_urgent
        try:
            writer = SegmentWriter(job.part, read, job.kept, TagsCodes(job.delay_levels))
            pieces = iter(writer)
            while True:
                is_urgent = is_urgent or self._is_hurried()
                thread = self._urgent if is_urgent else self._patient
                if not (content := thread.submit(_next, pieces).result()):
                    break
                self._answer(PIECE, content)
            self._answer(WRITTEN, msgspec.msgpack.encode(writer.written))
        except MemoryError as error:
            self._fail(Fault(f"there is not enough memory to pack the log from {job.part.start} on: {error}", "memory"))
        except StoreError as error:
            self._fail(Fault(str(error), "log" if isinstance(error, LogDamaged) else "other"))

    def _fail(self, fault: Fault) -> None:
        self._answer(FAULT, msgspec.msgpack.encode(fault))

    def _is_hurried(self) -> bool:
        # During a job nothing else comes.
        return bool(select.select([self._jobs], [], [], 0)[0]) and self._message() is not None

    def _message(self) -> tuple[int, bytes] | None:
        """Return the next message in; None: the broker is gone, or wants no more."""
        head = _read(self._jobs, HEAD.size)
        if head is None:
            return None
        kind, size_bytes = HEAD.unpack(head)
        content = _read(self._jobs, size_bytes)
        return None if content is None else (kind, content)

    def _answer(self, kind: int, content: bytes) -> None:
        self._answers.write(HEAD.pack(kind, len(content)))
        self._answers.write(content)
        self._answers.flush()


class _ReadFiles:
    """Reads a log by its files, with descriptors of its own: the broker removes them when it has to."""

    def __init__(self, disk: RealDisk, directory: Path, file_bytes: int) -> None:
        self._disk, self._directory, self._file_bytes = disk, directory, file_bytes

    def __call__(self, offset: int, size_bytes: int) -> bytes:
        position = offset % self._file_bytes
        path = self._directory / file_name(offset - position)
        return self._disk.peek(path, self._file_bytes, position, size_bytes) or b""


def _read(descriptor: int, size_bytes: int) -> bytes | None:
    content = bytearray()
    while len(content) < size_bytes:
        piece = os.read(descriptor, size_bytes - len(content))
        if not piece:
            return None
        content += piece
    return bytes(content)


def _next(pieces: Iterator[bytes]) -> bytes:
    """Return the next bytes of an object; empty at its end."""
    return b"".join(islice(pieces, _BLOCKS_AT_ONCE))


def _step_aside() -> None:
    os.setpriority(os.PRIO_PROCESS, 0, _NICE)  # of this thread


def go_first(process: Path, groups: Path) -> None:
    """Let Linux kill this process before the broker where memory ends: a part can be packed again.

    Not if it then kills all of their group, as in a container of Kubernetes: the broker would go with this process.
    `process` is its directory in /proc, `groups` that of all groups.
    """
    with suppress(OSError):  # an older system without such groups
        group = _GROUP.search((process / "cgroup").read_text())
        if group is not None and (groups / group[1] / "memory.oom.group").read_text().strip() == "1":
            return
    with suppress(OSError):  # a system without this file
        (process / "oom_score_adj").write_text("1000")


def main() -> None:
    """Serve the broker that started this process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal's goes to the broker, too
    go_first(Path("/proc/self"), Path("/sys/fs/cgroup"))
    with os.fdopen(os.dup(sys.stdout.fileno()), "wb") as answers:
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
        try:
            _Packer(sys.stdin.fileno(), answers).run()
        except ConnectionError:
            os._exit(0)  # the broker is gone; so nothing that is held for it is written


if __name__ == "__main__":
    main()
