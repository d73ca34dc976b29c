"""The supervisor of deployed functions, with a table in memory."""

import asyncio
import json
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
        self.changes: asyncio.Queue[str] = asyncio.Queue()

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
        while True:
            name = await self.changes.get()
            yield name, self[name]


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


async def test_an_instance_of_a_half_rolled_version_that_does_not_start_is_not_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(function_processes, "_RETRY_S", 0)
    monkeypatch.setattr(function_processes, "_REPORT_S", 600)  # only turns report
    begun: list[tuple[int, int]] = []

    def bound(*words: str) -> list[str]:
        given = json.loads(words[-1])
        begun.append((given["version"], given["index"]))
        ends = begun[-1] == (2, 1)
        return [sys.executable, "-IS", "-c", "" if ends else "import time; print(flush=True); time.sleep(600)"]

    monkeypatch.setattr(function_processes, "bound", bound)
    (tmp_path / "billing").mkdir()
    (tmp_path / "billing" / f"{digest(b'code')}.zip").write_bytes(b"code")
    versions = [Version(number, digest(b"code"), "billing", [], 0, "me") for number in (1, 2)]
    connection, clock = _Connection(), ManualClock()
    table, reports = connection.table(DEPLOYMENTS, Deployment), connection.table(STATUS, Status)
    table["billing"] = Deployment("billing", 1, versions, instances=2)
    machine = Machine("here", ClientSettings(namesrv="127.0.0.1:1"), tmp_path)
    processes = FunctionProcesses(cast("Connection", connection), machine, ("billing",), clock)
    await processes.start()

    async def turn() -> Status:
        """Wait for the report after the next turn."""
        clock.advance(1)
        table.changes.put_nowait("billing")
        await until(lambda: "billing/here/-1" in reports and reports["billing/here/-1"].at_ms == clock.wall_ms())
        status: Status = reports["billing/here/-1"]
        return status

    assert (await turn()).state == "running"
    table["billing"] = Deployment("billing", 2, versions, instances=2)
    assert (await turn()).state == "failed"
    assert (await turn()).state == "failed"
    assert begun == [(1, 0), (1, 1), (2, 0), (2, 1), (1, 1)]
    await processes.stop()
