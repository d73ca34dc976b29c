"""Changes of roles in groups with access control, a secret of the port for slaves, and TLS."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from sprocket.remoting.client import RemotingClient
from sprocket.remoting.codes import RequestCode
from sprocket.remoting.tls.watch import ClientTls
from tests.broker.auth.test_users import GUARDED, INNER
from tests.broker.controller.rig import Group, group
from tests.broker.rig import TOPIC, TestClient, bodies_in_order, create
from tests.broker.test_sessions import session_of
from tests.broker.test_tls import member
from tests.remoting.tls_files import Files
from tests.waiting import until

# The system chose the port, and may give it to another process in that moment.
pytestmark = pytest.mark.unsteady(reason="a change of roles closes the port for slaves and opens it again")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Files]:
    return Files(tmp_path_factory.mktemp("tls"))


async def _flip(it: Group, clients: dict[int, TestClient]) -> None:
    await it.elect(1)
    await clients[1].ask_well(RequestCode.UPDATE_AND_CREATE_TOPIC, create())
    await clients[1].send(b"one")
    await it.in_step()
    for body in (b"two", b"three"):
        await it.elect(3 - it.master)
        await clients[it.master].send(body)
        await until(lambda: session_of(it[3 - it.master].broker))
        await it.in_step()
    for replica in it.replicas.values():
        assert bodies_in_order(replica.broker, TOPIC) == [b"one", b"two", b"three"]
    for client in clients.values():
        await client.close()


async def test_replicas_with_accounts_prove_themselves_to_each_new_master(tmp_path: Path) -> None:
    async with group(tmp_path, **GUARDED) as it:
        clients = {number: it[number].client for number in (1, 2)}
        for client in clients.values():
            client.remoting = RemotingClient(credentials=INNER)
        await _flip(it, clients)


async def test_replicas_with_a_secret(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("of this group, and of sufficient length")
    secret.chmod(0o600)
    async with group(tmp_path, store={"ha_secret_file": str(secret)}) as it:
        await _flip(it, {number: it[number].client for number in (1, 2)})


async def test_replicas_that_demand_tls(tmp_path: Path, files: Files) -> None:
    async with group(tmp_path, tls=member(files, "replica")) as it:
        clients = {number: it[number].client for number in (1, 2)}
        for client in clients.values():
            client.remoting = RemotingClient(tls=ClientTls(files.client("admin")))
        await _flip(it, clients)
