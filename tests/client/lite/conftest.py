"""Channels of their own for each test, over both ways: to brokers, and through a proxy."""

from collections.abc import AsyncIterator
from itertools import count

import pytest

from sprocket import AdminClient
from sprocket.testing import Broker
from tests.client.lite.rig import Channels
from tests.proxy.rig import running

_numbers = count()


@pytest.fixture(params=["remoting", "grpc"])
async def address(shared_broker: Broker, request: pytest.FixtureRequest) -> AsyncIterator[str]:
    """The address of a connection."""
    if request.param == "remoting":
        yield shared_broker.namesrv
    else:
        async with running(shared_broker) as rig:
            yield f"grpc://127.0.0.1:{rig.port}"


@pytest.fixture
async def channels(shared_broker: Broker) -> Channels:
    """A parent topic with an exclusive group, a shared one, and a wildcard one."""
    made = Channels(next(_numbers))
    async with AdminClient(shared_broker.namesrv) as admin:
        await made.create(admin, shared_broker.address)
    return made
