"""Files with a process id, and with what distinguishes the process from a later one with the same id.

The system reuses process ids.  So the file also holds the start of the process, in ticks since the boot, and the id of
that boot.  A process that differs in one of the three is another one and gets no signal.
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

from sprocket.common.processes.child_process import await_readable

_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
# Fields of /proc/<pid>/stat after the command's closing parenthesis; proc(5) numbers them 3 and 22.
_STATE: Final = 0
_START_TICKS: Final = 19


@dataclass(frozen=True)
class ProcessIdentity:
    """Identity of one process of this machine, which no later process shares."""

    pid: int
    start_ticks: int
    boot_id: str

    @classmethod
    def of(cls, pid: int) -> Self | None:
        """Return the process with this id now; None if there is none, or if it has ended and waits for its parent."""
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return None
        return None if fields[_STATE] in "ZX" else cls(pid, int(fields[_START_TICKS]), _BOOT_ID.read_text().strip())

    def is_running(self) -> bool:
        """Return whether this process still runs."""
        return self.of(self.pid) == self

    def send(self, number: signal.Signals) -> bool:
        """Send a signal to this process; return False if it has ended."""
        with self._handle() as handle:
            if handle is None:
                return False
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(handle, number)
            return True

    def await_end(self, limit_s: float) -> bool:
        """Wait for its end; return whether it ends within `limit_s`."""
        with self._handle() as handle:
            return handle is None or await_readable(handle, limit_s)

    @contextlib.contextmanager
    def _handle(self) -> Iterator[int | None]:
        """Yield a descriptor of this process, which no later process can take over; None if it has ended."""
        try:
            handle = os.pidfd_open(self.pid)
        except ProcessLookupError:
            yield None
            return
        try:
            # Check after opening: the handle stays bound to the process that is checked.
            yield handle if self.is_running() else None
        finally:
            os.close(handle)


class PidFile:
    """File with the process of one member of a cluster."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @property
    def exists(self) -> bool:
        """Whether a process was started and not stopped in order."""
        return self._path.exists()

    def write(self, pid: int) -> None:
        """Record the running process `pid`; do nothing if it has ended."""
        identity = ProcessIdentity.of(pid)
        if identity is not None:
            new = self._path.with_suffix(".new")
            new.write_text(json.dumps(asdict(identity)) + "\n")
            new.replace(self._path)

    def running(self) -> ProcessIdentity | None:
        """Return the recorded process, None if it does not run."""
        try:
            identity = ProcessIdentity(**json.loads(self._path.read_text()))
        except (OSError, ValueError, TypeError):
            return None
        return identity if identity.is_running() else None

    def remove(self) -> None:
        """Record that the member was stopped."""
        self._path.unlink(missing_ok=True)
