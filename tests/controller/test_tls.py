"""Three controllers on Raft that demand TLS of everybody, with a secret, and one that does not know the secret."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from controller.config import ControllerConfig
from controller.server import Controller
from sprocket.common.errors import SprocketError
from sprocket.remoting.client import RemotingClient
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.headers.controller import ApplyBrokerIdRequestHeader, GetNextBrokerIdRequestHeader
from sprocket.remoting.pending import ConnectionLost
from sprocket.remoting.tls.settings import ENFORCING, TlsSettings
from sprocket.remoting.tls.watch import ClientTls
from tests.compat.ports import free_port
from tests.remoting.tls_files import Files

_LIMIT_S = 30.0
NAMES = {"cluster_name": "c", "broker_name": "broker-a"}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return Files(tmp_path_factory.mktemp("tls"))


def member(files: Files, name: str) -> TlsSettings:
    """A controller that shows its certificate to all, and demands theirs."""
    certificate, key = files.issue(name, "127.0.0.1")
    return TlsSettings(
        server_mode=ENFORCING, enable=True, config_file=None, server_cert_path=certificate, server_key_path=key,
        server_need_client_auth="require", server_trust_cert_path=files.ca, client_cert_path=certificate,
        client_key_path=key, client_trust_cert_path=files.ca,
    )  # fmt: skip


@asynccontextmanager
async def controllers(files: Files, root: Path, secrets: list[str]) -> AsyncIterator[list[Controller]]:
    """A controller for each of `secrets`, in one process."""
    peers = ";".join(f"n{number}-127.0.0.1:{free_port()}" for number in range(len(secrets)))
    running, failures = [], list[SprocketError]()
    for number, secret in enumerate(secrets):
        file = root / f"secret-{number}"
        file.write_text(secret)
        config = ControllerConfig(
            bind_address="127.0.0.1", controller_dleger_group="g", controller_dleger_peers=peers,
            controller_dleger_self_id=f"n{number}", controller_store_path=root / f"n{number}",
            controller_raft_port_offset=1, ha_secret_file=str(file),
        )  # fmt: skip
        running.append(Controller(config, tls=member(files, f"n{number}"), on_fatal=failures.append))
    try:
        for controller in running:
            await controller.start()
        yield running
    finally:
        for controller in running:
            await controller.stop()
    assert not failures


async def leader_of(running: list[Controller]) -> Controller:
    deadline = time.monotonic() + _LIMIT_S
    while True:
        for controller in running:
            if controller.consensus.is_leader:
                return controller
        assert time.monotonic() < deadline, "no leader"
        await asyncio.sleep(0.05)


async def test_controllers_agree_and_serve_over_tls_alone(files: Files, tmp_path: Path) -> None:
    async with controllers(files, tmp_path, ["s", "s", "s"]) as running:
        leader = await leader_of(running)
        address = f"127.0.0.1:{leader.port}"
        client = RemotingClient(tls=ClientTls(files.client("admin")))
        apply = ApplyBrokerIdRequestHeader(**NAMES, applied_broker_id=1, register_check_code="h:1;1")
        answer = await client.invoke(address, RequestCode.CONTROLLER_APPLY_BROKER_ID, apply, timeout_s=10)
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        plain = RemotingClient()
        with pytest.raises(ConnectionLost):
            await plain.invoke(
                address, RequestCode.CONTROLLER_GET_NEXT_BROKER_ID, GetNextBrokerIdRequestHeader(**NAMES)
            )
        deadline = time.monotonic() + _LIMIT_S
        while any(one.machine.group("broker-a") is None for one in running):
            assert time.monotonic() < deadline
            await asyncio.sleep(0.05)
        assert len({one.machine.snapshot() for one in running}) == 1
        for one in (client, plain):
            await one.close()


async def test_a_controller_with_another_secret_is_refused_by_name(
    files: Files, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with controllers(files, tmp_path, ["s", "other"]) as running:
        deadline = time.monotonic() + _LIMIT_S
        while "the members have different secrets" not in caplog.text:
            assert time.monotonic() < deadline, caplog.text
            await asyncio.sleep(0.05)
        assert not any(one.consensus.is_leader for one in running)
