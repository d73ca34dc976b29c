"""Child process that prints one line when it is ready.

An edge file: it starts processes, reads their output, and ends them.
"""

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from sprocket.common.errors import SprocketError

_STOP_LIMIT_S: Final = 20.0
# Time from the end of a process's output to its exit.
_HUNG_UP_S: Final = 1.0
_TAIL_CHARACTERS: Final = 4000


class ProcessNotStarted(SprocketError):
    """A process ended, or printed nothing in time; the text has the end of its log."""


def await_readable(descriptor: int, limit_s: float) -> bool:
    """Return whether `descriptor` becomes readable or closed within `limit_s`; unlike select(2), any number works."""
    waiting = select.poll()
    waiting.register(descriptor, select.POLLIN)
    return bool(waiting.poll(limit_s * 1000))


def isolated(module: str, *arguments: str) -> list[str]:
    """Return the command that runs `module` in a process that outlives this one."""
    return [sys.executable, "-I", "-m", module, *arguments]


def bound(module: str, *arguments: str) -> list[str]:
    """Return the command that runs `module` in a process that ends when this one ends for any reason.

    The system sends the signal when the thread that launched the process ends: launch it in one that lives as long.
    """
    return isolated("sprocket.common.processes.bound", str(os.getpid()), module, *arguments)


def end_of(log: Path, begin: int = 0) -> str:
    """Return the last characters of a log after its first `begin` bytes, "" if there is none."""
    return log.read_bytes()[begin:].decode(errors="replace")[-_TAIL_CHARACTERS:] if log.exists() else ""


class ChildProcess:
    """One process, which `launch` may start several times; its stderr is appended to `log`.

    With `is_detached` it has a session of its own, so signals of this process's terminal do not reach it.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        directory: Path,
        log: Path | None = None,
        *,
        is_detached: bool = False,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """`environment` has variables beside those of this process."""
        self.name = name
        self.command = list(command)
        self.directory = directory
        self.log = log or directory / f"{name}.log"
        self._is_detached = is_detached
        self._environment = dict(environment or {})
        self._process: subprocess.Popen[bytes] | None = None
        self._log_begin = 0  # where the log of the last launch begins, bytes

    @property
    def pid(self) -> int:
        """Process id.  Raises ProcessNotStarted if it does not run."""
        if self._process is None:
            raise ProcessNotStarted(f"{self.name} does not run")
        return self._process.pid

    @property
    def exit_status(self) -> int | None:
        """Exit status; None while it runs, and before its start."""
        return None if self._process is None else self._process.poll()

    def launch(self) -> None:
        """Start the process; `ready_line` waits until it is ready."""
        with self.log.open("ab") as log:
            self._log_begin = log.tell()
            self._process = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=self.directory,
                env=os.environ | self._environment,
                start_new_session=self._is_detached,
            )

    def ready_line(self, limit_s: float) -> bytes:
        """Wait for the first line of its output and return it.  Raises ProcessNotStarted if there is none in time."""
        assert self._process is not None and self._process.stdout is not None
        out = self._process.stdout
        line = out.readline() if await_readable(out.fileno(), limit_s) else b""
        if not line:
            status = self._end_status()
            why = f"did not start within {limit_s:g} s" if status is None else f"did not start: it ended with {status}"
            raise ProcessNotStarted(f"{self.name} {why}; end of its log:\n{end_of(self.log, self._log_begin)}")
        return line

    def _end_status(self) -> int | None:
        """Return the exit status of a process that closed its output, None if it still runs."""
        assert self._process is not None
        try:
            return self._process.wait(_HUNG_UP_S)
        except subprocess.TimeoutExpired:
            return None

    def facts(self, limit_s: float) -> dict[str, object]:
        """Return the start line of a server that runs with ``--json``.  Raises ProcessNotStarted."""
        facts: dict[str, object] = json.loads(self.ready_line(limit_s))
        return facts

    def end(self, how: signal.Signals, limit_s: float = _STOP_LIMIT_S) -> None:
        """Send the signal `how` and wait; send SIGKILL after `limit_s`.  Do nothing if it does not run."""
        process, self._process = self._process, None
        if process is None:
            return
        if process.poll() is None:
            process.send_signal(how)
            try:
                process.wait(limit_s)
            except subprocess.TimeoutExpired:
                process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()

    def release(self) -> None:
        """Leave the process running and forget it."""
        process, self._process = self._process, None
        if process is not None and process.stdout is not None:
            process.stdout.close()

    def shorten_log(self, max_bytes: int) -> None:
        """Keep the end of a log that is longer: half of `max_bytes`.  The process appends, so it goes on there."""
        with contextlib.suppress(OSError):  # the disk is full, or somebody removed the log
            if self.log.stat().st_size > max_bytes:
                with self.log.open("r+b") as file:
                    file.seek(-max_bytes // 2, os.SEEK_END)
                    kept = file.read()
                    file.seek(0)
                    file.truncate()
                    file.write(kept)

    def tail(self) -> str:
        """Return the end of its log."""
        return end_of(self.log)
