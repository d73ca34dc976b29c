"""A name server, a master and a slave under TLS, all Sprocket: no word of theirs is plain, and who may follow."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from broker.config.broker_config import BrokerRole
from broker.server import Broker
from ha.protocol import report
from namesrv.config import NamesrvConfig
from namesrv.server import NameServer
from sprocket.common.errors import ConfigError
from sprocket.common.figures import values
from sprocket.remoting.client import RemotingClient
from sprocket.remoting.codes import RequestCode
from sprocket.remoting.pending import ConnectionLost
from sprocket.remoting.tls.settings import ENFORCING, PERMISSIVE, TlsSettings
from sprocket.remoting.tls.watch import ClientTls
from tests.broker.rig import GROUP, TOPIC, TestClient, broker_config, create, store_config
from tests.broker.slave.test_slave_synchronize import in_step
from tests.broker.test_sessions import session_of
from tests.remoting.tls_files import Files
from tests.waiting import until

_STORE = {"timer_precision_ms": 100, "timer_flush_interval_ms": 20}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return Files(tmp_path_factory.mktemp("tls"))


def member(files: Files, name: str, mode: str = ENFORCING) -> TlsSettings:
    """A server that shows its certificate to clients, to other servers too, and demands theirs."""
    certificate, key = files.issue(name, "127.0.0.1")
    return TlsSettings(
        server_mode=mode, enable=True, config_file=None, server_cert_path=certificate, server_key_path=key,
        server_need_client_auth="require", server_trust_cert_path=files.ca, client_cert_path=certificate,
        client_key_path=key, client_trust_cert_path=files.ca,
    )  # fmt: skip


@asynccontextmanager
async def running(
    root: Path, tls: TlsSettings, *, broker_id: int = 0, namesrv: str = "", store: dict[str, Any] | None = None
) -> AsyncIterator[Broker]:
    role = BrokerRole.SLAVE if broker_id else BrokerRole.ASYNC_MASTER
    config = broker_config(broker_id=broker_id, broker_role=role, broker_ip2="127.0.0.1", namesrv_addr=namesrv)
    broker = Broker(config, store_config(root, **(_STORE | (store or {}))), tls=tls)
    await broker.start()
    try:
        yield broker
    finally:
        await broker.stop()


def client_of(broker: Broker, files: Files) -> TestClient:
    client = TestClient(f"127.0.0.1:{broker.port}")
    client.remoting = RemotingClient(tls=ClientTls(files.client("admin")))
    return client


def ha_address(broker: Broker) -> str:
    return f"127.0.0.1:{broker.config.broker.ha_listen_port}"


async def test_a_cluster_that_demands_tls_of_everybody(files: Files, tmp_path: Path) -> None:
    name_server = NameServer(
        NamesrvConfig(bind_address="127.0.0.1", listen_port=0, kv_config_path=tmp_path / "kv"), tls=member(files, "ns")
    )
    await name_server.start()
    address = f"127.0.0.1:{name_server.port}"
    async with running(tmp_path / "master", member(files, "master"), namesrv=address) as master:
        client = client_of(master, files)
        await client.ask_well(RequestCode.UPDATE_AND_CREATE_TOPIC, create())
        for number in range(30):
            await client.send(b"%d" % number * 3000, queue_id=number % 2)
        master.offsets.commit(GROUP, TOPIC, 0, 7)
        async with running(tmp_path / "slave", member(files, "slave"), broker_id=1, namesrv=address) as slave:
            # It has heard of its master from the name server.
            await until(lambda: session_of(slave) and in_step(master, slave))
            await client.send(b"later")
            await until(lambda: in_step(master, slave))
            info = values(master.replication.figures())
            assert (info["haConnections"], info["haTlsConnections"], info["haSessions"]) == ("1", "1", "1")
            with pytest.raises(ConnectionLost):
                await TestClient(f"127.0.0.1:{slave.port}").ask(RequestCode.GET_BROKER_CONFIG)
        await client.close()
    await name_server.stop()


async def _says_first(broker: Broker, data: bytes) -> bytes:
    """What the port for slaves answers to who begins so; empty if the connection ends."""
    reader, writer = await asyncio.open_connection("127.0.0.1", broker.config.broker.ha_listen_port)
    try:
        writer.write(data)
        return await asyncio.wait_for(reader.read(1), 20)
    except ConnectionResetError:
        return b""
    finally:
        writer.close()


@pytest.mark.parametrize("has_secret", [False, True])
async def test_a_clients_certificate_opens_the_port_for_slaves_only_where_there_is_no_secret(
    files: Files, tmp_path: Path, has_secret: bool
) -> None:
    secret = tmp_path / "replication.secret"
    secret.write_text("known to brokers alone")
    store = {"ha_secret_file": str(secret)} if has_secret else {}
    async with running(tmp_path / "master", member(files, "master"), store=store) as master:
        client = client_of(master, files)
        await client.ask_well(RequestCode.UPDATE_AND_CREATE_TOPIC, create())
        await client.send(b"of the log")
        context = ClientTls(files.client("application")).context()
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", master.config.broker.ha_listen_port, ssl=context, server_hostname="127.0.0.1"
        )
        writer.write(report(0))
        async with asyncio.timeout(30):
            got = await reader.read(1) if has_secret else await reader.readuntil(b"of the log")
        assert (got == b"") is has_secret
        writer.close()
        await client.close()


@pytest.mark.parametrize("allows", [False, True])
async def test_a_slave_in_clear_follows_a_master_that_demands_tls_only_if_that_is_allowed(
    files: Files, tmp_path: Path, allows: bool, caplog: pytest.LogCaptureFixture
) -> None:
    store = {"ha_allow_cleartext": allows, "ha_send_heartbeat_interval": 100}
    async with running(tmp_path, member(files, "master"), store=store) as master:
        answer = await _says_first(master, report(0))
        assert bool(answer) is allows
    assert ("event=connection_refused kind=plain" in caplog.text) is not allows


async def test_a_slave_without_a_certificate_is_refused(files: Files, tmp_path: Path) -> None:
    async with running(tmp_path / "master", member(files, "master")) as master:
        context, port = ClientTls(files.client()).context(), master.config.broker.ha_listen_port
        # With TLS 1.3 the refusal comes after the slave's end of the handshake.
        with pytest.raises((OSError, asyncio.IncompleteReadError)):
            reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname="127.0.0.1")
            writer.write(report(0))
            await reader.readexactly(1)
        assert master.replication.listener.connections == []


@pytest.mark.parametrize("allows", [False, True])
async def test_a_slave_that_wants_tls_takes_no_log_in_clear_unless_that_is_allowed(
    files: Files, tmp_path: Path, allows: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "broker.slave.slave_sessions")
    async with running(tmp_path / "master", member(files, "master", PERMISSIVE)) as master:
        client = client_of(master, files)
        await client.ask_well(RequestCode.UPDATE_AND_CREATE_TOPIC, create())
        await client.send()
        # Without sessions nobody says that the port for slaves takes TLS: so it is with RocketMQ's master.
        store = {"ha_session_enable": False, "ha_allow_cleartext": allows}
        async with running(tmp_path / "slave", member(files, "slave"), broker_id=1, store=store) as slave:
            assert slave.following is not None
            slave.following.master_found(master.address, ha_address(master))
            if allows:
                await until(lambda: in_step(master, slave))
                assert values(master.replication.figures())["haTlsConnections"] == "0"
            else:
                await until(lambda: "see haAllowCleartext" in caplog.text)
                assert slave.store.wrote_offset == 0
        await client.close()


async def test_a_broker_does_not_start_with_files_that_are_wrong(files: Files, tmp_path: Path) -> None:
    good = member(files, "master")
    for wrong in (replace(good, server_key_path=files.ca), replace(good, client_trust_cert_path=tmp_path / "none")):
        with pytest.raises(ConfigError, match=r"tls\.(server\.keyPath|client\.trustCertPath) = "):
            async with running(tmp_path / "store", wrong):
                pass
    async with running(tmp_path / "store", good):
        pass
