"""Proof of identity between brokers: without it, a broker with access control tells other brokers nothing."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from acl.peer_identity import peer_proof
from broker.auth.name_server_probe import NameServerProbe
from broker.server import Broker
from ha.shared_secret import secret_of
from namesrv.config import NamesrvConfig
from namesrv.server import NameServer
from sprocket.remoting.client import ConnectFailed, RemotingClient
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.headers.ha import ProveBrokerIdentityRequestHeader
from sprocket.remoting.headers.namesrv import ExchangeHAInfoRequestHeader
from tests.broker.auth.test_users import INNER, OTHER_INNER, STORE, guarded
from tests.broker.insides import service_of
from tests.broker.rig import running_broker
from tests.broker.slave.test_slave_synchronize import name_server
from tests.broker.test_guarded_replication import relay_to
from tests.waiting import until

NAMESRV_USERS: dict[str, Any] = {
    "authentication_enabled": True,
    "init_authentication_user": '{"username":"inner","password":"secret of inner"}',
}


async def _ask(broker: Broker, address: str) -> int:
    """One of the questions that brokers ask each other; its signature covers the account's name alone."""
    code, header = RequestCode.EXCHANGE_BROKER_HA_INFO, ExchangeHAInfoRequestHeader()
    return (await broker.client.invoke(address, code, header)).code


class Recorder:
    """A stranger's port: keeps what it is sent and answers nothing."""

    def __init__(self) -> None:
        self.received = bytearray()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            self.received += data
            writer.close()  # once it has what it wants

    async def start(self, stack: AsyncExitStack) -> str:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        stack.callback(server.close)
        return f"127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def test_nothing_is_signed_for_a_stranger(tmp_path: Path) -> None:
    stranger = Recorder()
    async with guarded(tmp_path) as (broker, _), AsyncExitStack() as stack:
        address = await stranger.start(stack)
        with pytest.raises(ConnectFailed, match="does not prove that it is a broker of this cluster"):
            await _ask(broker, address)
        assert b'"code":21002' in stranger.received.replace(b" ", b"")
        assert b"Signature" not in stranger.received
        assert b"inner" not in stranger.received


async def test_brokers_of_one_account_prove_themselves_and_go_on_signed(tmp_path: Path) -> None:
    async with guarded(tmp_path / "one") as (one, _), guarded(tmp_path / "two") as (two, _):
        assert await _ask(one, two.address) == ResponseCode.SUCCESS
        assert await _ask(two, one.address) == ResponseCode.SUCCESS


async def test_a_stranger_cannot_pass_the_question_on(tmp_path: Path) -> None:
    async with guarded(tmp_path / "one") as (one, _), guarded(tmp_path / "two") as (two, _), AsyncExitStack() as stack:
        relay = await relay_to(int(two.address.rpartition(":")[2]))
        stack.callback(relay.close)
        with pytest.raises(ConnectFailed, match="the request is for"):
            await _ask(one, f"127.0.0.1:{relay.sockets[0].getsockname()[1]}")


async def test_another_account_proves_nothing(tmp_path: Path) -> None:
    async with guarded(tmp_path / "one") as (one, _), guarded(tmp_path / "two", **OTHER_INNER) as (two, _):
        with pytest.raises(ConnectFailed, match="sign with the same account"):
            await _ask(one, two.address)
        assert two.access.gate.refused == 1


async def test_an_open_broker_gets_nothing_signed_either(tmp_path: Path) -> None:
    async with guarded(tmp_path / "one") as (one, _), running_broker(tmp_path / "two", store=STORE) as (two, _):
        with pytest.raises(ConnectFailed, match="no access control"):
            await _ask(one, two.address)


async def test_peers_of_rocketmq_are_signed_for_where_that_is_said(tmp_path: Path) -> None:
    stranger, store = Recorder(), STORE | {"ha_allow_plain_peers": True}
    async with guarded(tmp_path, store=store) as (broker, _), AsyncExitStack() as stack:
        address = await stranger.start(stack)
        with pytest.raises(Exception, match="connection"):
            await _ask(broker, address)
        assert b"Signature" in stranger.received


async def test_name_servers_are_asked_for_no_proof(tmp_path: Path) -> None:
    async with name_server() as address, guarded(tmp_path, namesrv_addr=address) as (broker, _):
        assert await broker.registration.wait_registered(10)


@pytest.mark.parametrize("is_open", [True, False])
async def test_an_open_name_server_is_warned_of(
    tmp_path: Path, is_open: bool, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("broker.auth.name_server_probe._TURN_S", 0.05)
    changes: dict[str, Any] = {} if is_open else NAMESRV_USERS
    config = NamesrvConfig(listen_port=0, bind_address="127.0.0.1", kv_config_path=tmp_path / "kv.json", **changes)
    server = NameServer(config)
    await server.start()
    address = f"127.0.0.1:{server.port}"
    async with guarded(tmp_path, namesrv_addr=address) as (broker, _):
        probe = service_of(broker, NameServerProbe)
        await until(lambda: not probe._unasked)
        assert (f"the name server {address} lets anybody register" in caplog.text) is is_open
    await server.stop()


@pytest.mark.code(RequestCode.PROVE_BROKER_IDENTITY)
async def test_guesses_are_counted_and_shut_out(tmp_path: Path) -> None:
    changes: dict[str, Any] = {"auth_failures_burst": 3, "auth_failures_per_second": 1}
    async with guarded(tmp_path, **changes) as (broker, _):
        address, client = broker.address, RemotingClient()
        remarks = []
        for _ in range(6):
            header = ProveBrokerIdentityRequestHeader(address=address, nonce="00", proof="00")
            answer = await client.invoke(address, RequestCode.PROVE_BROKER_IDENTITY, header)
            assert answer.code == ResponseCode.NO_PERMISSION
            remarks.append(answer.remark or "")
        await client.close()
        assert sum("the proof is wrong" in remark for remark in remarks) in (3, 4)
        assert "too many wrong signatures" in remarks[-1]


def test_the_proofs_of_the_two_ends_differ() -> None:
    secret = secret_of(INNER)
    proofs = {peer_proof(secret, end, "a:1", nonce) for end in ("caller", "callee") for nonce in ("0", "1")}
    assert len(proofs) == 4
    # Lengths stand before the parts: nothing moves from one to the next.
    assert peer_proof(secret, "e", "a:1", "23") != peer_proof(secret, "e", "a:12", "3")


async def test_a_proof_opens_no_other_code(tmp_path: Path) -> None:
    async with guarded(tmp_path) as (broker, _):
        address, client = broker.address, RemotingClient()
        proof = peer_proof(secret_of(INNER), "sprocket-peer-caller", address, "00")
        header = ProveBrokerIdentityRequestHeader(address=address, nonce="00", proof=proof)
        for code in (RequestCode.GET_BROKER_CONFIG, RequestCode.DELETE_EXPIRED_COMMITLOG):
            assert (await client.invoke(address, code, header)).code == ResponseCode.NO_PERMISSION
        assert (await client.invoke(address, RequestCode.PROVE_BROKER_IDENTITY, header)).code == ResponseCode.SUCCESS
        # A peer that has proved its identity still has no account on that connection.
        assert (await client.invoke(address, RequestCode.GET_BROKER_CONFIG)).code == ResponseCode.NO_PERMISSION
        await client.close()
