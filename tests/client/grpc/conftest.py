"""One broker for all tests, and a proxy before it for each."""

from collections.abc import AsyncIterator, Iterator

import pytest

from sprocket.testing import Broker
from tests.proxy.rig import Rig, create_topic, running


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    properties = {"transactionCheckInterval": "1000", "transactionTimeOut": "1000", "enableMixedMessageType": "true"}
    properties["recallMessageEnable"] = "true"
    with Broker(tmp_path_factory.mktemp("grpc"), properties=properties) as running_broker:
        yield running_broker


@pytest.fixture
async def rig(broker: Broker) -> AsyncIterator[Rig]:
    async with running(broker) as made:
        yield made


@pytest.fixture
async def topic(broker: Broker) -> str:
    return await create_topic(broker)
