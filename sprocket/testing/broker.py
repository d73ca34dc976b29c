"""Broker in a child process, isolated from the caller's import path.

The child runs with ``python -I``, so it never imports a project's own `store`, `broker` or `common` packages.
"""

import asyncio
import shutil
import signal
import tempfile
import threading
from collections.abc import Coroutine, Mapping
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Self

from sprocket.common.extras import install
from sprocket.common.processes.child_process import ChildProcess, ProcessNotStarted, bound

# A full or slow disk of the machine must neither refuse nor remove a test's messages.
_THROWAWAY = {
    "diskSpaceWarningLevelRatio": "100",
    "cleanFileForciblyEnable": "false",
    "brokerFastFailureEnable": "false",
    # Topics of type LITE.
    "enableLmq": "true",
    "enableMultiDispatch": "true",
    # A segment is allocated whole: a gigabyte for each test is more than many machines have.
    "mappedFileSizeCommitLog": str(128 * 1024 * 1024),
}


class BrokerNotStarted(ProcessNotStarted):
    """The broker's process ended or did not start in time; the text holds the end of its log."""


class Broker:
    """One name server and one broker on free ports of 127.0.0.1; a context manager.

    `directory` holds the store and the log; None makes a temporary one that is removed.  `properties` are broker
    properties under RocketMQ's names, such as ``{"defaultTopicQueueNums": "8"}``.
    """

    def __init__(
        self,
        directory: Path | None = None,
        *,
        properties: Mapping[str, str] | None = None,
        start_limit_s: float = 60.0,
    ) -> None:
        self._own_directory = directory is None
        self._directory = directory
        self._properties = dict(properties or {})
        self._start_limit_s = start_limit_s
        self._process: ChildProcess | None = None
        self._port = 0
        self._ha_port = 0
        self._namesrv_port = 0

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()
        if self._own_directory and self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)

    @property
    def namesrv(self) -> str:
        """The `namesrv` argument of clients."""
        return f"127.0.0.1:{self._namesrv_port}"

    @property
    def address(self) -> str:
        """``host:port`` of the broker."""
        return f"127.0.0.1:{self._port}"

    @property
    def pid(self) -> int:
        """Raises BrokerNotStarted when it does not run."""
        if self._process is None:
            raise BrokerNotStarted("the broker does not run")
        return self._process.pid

    @property
    def store(self) -> Path:
        """The directory of the store (`storePathRootDir`)."""
        return self.directory / "store"

    @property
    def directory(self) -> Path:
        if self._directory is None:
            self._directory = Path(tempfile.mkdtemp(prefix="sprocket-"))
        return self._directory

    def start(self) -> None:
        """Start, and wait until the broker is registered.  After `kill` or `stop`: on the same ports and store.

        Raises BrokerNotStarted.
        """
        _check_installed()
        self.store.mkdir(parents=True, exist_ok=True)
        self._process = ChildProcess("broker", self._command(), self.directory)
        self._process.launch()
        try:
            facts = self._facts(self._process)
            self._port = int(facts["port"])
            self._ha_port = int(facts["haListenPort"])
            self._namesrv_port = int(facts["namesrvAddr"].rpartition(":")[2])
            _run_aside(self._wait_registered(facts["cluster"]))
        except BaseException:
            self.kill()
            raise

    def stop(self) -> None:
        """SIGTERM: an orderly stop; SIGKILL when that takes too long."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL: a crash."""
        self._end(signal.SIGKILL)

    def create_topic(self, topic: str, queues: int = 4) -> None:
        """Create `topic` with `queues` queues, or change it.  Raises ClientError."""
        from sprocket.client import arguments

        arguments.check_topic(topic)
        arguments.whole("queues", queues, 1)
        _run_aside(self._create_topic(topic, queues))

    def _end(self, how: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.end(how)

    def _command(self) -> list[str]:
        command = bound("sprocket_cli", "standalone")
        command += ["--store", str(self.store), "--port", str(self._port), "--namesrv-port", str(self._namesrv_port)]
        command += ["--json", "--log-level", "warning"]
        # The port for slaves also stays the same: another process may have the one after listenPort by now.
        ports = {"haListenPort": str(self._ha_port)}
        for key, value in (_THROWAWAY | ports | self._properties).items():
            command += ["--set", f"{key}={value}"]
        return command

    def _facts(self, process: ChildProcess) -> dict[str, str]:
        """Return the facts that the process prints when it listens."""
        try:
            return {key: str(value) for key, value in process.facts(self._start_limit_s).items()}
        except ProcessNotStarted as error:
            raise BrokerNotStarted(str(error)) from None

    async def _wait_registered(self, cluster: str) -> None:
        from sprocket.client.admin.admin_client import AdminClient

        async with AdminClient([self.namesrv]) as admin:
            await admin.wait_for_broker(cluster, 1, within_s=self._start_limit_s)

    async def _create_topic(self, topic: str, queues: int) -> None:
        from sprocket.client.admin.admin_client import AdminClient
        from sprocket.remoting.bodies.topic import TopicConfig

        async with AdminClient([self.namesrv]) as admin:
            await admin.create_topic(self.address, TopicConfig(topic, queues, queues))


def _check_installed() -> None:
    """Raise BrokerNotStarted if the packages of a broker are not installed."""
    missing = [package for package in ("click", "numpy") if find_spec(package) is None]
    if missing:
        raise BrokerNotStarted(f"the broker needs {', '.join(missing)}, not installed here: {install('testing')}")


def _run_aside(work: Coroutine[object, object, None]) -> None:
    """Run `work` in a thread with a loop of its own: the caller may be inside a loop already."""
    failures: list[BaseException] = []

    def run() -> None:
        try:
            asyncio.run(work)
        except BaseException as error:  # handed to the caller
            failures.append(error)

    thread = threading.Thread(target=run, name="sprocket-testing")
    thread.start()
    thread.join()
    if failures:
        raise failures[0]
