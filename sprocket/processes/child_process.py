"""A process that says in one line that it is ready, and is ended by the object that started it.

An edge file: it starts processes, reads what they say, and ends them.
"""

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from sprocket.common.errors import SprocketError

_STOP_LIMIT_S: Final = 20.0
# From the end of a process's output to its own end.
_HUNG_UP_S: Final = 1.0
_TAIL_CHARACTERS: Final = 4000


class ProcessNotStarted(SprocketError):
    """A process ended or said nothing in time; the text holds the end of its log."""


def await_readable(descriptor: int, limit_s: float) -> bool:
    """Whether there is something to read, or the other side has hung up, within `limit_s`; whatever its number."""
    waiting = select.poll()
    waiting.register(descriptor, select.POLLIN)
    return bool(waiting.poll(limit_s * 1000))


def isolated(module: str, *arguments: str) -> list[str]:
    """The command that runs `module` by itself: it outlives this process."""
    return [sys.executable, "-I", "-m", module, *arguments]


def bound(module: str, *arguments: str) -> list[str]:
    """The command that runs `module` in a process that ends with this one, however this one ends."""
    return isolated("sprocket.processes.bound", str(os.getpid()), module, *arguments)


def end_of(log: Path) -> str:
    """The last lines of a log; nothing if there is none."""
    return log.read_text(errors="replace")[-_TAIL_CHARACTERS:] if log.exists() else ""


class ChildProcess:
    """One process, started again and again with `command`; what it says on stderr is added to `log`.

    With `is_detached` it gets a session of its own: signals from this one's terminal do not reach it.
    """

    def __init__(
        self, name: str, command: Sequence[str], directory: Path, log: Path | None = None, *, is_detached: bool = False
    ) -> None:
        self.name = name
        self.command = list(command)
        self.directory = directory
        self.log = log or directory / f"{name}.log"
        self._is_detached = is_detached
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """Raises ProcessNotStarted when it does not run."""
        if self._process is None:
            raise ProcessNotStarted(f"{self.name} does not run")
        return self._process.pid

    @property
    def exit_status(self) -> int | None:
        """None while it runs, and before it was started."""
        return None if self._process is None else self._process.poll()

    def launch(self) -> None:
        """Start it; `ready_line` says when it is ready."""
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=self.directory,
                start_new_session=self._is_detached,
            )

    def ready_line(self, limit_s: float) -> bytes:
        """The first line that it says.  Raises ProcessNotStarted if there is none in time."""
        assert self._process is not None and self._process.stdout is not None
        out = self._process.stdout
        line = out.readline() if await_readable(out.fileno(), limit_s) else b""
        if not line:
            status = self._end_status()
            why = f"did not start within {limit_s:g} s" if status is None else f"did not start: it ended with {status}"
            raise ProcessNotStarted(f"{self.name} {why}; end of its log:\n{self.tail()}")
        return line

    def _end_status(self) -> int | None:
        """The exit status of a process that has hung up, None if it goes on."""
        assert self._process is not None
        try:
            return self._process.wait(_HUNG_UP_S)
        except subprocess.TimeoutExpired:
            return None

    def facts(self, limit_s: float) -> dict[str, object]:
        """What a server started with ``--json`` says once it listens.  Raises ProcessNotStarted."""
        facts: dict[str, object] = json.loads(self.ready_line(limit_s))
        return facts

    def end(self, how: signal.Signals, limit_s: float = _STOP_LIMIT_S) -> None:
        """Send `how` and wait; SIGKILL follows if it takes longer than `limit_s`.  Nothing if it does not run."""
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
        """Let it run on by itself: this object forgets it."""
        process, self._process = self._process, None
        if process is not None and process.stdout is not None:
            process.stdout.close()

    def tail(self) -> str:
        """The end of its log."""
        return end_of(self.log)
