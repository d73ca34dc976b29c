"""The two consumer processes, and what they have written so far."""

import signal
from pathlib import Path
from typing import TextIO

from sprocket.common.errors import SprocketError
from sprocket.demo.settings import GROUP
from sprocket.processes.child_process import ChildProcess, bound

_START_LIMIT_S = 30.0
_STOP_LIMIT_S = 15.0


class ConsumerFailed(SprocketError):
    """A consumer process ended by itself; the text holds the end of its log."""


class ConsumerProcess:
    """One consumer; `path` is the file that it writes, see `consumer_process`."""

    def __init__(self, name: str, directory: Path, namesrv: str) -> None:
        self.name = name
        self.path = directory / f"received-{name}.csv"
        self._tail: TextIO | None = None
        self._rest = ""
        command = bound("sprocket.demo.consumer_process", GROUP, namesrv, str(self.path))
        self._process = ChildProcess(f"consumer-{name}", command, directory)
        self._process.launch()

    def wait_until_ready(self) -> None:
        """Raises ProcessNotStarted if it does not start."""
        self._process.ready_line(_START_LIMIT_S)

    def new_keys(self) -> list[str]:
        """Keys of the messages that it has written since the last call.  Raises ConsumerFailed if it has ended."""
        if (status := self._process.exit_status) not in (None, 0):
            raise ConsumerFailed(f"consumer {self.name} ended with {status}:\n{self._process.tail()}")
        if self._tail is None:
            self._tail = self.path.open()
        *lines, self._rest = (self._rest + self._tail.read()).split("\n")
        return [line[: line.index(",")] for line in lines]

    def stop(self) -> None:
        """SIGTERM, so that it commits its offsets; SIGKILL follows if it takes too long."""
        self._process.end(signal.SIGTERM, _STOP_LIMIT_S)


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
