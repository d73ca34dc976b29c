from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from broker.server import Broker
from tests.broker.rig import TestClient, running_broker


@pytest.fixture
async def pair(tmp_path: Path) -> AsyncIterator[tuple[Broker, TestClient]]:
    """A running broker and a client of it."""
    async with running_broker(tmp_path) as pair:
        yield pair
