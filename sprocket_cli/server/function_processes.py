"""Instances of deployed functions on this machine: as many processes as deployments say, of the version that they say.

An edge file: it keeps code and logs in a directory, and polls processes.
"""

import asyncio
import contextlib
import fcntl
import hmac
import logging
import os
import signal
from collections.abc import Collection
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Final, NamedTuple

import msgspec

from sprocket.client.connect import Connection
from sprocket.client.connection.client_instance import ClientSettings
from sprocket.client.errors import ClientError
from sprocket.common.clock import Clock
from sprocket.common.errors import ConfigError, SprocketError
from sprocket.common.files.atomic_file import replace_file
from sprocket.common.logs.peer_lines import peer_lines
from sprocket.common.processes.child_process import ChildProcess, ProcessNotStarted, bound
from sprocket.functions.deployments import Deployment, Registry, Status, sign
from sprocket.functions.instance import InstanceArguments
from sprocket.functions.package import is_package
from sprocket_cli.processes.supervised_process import SupervisedProcess

logger = logging.getLogger(__name__)

_READY_S: Final = 60.0
_REPORT_S: Final = 5.0
_RETRY_S: Final = 5.0
_REFUSED_S: Final = 15.0
_MAX_REPORTED_LOG_CHARS: Final = 64_000
_MAX_INSTANCES: Final = 256
_WHY_ENDED: Final = {
    -signal.SIGALRM: "was ended, because a handler blocked the event loop: its log has the line; await what takes "
    "long, or call it with asyncio.to_thread",
    -signal.SIGKILL: "was killed, perhaps by the system for want of memory: set --memory-mb, or give the machine more",
}


@dataclass(frozen=True)
class Machine:
    """What all instances of a machine have in common.

    With `key` only code that is signed with it runs.  Instances serve metrics from `metrics_port` on, 0: none.
    """

    name: str
    client: ClientSettings
    directory: Path
    key: bytes | None = None
    metrics_port: int = 0


