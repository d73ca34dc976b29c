"""The port for slaves of brokers that let nobody in unsigned."""

from pathlib import Path
from typing import Any

import pytest

from broker.replica_identity import secret_of
from broker.server import Broker
from remoting.codes import RequestCode
from remoting.credentials import Credentials
from sprocket.common.errors import ConfigError
from tests.broker.fake_slave import FakeSlave
from tests.broker.rig import TestClient, create, until
from tests.broker.test_sessions import STORE, session_of
from tests.broker.test_slave_synchronize import in_step
from tests.broker.test_users import INNER, OTHER_INNER, follower, guarded

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


async def test_who_signs_as_the_master_does_gets_its_log_and_nobody_else(tmp_path: Path) -> None:
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
            slave.client._credentials = INNER
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
