"""The two consumer processes, and what they have written so far."""

import select
import signal
import subprocess
import sys
from pathlib import Path
from typing import TextIO

from sprocket.common.errors import SprocketError
from sprocket.demo.cluster import end_with_parent
from sprocket.demo.settings import GROUP

_START_LIMIT_S = 30.0
_STOP_LIMIT_S = 15.0


class ConsumerFailed(SprocketError):
    """A consumer process ended by itself; the text holds the end of its log."""


class ConsumerProcess:
    """One consumer; `path` is the file that it writes, see `consumer_process`."""

    def __init__(self, name: str, directory: Path, namesrv: str) -> None:
        self.name = name
        self.path = directory / f"received-{name}.csv"
        self._log = directory / f"consumer-{name}.log"
        self._tail: TextIO | None = None
        self._rest = ""
        command = [sys.executable, "-I", "-m", "sprocket.demo.consumer_process", GROUP, namesrv, str(self.path)]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=directory,
                preexec_fn=end_with_parent,  # one call into libc
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    def wait_until_ready(self) -> None:
        """Raises ConsumerFailed if it does not start."""
        assert self._process.stdout is not None
        readable, _, _ = select.select([self._process.stdout], [], [], _START_LIMIT_S)
        if not readable or not self._process.stdout.readline():
            raise ConsumerFailed(f"consumer {self.name} did not start:\n{self._log_tail()}")

    def new_keys(self) -> list[str]:
        """Keys of the messages that it has written since the last call.  Raises ConsumerFailed if it has ended."""
        if self._process.poll() not in (None, 0):
            raise ConsumerFailed(f"consumer {self.name} ended with {self._process.returncode}:\n{self._log_tail()}")
        if self._tail is None:
            self._tail = self.path.open()
        *lines, self._rest = (self._rest + self._tail.read()).split("\n")
        return [line[: line.index(",")] for line in lines]

    def stop(self) -> None:
        """SIGTERM, so that it commits its offsets; SIGKILL follows if it takes too long."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(_STOP_LIMIT_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()

    def _log_tail(self) -> str:
        return self._log.read_text(errors="replace")[-2000:] if self._log.exists() else ""


class Received:
    """Which keys all consumers have received, and how often."""

    def __init__(self) -> None:
        self.keys: set[str] = set()
        self.total = 0

    def add(self, keys: list[str]) -> None:
        self.keys.update(keys)
        self.total += len(keys)

    @property
    def duplicates(self) -> int:
        """Messages that came again."""
        return self.total - len(self.keys)
