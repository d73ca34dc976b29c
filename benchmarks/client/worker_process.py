"""A client that is measured in a process of its own, which answers each line with a line of JSON."""

import json
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path


class WorkerProcess:
    """The process of one client; the constructor returns when the client is connected."""

    def __init__(
        self, command: Sequence[str], *, environment: Mapping[str, str] | None = None, cwd: Path | None = None
    ) -> None:
        self._process = subprocess.Popen(
            command, env=environment, cwd=cwd, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._answer()

    def _answer(self) -> dict[str, float]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"a client ended with status {self._process.wait()}; its error is above")
        answer: dict[str, float] = json.loads(line)
        return answer

    def measured(self, workload: str, count: int) -> dict[str, float]:
        """Return the client's figures for `count` messages: CPU us for each, messages per second."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{workload} {count}\n")
        self._process.stdin.flush()
        return self._answer()

    def stop(self) -> None:
        """Let the process end."""
        self._process.communicate()
