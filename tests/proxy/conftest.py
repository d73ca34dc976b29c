"""One broker for all tests, and one proxy in local mode; each test takes a topic and a group of its own."""

import signal
from collections.abc import AsyncIterator, Iterator
from dataclasses import fields

import pytest

from proxy.config import GRPCIO, ProxyConfig
from sprocket.common.config.setting_fields import key_of
from sprocket.testing import Broker
from tests.compat.proxies.proxy_rig import OwnBroker, ProxyProcess
from tests.proxy.rig import SETTINGS, AnyBroker, Rig, create_topic, running

_PROPERTIES = {
    "enablePropertyFilter": "true",
    "recallMessageEnable": "true",
    "enableMixedMessageType": "true",
    "transactionCheckInterval": "1000",
    "transactionTimeOut": "1000",
    "enableLmq": "true",
    "enableMultiDispatch": "true",
}


@pytest.fixture(scope="session")
def shared_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with Broker(tmp_path_factory.mktemp("proxy"), properties=_PROPERTIES) as running_broker:
        yield running_broker


@pytest.fixture(scope="session")
def local_proxy(shared_broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProxyProcess]:
    """A proxy in local mode; it has the name server of the shared broker, and a cluster of its own."""
    folder = tmp_path_factory.mktemp("local")
    own = OwnBroker(shared_broker.namesrv, folder / "local", _PROPERTIES)
    keys = {field.name: key_of(field) for field in fields(ProxyConfig) if field.name in SETTINGS}
    process = ProxyProcess(own, folder, {keys[name]: str(value) for name, value in SETTINGS.items()})
    yield process.start()
    process.end(signal.SIGTERM)


@pytest.fixture
def mode() -> str:
    """The proxy's mode, or its server; modules whose tests hold in several have a fixture with these."""
    return "cluster"


@pytest.fixture
def broker(mode: str, shared_broker: Broker, request: pytest.FixtureRequest) -> AnyBroker:
    if mode != "local":
        return shared_broker
    process: ProxyProcess = request.getfixturevalue("local_proxy")
    assert isinstance(process.broker, OwnBroker)
    return process.broker


@pytest.fixture
async def rig(mode: str, broker: AnyBroker, request: pytest.FixtureRequest) -> AsyncIterator[Rig]:
    if isinstance(broker, OwnBroker):
        made = Rig(None, broker, request.getfixturevalue("local_proxy").port)
        yield made
        await made.close()
        return
    async with running(broker, **({"grpc_server": mode} if mode == GRPCIO else {})) as made:
        yield made


@pytest.fixture
async def topic(broker: AnyBroker) -> str:
    return await create_topic(broker)
