"""The process that packs segments for one broker (`store.tier.segment_packer`), as the broker sees it."""

import contextlib
import socket
import struct
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from sprocket.common.errors import StoreError
from sprocket.common.processes.child_process import isolated
from store.tier.segment_packer import FAULT, HEAD, HURRY, JOB, PIECE, Fault, Job
from store.tier.segment_writer import Kept, LogDamaged, LogPart, Written

_PACKER: Final = "store.tier.segment_packer"
# Time that a process gets to end after SIGKILL; one that waits for a disk may need longer.
_END_LIMIT_S: Final = 5.0
# A process that says nothing for this long hangs, or gets no processor.  Then it is killed.
_SILENCE_LIMIT_S: Final = 300


class PackerFailed(StoreError):
    """The process could not be started, ended, hung, or had no memory.  The next part starts another if need be."""


_FAULTS: Final = {"log": LogDamaged, "memory": PackerFailed, "other": StoreError}


class SegmentProcess:
    """Starts with the first part, and again if it has ended.  One part at a time.

    `close` is for any thread, and `begin` for worker threads: both may wait for the end of a process.
    """

    def __init__(self, directory: Path, file_bytes: int, delay_levels: str) -> None:
        self._directory, self._file_bytes, self._delay_levels = directory, file_bytes, delay_levels
        self._process: _Process | None = None
        # One that was killed, and may not have ended yet.
        self._killed: subprocess.Popen[bytes] | None = None
        self._is_busy = self._was_silent = False
        # Held while a process is started, so that `close` finds it.
        self._starting = threading.RLock()

    @property
    def pid(self) -> int | None:
        """Number of the process; None if there is none."""
        return None if self._process is None else self._process.popen.pid

    def segment(self, part: LogPart, kept: Kept) -> "PackedSegment":
        """Return the object of `part`, which is packed while its pieces are taken."""
        job = Job(str(self._directory), self._file_bytes, part, kept, self._delay_levels, self._was_silent)
        return PackedSegment(self, job)

    def begin(self) -> "_Process":
        """Return the process for a part; start it if it does not run.  Raises `PackerFailed`."""
        with self._starting:
            if self._is_busy:
                self.close()  # what it still says of a part that was left would be taken for this one
            if self._process is None:
                self._process = self._start()
            self._is_busy = True
            return self._process

    def _start(self) -> "_Process":
        if self._killed is not None and self._killed.poll() is None:
            raise PackerFailed(f"{_PACKER}: process {self._killed.pid} was killed and has not ended yet")
        try:
            return _Process()
        except OSError as error:
            raise PackerFailed(f"{_PACKER}: the process cannot be started: {error}") from error

    def finish(self, process: "_Process") -> None:
        """Note that a process has said all of its part; of no interest if there is another one by now."""
        with self._starting:
            if process is self._process:
                self._is_busy = self._was_silent = False

    def hung(self, process: "_Process") -> None:
        """End a process that was silent for too long; the next one does not let others go first."""
        with self._starting:
            self._was_silent = self._was_silent or process is self._process
        self.close(process)

    def close(self, only: "_Process | None" = None) -> int | None:
        """End the process, whatever it does; with `only` if that is the one.

        Return its exit status, None if it did not run, or does not end in time.
        """
        with self._starting:
            process = self._process
            if process is None or only not in (None, process):
                return None
            self._process, self._is_busy, self._killed = None, False, process.popen
        return process.end()


class _Process:
    """A process, and the socket that is its input and output."""

    def __init__(self) -> None:
        self._socket, its = socket.socketpair()
        # Held while the socket is used, and while it is closed: its number may be another file's afterwards.
        # Two, so that a hurry does not wait for what the process says next.
        self._sending, self._receiving = threading.Lock(), threading.Lock()
        with its:
            try:
                self.popen = subprocess.Popen(isolated(_PACKER), stdin=its.fileno(), stdout=its.fileno())
            except OSError:
                self._socket.close()
                raise
        # Of the system's calls: a whole piece is one call, without the interpreter's lock.
        limit = struct.pack("ll", _SILENCE_LIMIT_S, 0)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)

    def send(self, kind: int, content: bytes) -> None:
        """Raises BlockingIOError if the process takes nothing for too long, and OSError if it has ended."""
        with self._sending:
            self._socket.sendall(HEAD.pack(kind, len(content)) + content)

    def receive(self) -> tuple[int, bytes]:
        """Return the next message.  Raises as `send`, and EOFError."""
        with self._receiving:
            kind, size_bytes = HEAD.unpack(self._exactly(HEAD.size))
            return kind, self._exactly(size_bytes)

    def _exactly(self, size_bytes: int) -> bytes:
        content = b""
        while len(content) < size_bytes:
            # Less than all comes at the end, or if a signal or the limit stops the wait.
            more = self._socket.recv(size_bytes - len(content), socket.MSG_WAITALL)
            if not more:
                raise EOFError
            content = content + more if content else more
        return content

    def end(self) -> int | None:
        """Kill it.  Return its exit status; None if it does not end in time."""
        self.popen.kill()
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # ends a call in another thread
        with self._sending, self._receiving:
            self._socket.close()
        try:
            return self.popen.wait(_END_LIMIT_S)
        except subprocess.TimeoutExpired:
            return None


class PackedSegment:
    """One object.  Iterate once over its bytes, then ask `written`, as with a `SegmentWriter`."""

    def __init__(self, packer: SegmentProcess, job: Job) -> None:
        self._packer, self._job = packer, job
        self._process: _Process | None = None
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
        if self._process is not None:
            with contextlib.suppress(OSError):  # it has ended, which the next piece will tell
                self._process.send(HURRY, b"")

    def __iter__(self) -> Iterator[bytes]:
        """Return the bytes of the object.  Raises `LogDamaged` and `PackerFailed`."""
        process = self._packer.begin()
        try:
            process.send(JOB, msgspec.msgpack.encode(self._job))
            self._process = process
            while True:
                kind, content = process.receive()
                if kind != PIECE:
                    break
                yield content
            wanted: type[Fault] | type[Written] = Fault if kind == FAULT else Written
            said = msgspec.msgpack.decode(content, type=wanted)
        except BlockingIOError as error:
            self._packer.hung(process)
            raise PackerFailed(f"{_PACKER}: the process said nothing for {_SILENCE_LIMIT_S} s") from error
        except (OSError, EOFError, msgspec.DecodeError) as error:
            status = self._packer.close(process)
            raise PackerFailed(f"{_PACKER}: the process ended, exit status {status}") from error
        self._packer.finish(process)
        if isinstance(said, Fault):
            raise _FAULTS[said.kind](said.reason)
        self._written = said
