"""Real servers of the command line, each in a process of its own on a free port."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from sprocket.client.admin.admin_client import AdminClient
from sprocket.remoting.credentials import Credentials

COMMAND = (sys.executable, "-I", "-m", "sprocket_cli")
STOP_TIMEOUT_S = 60


class ServerProcess:
    """A server that has said its start line; `facts` is that line."""

    def __init__(self, process: subprocess.Popen[str], facts: Mapping[str, object], log: Path) -> None:
        self.process = process
        self.facts = facts
        self.log = log

    @property
    def port(self) -> int:
        return int(str(self.facts["port"]))

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Send a signal to this process and wait for its exit status."""
        self.process.send_signal(number)
        return self.process.wait(STOP_TIMEOUT_S)


@contextmanager
def server(folder: Path, name: str, *arguments: str) -> Iterator[ServerProcess]:
    """``sprocket name arguments`` from its start line on; killed at the end if it still runs.

    Its log is ``<name>.log`` in `folder`, which is also its home.
    """
    log = folder / f"{name}.log"
    with log.open("w") as stderr, start(folder, stderr, name, *arguments, "--json") as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line, f"{name} ended with {process.wait(STOP_TIMEOUT_S)}: {log.read_text()}"
            yield ServerProcess(process, json.loads(line), log)
        finally:
            if process.poll() is None:
                process.kill()


def await_masters(namesrv: str, count: int = 1, credentials: Credentials | None = None) -> None:
    """Wait until `count` masters are registered: a broker says its start line before that."""

    async def wait() -> None:
        async with AdminClient(namesrv, credentials=credentials) as admin:
            await admin.wait_for_broker("DefaultCluster", count, within_s=STOP_TIMEOUT_S)

    asyncio.run(wait())


def start(folder: Path, stderr: IO[str], *arguments: str) -> subprocess.Popen[str]:
    """The command `sprocket` in a process with `folder` as home."""
    environment = {"HOME": str(folder), "PATH": os.environ["PATH"]}
    return subprocess.Popen(
        [*COMMAND, *arguments], stdout=subprocess.PIPE, stderr=stderr, text=True, cwd=folder, env=environment
    )


def run(
    folder: Path, *arguments: str, program: str = "sprocket", text: str | None = None
) -> subprocess.CompletedProcess[str]:
    """A command that ends by itself; `program` is the console script's name."""
    command = [str(Path(sys.executable).with_name(program)), *arguments]
    environment = {"HOME": str(folder), "PATH": os.environ["PATH"]}
    return subprocess.run(
        command, input=text, capture_output=True, text=True, cwd=folder, env=environment, timeout=120, check=False
    )


BROKER_FLAGS = (
    "--set", "listenPort=0",
    "--set", "brokerIP1=127.0.0.1",
    "--set", "brokerName=broker-a",
    "--set", "mappedFileSizeCommitLog=16777216",
    "--set", "diskSpaceWarningLevelRatio=100",
    "--set", "cleanFileForciblyEnable=false",
)  # fmt: skip
