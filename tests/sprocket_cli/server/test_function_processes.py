"""The supervisor of deployed functions, with a table in memory."""

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import pytest

from sprocket.client.connect import Connection
from sprocket.client.connection.client_instance import ClientSettings
from sprocket.client.errors import ClientError
from sprocket.functions.deployments import DEPLOYMENTS, STATUS, Deployment, Status, Version
from sprocket.functions.package import digest
from sprocket_cli.server import function_processes
from sprocket_cli.server.function_processes import FunctionProcesses, Machine
from tests.clock import ManualClock
from tests.waiting import until


class _Table(dict[str, Any]):
    """A table whose first watcher is refused."""

    def __init__(self) -> None:
        super().__init__()
        self.watchers = 0

    async def start(self) -> None:
        pass

    async def put(self, key: str, value: object) -> None:
        self[key] = value

    async def delete(self, key: str) -> None:
        self.pop(key, None)

    async def watch(self) -> AsyncIterator[tuple[str, object]]:
        self.watchers += 1
        if self.watchers == 1:
            raise ClientError("no permission any more")
        self["late"] = Deployment("late", 1, [], is_stopped=True)
        yield "late", self["late"]
        await asyncio.Event().wait()


class _Connection:
    admin = None

    def __init__(self) -> None:
        self._tables: dict[str, _Table] = {}

    def table(self, topic: str, kind: object) -> _Table:
        return self._tables.setdefault(topic, _Table())

    async def start(self) -> None:
        pass

    close = start


async def test_deployments_are_followed_again_after_a_refusal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(function_processes, "_RETRY_S", 0)
    connection = _Connection()
    machine = Machine("here", ClientSettings(namesrv="127.0.0.1:1"), tmp_path)
    processes = FunctionProcesses(cast("Connection", connection), machine, (), ManualClock())
    await processes.start()
    reports = connection.table(STATUS, Status)
    async with asyncio.timeout(10):
        while "late/here/-1" not in reports:
            await asyncio.sleep(0)
    assert reports["late/here/-1"].state == "stopped"
    await processes.stop()


async def test_a_first_version_that_does_not_start_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(function_processes, "_REFUSED_S", 0.01)
    ends = [sys.executable, "-I", "-c", "import sys; sys.exit('its broker is down')"]
    monkeypatch.setattr(function_processes, "bound", lambda *words: ends)
    (tmp_path / "billing").mkdir()
    (tmp_path / "billing" / f"{digest(b'code')}.zip").write_bytes(b"code")
    connection = _Connection()
    version = Version(1, digest(b"code"), "billing", [], 0, "me")
    connection.table(DEPLOYMENTS, Deployment)["billing"] = Deployment("billing", 1, [version])
    machine = Machine("here", ClientSettings(namesrv="127.0.0.1:1"), tmp_path)
    processes = FunctionProcesses(cast("Connection", connection), machine, ("billing",), ManualClock())
    await processes.start()
    log = tmp_path / "billing" / "0.log"
    await until(lambda: log.exists() and log.read_text().count("its broker is down") >= 2)
    report = connection.table(STATUS, Status)["billing/here/-1"]
    assert report.state == "failed" and "version 1 does not start" in report.error
    assert report.error.count("its broker is down") == 1  # of the last start alone
    await processes.stop()
