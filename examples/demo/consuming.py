"""The two consumer processes, and the keys in their files."""

import signal
from pathlib import Path
from typing import TextIO

from examples.demo.settings import GROUP
from sprocket.common.errors import SprocketError
from sprocket.common.processes.child_process import ChildProcess, bound

_START_LIMIT_S = 30.0
_STOP_LIMIT_S = 15.0


class ConsumerFailed(SprocketError):
    """A consumer process ended unexpectedly; the text has the end of its log."""


class ConsumerProcess:
    """Consumer in a process of its own; `path` is the file that it writes, see `consumer_process`."""

    def __init__(self, name: str, directory: Path, namesrv: str) -> None:
        self.name = name
        self.path = directory / f"received-{name}.csv"
        self._tail: TextIO | None = None
        self._rest = ""
        command = bound("examples.demo.consumer_process", GROUP, namesrv, str(self.path))
        self._process = ChildProcess(f"consumer-{name}", command, directory)
        self._process.launch()

    def wait_until_ready(self) -> None:
        """Wait until it is ready.  Raises ProcessNotStarted."""
        self._process.ready_line(_START_LIMIT_S)

    def new_keys(self) -> list[str]:
        """Return the keys that it has written since the last call.  Raises ConsumerFailed if it has ended."""
        if (status := self._process.exit_status) not in (None, 0):
            raise ConsumerFailed(f"consumer {self.name} ended with {status}:\n{self._process.tail()}")
        if self._tail is None:
            self._tail = self.path.open()
        *lines, self._rest = (self._rest + self._tail.read()).split("\n")
        return [line[: line.index(",")] for line in lines]

    def stop(self) -> None:
        """Send SIGTERM, on which it commits its offsets; send SIGKILL if it takes too long."""
        self._process.end(signal.SIGTERM, _STOP_LIMIT_S)


class Received:
    """Keys that all consumers have received, and the total number of messages."""

    def __init__(self) -> None:
        self.keys: set[str] = set()
        self.total = 0

    def add(self, keys: list[str]) -> None:
        self.keys.update(keys)
        self.total += len(keys)

    @property
    def duplicates(self) -> int:
        """Messages that were received again."""
        return self.total - len(self.keys)
