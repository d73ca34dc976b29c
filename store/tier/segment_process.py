"""The process that packs segments for one broker (`store.tier.segment_packer`), as the broker sees it."""

import contextlib
import fcntl
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Final

import msgspec

from sprocket.common.errors import StoreError
from sprocket.common.processes.child_process import isolated
from store.tier.segment_packer import FAULT, HEAD, HURRY, JOB, PIECE, Fault, Job
from store.tier.segment_writer import Kept, LogDamaged, LogPart, Written

_PACKER: Final = "store.tier.segment_packer"
# Time that a process gets to end after SIGKILL; one that waits for a disk may need longer, and is left then.
_END_LIMIT_S: Final = 5.0
# A piece passes in one go, so that a thread of the broker wakes once for it.
_PIPE_BYTES: Final = 1 << 20


class SegmentProcess:
    """Starts with the first part, and again if it has ended.  One part at a time.

    `close` is for any thread, and `begin` for worker threads: both may wait for the end of a process.
    """

    def __init__(self, directory: Path, file_bytes: int, delay_levels: str) -> None:
        self._directory, self._file_bytes, self._delay_levels = directory, file_bytes, delay_levels
        self._process: subprocess.Popen[bytes] | None = None
        self._is_busy = False

    def segment(self, part: LogPart, kept: Kept) -> "PackedSegment":
        """Return the object of `part`, which is packed while its pieces are taken."""
        return PackedSegment(self, Job(str(self._directory), self._file_bytes, part, kept, self._delay_levels, False))

    def begin(self) -> tuple[IO[bytes], IO[bytes]]:
        """Return the process's input and output for a part; start it if it does not run.  Raises `StoreError`."""
        if self._is_busy:
            self.close()  # what it still says of a part that was left would be taken for this one
        if self._process is None:
            try:
                self._process = subprocess.Popen(isolated(_PACKER), stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            except OSError as error:
                raise StoreError(f"{_PACKER}: the process cannot be started: {error}") from error
        process = self._process
        assert process.stdin is not None and process.stdout is not None
        with contextlib.suppress(OSError):  # a limit of the system: then a piece passes in several goes
            fcntl.fcntl(process.stdout, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        self._is_busy = True
        return process.stdin, process.stdout

    def finish(self) -> None:
        """Note that the process has said all of its part."""
        self._is_busy = False

    def close(self, output: IO[bytes] | None = None) -> int | None:
        """End the process, whatever it does; with `output` only if that is its own.

        Return its exit status, None if it did not run, or does not end in time.
        """
        process = self._process
        if process is None or output not in (None, process.stdout):
            return None
        self._process, self._is_busy = None, False
        process.kill()
        try:
            status = process.wait(_END_LIMIT_S)
        except subprocess.TimeoutExpired:
            return None
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        return status


class PackedSegment:
    """One object.  Iterate once over its bytes, then ask `written`, as with a `SegmentWriter`."""

    def __init__(self, packer: SegmentProcess, job: Job) -> None:
        self._packer, self._job = packer, job
        self._input: IO[bytes] | None = None
        self._written: Written | None = None

    @property
    def written(self) -> Written:
        """What was written; only after the iteration has ended."""
        assert self._written is not None, "the object is not complete"
        return self._written

    def hurry(self) -> None:
        """Go on at this process's own priority."""
        if self._job.is_urgent:
            return
        self._job = msgspec.structs.replace(self._job, is_urgent=True)
        if self._input is not None:
            with contextlib.suppress(OSError, ValueError):  # it has ended, which the next piece will tell
                _send(self._input, HURRY, b"")

    def __iter__(self) -> Iterator[bytes]:
        """Return the bytes of the object.  Raises `LogDamaged` and `StoreError`."""
        to_it, from_it = self._packer.begin()
        try:
            _send(to_it, JOB, msgspec.msgpack.encode(self._job))
            self._input = to_it
            while True:
                kind, size_bytes = HEAD.unpack(_read(from_it, HEAD.size))
                content = _read(from_it, size_bytes)
                if kind != PIECE:
                    break
                yield content
            wanted: type[Fault] | type[Written] = Fault if kind == FAULT else Written
            said = msgspec.msgpack.decode(content, type=wanted)
        except (OSError, ValueError, EOFError, msgspec.DecodeError) as error:
            raise StoreError(f"{_PACKER}: the process ended, exit status {self._packer.close(from_it)}") from error
        self._packer.finish()
        if isinstance(said, Fault):
            raise LogDamaged(said.reason) if said.is_damage else StoreError(said.reason)
        self._written = said


def _send(to: IO[bytes], kind: int, content: bytes) -> None:
    to.write(HEAD.pack(kind, len(content)) + content)
    to.flush()


def _read(source: IO[bytes], size_bytes: int) -> bytes:
    content = source.read(size_bytes)
    if len(content) < size_bytes:
        raise EOFError
    return content
