"""One broker for all tests that only need a healthy one; each takes a topic of its own."""

from collections.abc import Iterator
from itertools import count

import pytest

from sprocket.testing import Broker

_numbers = count()


@pytest.fixture(scope="session")
def shared_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with Broker(tmp_path_factory.mktemp("client")) as broker:
        yield broker


@pytest.fixture
def topic(shared_broker: Broker) -> str:
    """A new topic with four queues on the shared broker."""
    name = f"Topic{next(_numbers)}"
    shared_broker.create_topic(name, 4)
    return name
