"""Who runs: a process id together with what tells the process from a later one that got the same id.

A process id is used again.  So the file also holds when the process began, in ticks since the boot, and which boot that
was; whatever does not fit all three is another process, and never gets a signal.
An edge file: it reads /proc and its own files, and sends signals.
"""

import contextlib
import json
import os
import signal
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, Self

from sprocket.processes.child_process import await_readable

_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
# Fields of /proc/<pid>/stat behind the command's closing parenthesis; proc(5) numbers them 3 and 22.
_STATE: Final = 0
_START_TICKS: Final = 19


@dataclass(frozen=True)
class ProcessIdentity:
    """One process of this machine, and no other, ever."""

    pid: int
    start_ticks: int
    boot_id: str

    @classmethod
    def of(cls, pid: int) -> Self | None:
        """The process that has this id now; None if there is none, or nothing but its exit status is left of it."""
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return None
        return None if fields[_STATE] in "ZX" else cls(pid, int(fields[_START_TICKS]), _BOOT_ID.read_text().strip())

    def is_running(self) -> bool:
        """Whether this very process runs."""
        return self.of(self.pid) == self

    def send(self, number: signal.Signals) -> bool:
        """Send a signal to this very process; False if it is gone."""
        with self._handle() as handle:
            if handle is None:
                return False
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(handle, number)
            return True

    def await_end(self, limit_s: float) -> bool:
        """Whether it ends within `limit_s`."""
        with self._handle() as handle:
            return handle is None or await_readable(handle, limit_s)

    @contextlib.contextmanager
    def _handle(self) -> Iterator[int | None]:
        """A descriptor of this very process, which no later one with its id can take over; None if it is gone."""
        try:
            handle = os.pidfd_open(self.pid)
        except ProcessLookupError:
            yield None
            return
        try:
            # Looked at with the handle in hand: from here on the handle stays with whom was looked at.
            yield handle if self.is_running() else None
        finally:
            os.close(handle)


class PidFile:
    """The file that says which process a member of a cluster is."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @property
    def exists(self) -> bool:
        """Whether a process was started and not stopped in order."""
        return self._path.exists()

    def write(self, pid: int) -> None:
        """Say that `pid`, which runs, is the member.  Nothing if it has ended already."""
        identity = ProcessIdentity.of(pid)
        if identity is not None:
            new = self._path.with_suffix(".new")
            new.write_text(json.dumps(asdict(identity)) + "\n")
            new.replace(self._path)

    def running(self) -> ProcessIdentity | None:
        """The process that it names, if that runs."""
        try:
            identity = ProcessIdentity(**json.loads(self._path.read_text()))
        except (OSError, ValueError, TypeError):
            return None
        return identity if identity.is_running() else None

    def remove(self) -> None:
        """Say that the member was stopped."""
        self._path.unlink(missing_ok=True)
