"""The port for slaves of brokers that let nobody in unsigned."""

import asyncio
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any

import pytest

from broker.server import Broker
from ha.shared_secret import secret_of
from sprocket.common.errors import ConfigError
from sprocket.remoting.codec.fastjson import dumps
from sprocket.remoting.codes import RequestCode
from sprocket.remoting.credentials import Credentials
from tests.broker.auth.test_users import INNER, OTHER_INNER, follower, guarded
from tests.broker.fake_slave import FakeSlave
from tests.broker.rig import GROUP, TOPIC, TestClient, create
from tests.broker.slave.test_slave_synchronize import StubMaster, in_step
from tests.broker.test_sessions import SLAVE, STORE, session_of
from tests.waiting import until

NOBODY = {"inner_client_authentication_credentials": "", "init_authentication_user": ""}


async def _fill(client: TestClient) -> None:
    await client.ask_well(RequestCode.UPDATE_AND_CREATE_TOPIC, create())
    await client.send(b"of the log")


async def _log_for_anybody(master: Broker) -> bool:
    """Whether who proves nothing gets the log; False when the connection has ended."""
    stranger = await FakeSlave.connect(master.config.broker.ha_listen_port)
    stranger.report(0)
    await until(lambda: stranger.received_offset > 0 or stranger.is_closed)
    await stranger.close()
    return stranger.received_offset > 0


async def test_only_a_slave_with_the_master_s_account_gets_its_log(tmp_path: Path) -> None:
    async with guarded(tmp_path / "master") as (master, client):
        await _fill(client)
        assert not await _log_for_anybody(master)
        async with follower(tmp_path / "slave", master) as (slave, _):
            await until(lambda: session_of(slave) and in_step(master, slave))


async def test_another_account_gets_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with guarded(tmp_path / "master") as (master, client):
        await _fill(client)
        async with follower(tmp_path / "slave", master, **OTHER_INNER) as (slave, _):
            # It asks as the master wants it, which no configuration of it does.
            slave.client.credentials = INNER
            await until(lambda: "different secrets" in caplog.text)
            assert slave.store.wrote_offset == 0
            assert not master.replication.replicas.offsets()


async def test_a_broker_that_signs_nothing_itself_has_a_slave_of_nobody(tmp_path: Path) -> None:
    async with guarded(tmp_path, **NOBODY) as (master, _):
        assert not await _log_for_anybody(master)


async def test_plain_slaves_are_admitted_where_that_is_said(tmp_path: Path) -> None:
    async with guarded(tmp_path, store=STORE | {"ha_allow_plain_peers": True}) as (master, client):
        await _fill(client)
        assert await _log_for_anybody(master)


async def test_sessions_cannot_be_switched_off_where_slaves_have_to_prove_something(tmp_path: Path) -> None:
    off: dict[str, Any] = {"store": STORE | {"ha_session_enable": False}}
    with pytest.raises(ConfigError, match="haAllowPlainPeers"):
        async with guarded(tmp_path / "closed", **off):
            pass
    off["store"]["ha_allow_plain_peers"] = True
    async with guarded(tmp_path / "open", **off) as (master, client):
        await _fill(client)
        assert await _log_for_anybody(master)


def test_the_secret_is_the_accounts() -> None:
    assert secret_of(INNER) == secret_of(Credentials(INNER.access_key, INNER.secret_key))
    others = [Credentials("inner2", INNER.secret_key), Credentials(INNER.access_key, "another secret")]
    assert len({secret_of(INNER), *map(secret_of, others)}) == 3
    assert INNER.secret_key.encode() not in secret_of(INNER)


# A stranger that a name server without access control calls the master


TABLES = {
    RequestCode.NEGOTIATE_HA_SESSION: b"",  # refused
    RequestCode.GET_ALL_TOPIC_CONFIG: dumps({"topicConfigTable": {}, "dataVersion": {}}),
    RequestCode.GET_ALL_CONSUMER_OFFSET: dumps({"offsetTable": {f"{TOPIC}@{GROUP}": {0: 0}}}),
    RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: dumps({"subscriptionGroupTable": {}, "dataVersion": {}}),
    RequestCode.GET_BROKER_HA_STATUS: dumps({"master": True, "masterCommitLogMaxOffset": 1 << 30}),
}


@pytest.mark.parametrize("answers_plainly", [False, True])
async def test_a_stranger_gets_no_request_and_gives_no_table(tmp_path: Path, answers_plainly: bool) -> None:
    """Every request would carry a signature that covers the account's name alone, and never expires."""
    async with guarded(tmp_path / "master") as (master, client):
        await _fill(client)
        master.offsets.commit(GROUP, TOPIC, 0, 1)
        async with follower(tmp_path / "slave", master) as (slave, _):
            await until(lambda: session_of(slave) and slave.offsets.query(GROUP, TOPIC, 0) == 1)
            answers = dict(TABLES)
            if answers_plainly:  # as a broker of RocketMQ answers what it does not know
                del answers[RequestCode.NEGOTIATE_HA_SESSION]
            stranger = StubMaster(answers)
            await stranger.server.start()
            assert slave.following is not None
            slave.synchronize.all_s = 0.0
            # The true master's port for slaves, and then one where nobody listens.
            for ha_address in (master.registration.ha_address, "127.0.0.1:9"):
                slave.following.master_found(f"127.0.0.1:{stranger.server.port}", ha_address)
                await asyncio.sleep(1.5)
            assert not stranger.asked
            assert not stranger.server.channels
            assert TOPIC in slave.topics
            assert slave.offsets.query(GROUP, TOPIC, 0) == 1
            await stranger.server.stop()


async def test_a_stranger_that_passes_the_greeting_on_is_not_taken_for_the_master(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with guarded(tmp_path / "master") as (master, client), AsyncExitStack() as stack:
        await _fill(client)
        relay = await relay_to(master.config.broker.ha_listen_port)
        stack.push_async_callback(relay.wait_closed)
        stack.callback(relay.close)
        async with guarded(tmp_path / "slave", **SLAVE) as (slave, _):
            assert slave.following is not None
            port = relay.sockets[0].getsockname()[1]
            slave.following.master_found(master.address, f"127.0.0.1:{port}")
            await until(lambda: "somebody relays the greeting" in caplog.text)
            assert slave.store.wrote_offset == 0
            slave.following.master_found(master.address, master.registration.ha_address)
            await until(lambda: session_of(slave))


async def relay_to(port: int) -> asyncio.Server:
    """Pass every connection on to `port` of this machine, byte for byte."""

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(65536):
                writer.write(data)
        writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there_reader, there_writer = await asyncio.open_connection("127.0.0.1", port)
        await asyncio.gather(pump(reader, there_writer), pump(there_reader, writer))

    return await asyncio.start_server(serve, "127.0.0.1", 0)
