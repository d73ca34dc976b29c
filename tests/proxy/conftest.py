"""One broker for all tests; each takes a topic and a group of its own."""

from collections.abc import AsyncIterator, Iterator

import pytest

from sprocket.testing import Broker
from tests.proxy.rig import Rig, create_topic, running

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
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with Broker(tmp_path_factory.mktemp("proxy"), properties=_PROPERTIES) as running_broker:
        yield running_broker


@pytest.fixture
async def rig(broker: Broker) -> AsyncIterator[Rig]:
    async with running(broker) as made:
        yield made


@pytest.fixture
async def topic(broker: Broker) -> str:
    return await create_topic(broker)