class FunctionProcesses:
    """Supervisor of the deployments `names`, none: of all; a `Server` of `sprocket_cli.server.server_process`."""

    def __init__(self, connection: Connection, machine: Machine, names: Collection[str], clock: Clock) -> None:
        self._connection = connection
        self._machine = machine
        self._names = names
        self._clock = clock
        self._registry = Registry(connection)
        self._running: dict[str, _Deployed] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._lock: IO[bytes] | None = None

    async def start(self) -> None:
        """Start what is deployed.  Raises ConfigError, ClientError."""
        directory = self._machine.directory
        await self._connection.start()
        await self._registry.start()  # a cluster that refuses leaves no directory here
        directory.mkdir(parents=True, exist_ok=True)
        self._lock = (directory / "lock").open("wb")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise ConfigError(f"another `sprocket function run` uses {directory}: pass another --dir") from None
        self._tasks = [asyncio.create_task(self._follow()), asyncio.create_task(self._report())]

    async def stop(self) -> None:
        """End all instances after the inputs in work."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(*(deployed.stop() for deployed in self._running.values()))
        await self._connection.close()
        if self._lock is not None:
            self._lock.close()

    async def _follow(self) -> None:
        table = self._registry.table
        while True:
            changes = table.watch()
            for name in {*table, *self._running}:
                self._changed(name)
            try:
                async for name, _ in changes:
                    self._changed(name)
            except ClientError as error:  # as for rights that were taken away, and may come back
                peer_lines.warning(logger, "", "event=functions_not_followed reason=%r", str(error))
            await asyncio.sleep(_RETRY_S)

    def _changed(self, name: str) -> None:
        if self._names and name not in self._names:
            return
        if name not in self._running:
            self._running[name] = _Deployed(name, self._machine, self._registry, self._clock)
        self._running[name].changed.set()

    async def _report(self) -> None:
        while True:
            await asyncio.sleep(_REPORT_S)
            for deployed in list(self._running.values()):
                await deployed.report()


class _Slot(NamedTuple):
    """One instance: its process, and what it runs."""

    process: SupervisedProcess
    child: ChildProcess
    deployment: Deployment

    def runs(self, wanted: Deployment) -> bool:
        """Whether nothing has to change."""
        own = self.deployment
        return (own.current, own.memory_mb, own.cpus) == (wanted.current, wanted.memory_mb, wanted.cpus)


class _Deployed:
    """One deployment here.  A change replaces one instance after the other.

    If an instance of the new version does not start, the one before starts again, and the others stay as they are.
    Without one before the start is tried again.
    """

    def __init__(self, name: str, machine: Machine, registry: Registry, clock: Clock) -> None:
        self.changed = asyncio.Event()
        self._name = name
        self._machine = machine
        self._registry = registry
        self._clock = clock
        self._directory = machine.directory / name
        self._slots: dict[int, _Slot] = {}
        self._state, self._error = "starting", ""
        self._refused: Deployment | None = None  # it failed at its start, and the one before goes on
        self._retry = asyncio.get_running_loop().call_soon(self.changed.set)
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """End all instances, and delete the reports."""
        self._task.cancel()
        self._retry.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        await self._end(list(self._slots))
        await self._forget(-1)

    async def _run(self) -> None:
        while True:
            await self.changed.wait()
            self.changed.clear()
            wanted = self._registry.table.get(self._name)
            try:
                if wanted is None or wanted.is_stopped:
                    self._state, self._error = "stopped", ""
                    await self._end(list(self._slots))
                elif wanted != self._refused:
                    await self._roll(wanted)
                    self._state, self._error = "running", ""
            except (ConfigError, ProcessNotStarted) as error:
                if wanted != self._refused:  # what it needs may come up later
                    self._retry.cancel()
                    self._retry = asyncio.get_running_loop().call_later(_REFUSED_S, self.changed.set)
                self._state, self._error = "failed", f"version {wanted and wanted.current} does not start: {error}"
                peer_lines.error(logger, "", "event=function_refused name=%s reason=%r", self._name, self._error)
            except (SprocketError, OSError) as error:
                self._state, self._error = "waiting", str(error)
                peer_lines.warning(logger, "", "event=function_waits name=%s reason=%r", self._name, str(error))
                await asyncio.sleep(_RETRY_S)
                self.changed.set()
            await self.report()

    async def _roll(self, wanted: Deployment) -> None:
        """Replace instances one by one.  Raises ConfigError, ProcessNotStarted, ClientError, OSError."""
        try:
            code = await self._code(wanted)
        except ConfigError:
            self._refused = wanted if self._slots else None
            raise
        count = min(wanted.instances, _MAX_INSTANCES)
        await self._end([index for index in self._slots if index >= count])
        for index in range(count):
            before = self._slots.get(index)
            if before is not None and before.runs(wanted):
                continue
            self._state, self._error = "rolling", f"instance {index + 1} of {count}"
            await self._end([index])
            try:
                await self._begin(index, wanted, code)
            except ProcessNotStarted:
                if before is not None:
                    await self._begin(index, before.deployment, await self._code(before.deployment))
                    self._refused = wanted
                raise

    async def _code(self, deployment: Deployment) -> Path:
        """Return the file with the code of the current version.  Raises ConfigError, ClientError."""
        number, key = deployment.current, self._machine.key
        version = deployment.version(number)
        if key is not None and not hmac.compare_digest(version.signature, sign(key, self._name, version)):
            raise ConfigError(f"version {number} of {self._name} is not signed with the key of this machine")
        path = self._directory / f"{version.sha256}.zip"
        # The topic of packages has those of all deployments, so it is read for a new one only.
        if not await asyncio.to_thread(is_package, path, version.sha256):
            package = await self._registry.code(deployment, number)
            self._directory.mkdir(exist_ok=True)
            await asyncio.to_thread(replace_file, path, package)
        return path

    async def _begin(self, index: int, deployment: Deployment, code: Path) -> None:
        port = self._machine.metrics_port and self._machine.metrics_port + index
        module = deployment.version(deployment.current).module
        given = InstanceArguments(
            self._name, str(code), module, deployment.current, self._machine.name, index, deployment.memory_mb,
            deployment.cpus, port,
        )  # fmt: skip
        arguments, client = msgspec.json.encode(given).decode(), self._machine.client
        place = ["-n", str(client.namesrv), "--namespace", client.namespace]
        command = bound("sprocket_cli", "function", "instance", *place, arguments)
        child = ChildProcess(f"{self._name}-{index}", command, self._directory, self._directory / f"{index}.log")
        process = SupervisedProcess(child, self._clock, ended=partial(self._ended, index))
        await process.start(_READY_S)
        self._slots[index] = _Slot(process, child, deployment)

    def _ended(self, index: int, status: int) -> None:
        """Note why an instance ended by itself; it is started again."""
        self._error = f"instance {index} {_WHY_ENDED.get(status, f'ended with status {status}, see its log')}"

    async def _end(self, indexes: list[int]) -> None:
        async def end(index: int, slot: _Slot) -> None:
            await slot.process.stop()
            await self._forget(index)

        await asyncio.gather(*(end(index, self._slots.pop(index)) for index in indexes if index in self._slots))

    async def _forget(self, index: int) -> None:
        """Delete a report; if no broker takes that, it is shown as lost."""
        with contextlib.suppress(ClientError):
            await self._registry.forget(self._name, self._machine.name, index)

    async def report(self) -> None:
        """Say what runs here, with the ends of the logs; if no broker takes it, the next report says it."""
        logs = []
        for index, slot in sorted(self._slots.items()):
            with contextlib.suppress(OSError):  # somebody removed the log
                logs.append(f"--- instance {index}, version {slot.deployment.current}\n{slot.child.tail()}")
        version = max((slot.deployment.current for slot in self._slots.values()), default=0)
        status = Status(
            self._name, self._machine.name, -1, version, self._state, self._clock.wall_ms(), os.getpid(),
            error=self._error, log="\n".join(logs)[-_MAX_REPORTED_LOG_CHARS:],
        )  # fmt: skip
        with contextlib.suppress(ClientError):
            await self._registry.report(status)
