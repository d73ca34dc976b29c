"""A command waits for a name server that has just been started, and not for long."""

import asyncio
from contextlib import ExitStack
from pathlib import Path

import pytest
from click.testing import CliRunner

from sprocket.client.admin.admin_client import AdminClient, AdminError
from sprocket.client.admin.admin_requests import NothingListens
from sprocket.remoting.codes import RequestCode
from sprocket.remoting.command import ReceivedResponse
from sprocket_cli import patient_admin
from sprocket_cli.mqadmin.main import main as mqadmin
from sprocket_cli.patient_admin import START_LIMIT_S, PatientAdminClient
from tests.compat.ports import free_port
from tests.sprocket_cli.programs import server


async def test_a_name_server_that_starts_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patient_admin, "START_LIMIT_S", 60.0)  # however busy the machine is
    port = free_port()
    with ExitStack() as servers:
        async with PatientAdminClient([f"127.0.0.1:{port}"]) as admin:
            topics = asyncio.create_task(admin.topic_list())
            starting = server(tmp_path, "namesrv", "--set", f"listenPort={port}")
            await asyncio.to_thread(servers.enter_context, starting)
            assert await topics == []


def test_mqadmin_is_patient(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []

    class Noticed(PatientAdminClient):
        async def topic_list(self) -> list[str]:
            made.append(self)
            return []

    monkeypatch.setattr(patient_admin, "PatientAdminClient", Noticed)
    assert CliRunner().invoke(mqadmin, ["topicList", "-n", "127.0.0.1:1"]).exit_code == 0
    assert made


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The addresses that were asked; nobody listens at any."""
    asked: list[str] = []

    async def ask(self: AdminClient, address: str, *_: object, **__: object) -> ReceivedResponse:
        asked.append(address)
        raise NothingListens(f"connect to {address}: connection refused")

    async def no_pause(_: float) -> None:
        pass

    monkeypatch.setattr(AdminClient, "ask", ask)
    monkeypatch.setattr(patient_admin.asyncio, "sleep", no_pause)
    return asked


async def test_only_the_last_name_server_is_waited_for_and_once(asked: list[str]) -> None:
    admin = PatientAdminClient(["a:1", "b:1"])
    tries = round(START_LIMIT_S / 0.1) + 1
    with pytest.raises(AdminError, match="b:1"):
        await admin.topic_list()
    assert asked[0] == "a:1"
    assert asked.count("a:1") == 1
    assert abs(asked.count("b:1") - tries) <= 1
    asked.clear()
    # The time is that of the whole command.
    with pytest.raises(AdminError):
        await admin.topic_list()
    assert asked == ["a:1", "b:1"]


async def test_a_broker_is_not_waited_for(asked: list[str]) -> None:
    with pytest.raises(AdminError):
        await PatientAdminClient(["a:1"]).ask("broker:1", RequestCode.GET_BROKER_RUNTIME_INFO)
    assert asked == ["broker:1"]
