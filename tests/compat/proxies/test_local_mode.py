"""Unmodified clients at a proxy in local mode, whose broker has access control, synchronous flush and a slave."""

import asyncio
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from sprocket.grpc_wire import messaging_pb2 as wire
from sprocket.remoting.credentials import Credentials
from sprocket.testing import Broker
from tests.compat import maven
from tests.compat.ports import free_port
from tests.compat.proxies import proxy_clients
from tests.compat.proxies.proxy_rig import PROPERTIES, OwnBroker, ProxyProcess, check, prepare
from tests.proxy.rig import GrpcClient
from tests.proxy.test_access import signed
from tests.sprocket_cli.programs import server

pytest.importorskip("grpc")

_ADMIN = ("admin", "a-long-secret")
_ACCESS = {
    "authenticationEnabled": "true",
    "authorizationEnabled": "true",
    "initAuthenticationUser": '{"username":"admin","password":"a-long-secret"}',
    "innerClientAuthenticationCredentials": '{"accessKey":"inner","secretKey":"another-long-secret"}',
}
_SAFE = {"flushDiskType": "SYNC_FLUSH", "brokerRole": "SYNC_MASTER"}
_SAFE |= {"inSyncReplicas": "2", "minInSyncReplicas": "1", "totalReplicas": "2"}


@pytest.fixture(scope="module")
def namesrv(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with Broker(tmp_path_factory.mktemp("other")) as other:
        yield other.namesrv


@pytest.mark.java
def test_java_with_tls(namesrv: str, tmp_path: Path) -> None:
    broker = OwnBroker(namesrv, tmp_path / "java", PROPERTIES)
    proxy = ProxyProcess(broker, tmp_path / "proxy").start()
    scenarios = ("normal-simple", "normal-push", "fifo", "transaction", "orphan", "dead-letter", "renewal")
    try:
        prepare(broker, "java", scenarios)
        outcomes = proxy_clients.run_java(proxy.endpoints, "java", scenarios, tmp_path / "home", tls=True)
    except maven.JavaMissingError as missing:
        pytest.skip(str(missing))
    finally:
        proxy.end(signal.SIGTERM)
    check(outcomes, scenarios)


def test_python_with_access_control_synchronous_flush_and_a_slave(namesrv: str, tmp_path: Path) -> None:
    """Without its slave the broker acknowledges nothing, over gRPC as over remoting."""
    broker = OwnBroker(namesrv, tmp_path / "safe", {**PROPERTIES, **_ACCESS, **_SAFE})
    proxy = ProxyProcess(broker, tmp_path / "proxy").start()
    scenarios = ("normal", "fifo", "transaction", "push")
    try:
        prepare(broker, "safe", [*scenarios, "probe"], Credentials(*_ADMIN))
        # What lasts longer than the proxy waits has no code of a broker.
        refused = asyncio.run(_codes(proxy, "safe-probe", wire.HA_NOT_AVAILABLE))
        assert wire.OK not in refused
        own = {"brokerId": "1", "brokerRole": "SLAVE", "listenPort": str(free_port())}
        own |= {"haListenPort": str(free_port()), "storePathRootDir": str(tmp_path / "slave-store")}
        file = tmp_path / "slave.conf"
        file.write_text("".join(f"{key}={value}\n" for key, value in {**broker.keys, **own}.items()))
        with server(tmp_path, "broker", "-c", str(file)):
            assert wire.OK in asyncio.run(_codes(proxy, "safe-probe", wire.OK))
            outcomes = proxy_clients.run_python(proxy.endpoints, "safe", scenarios, tmp_path / "home", _ADMIN)
    except proxy_clients.ClientMissingError as missing:
        pytest.skip(str(missing))
    finally:
        proxy.end(signal.SIGTERM)
    check(outcomes, scenarios)


async def _codes(proxy: ProxyProcess, topic: str, wanted: int) -> set[int]:
    """Send until a message gets the code `wanted`; return all codes."""
    client, stranger = GrpcClient(proxy.port, "client"), GrpcClient(proxy.port, "stranger")
    assert (await stranger.send(topic, "x")).status.code == wire.UNAUTHORIZED
    signed(client, *_ADMIN)
    found: set[int] = set()
    async with asyncio.timeout(60):
        while wanted not in found:
            answer = await client.send(topic, "x")
            found.add(answer.entries[0].status.code if answer.entries else answer.status.code)
    await client.close()
    await stranger.close()
    return found
