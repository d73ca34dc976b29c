"""The pytest plugin of Sprocket; pytest loads it by its entry point, so it imports nothing until it is used.

Fixture `sprocket_broker`: a name server and a broker in one process on free ports, with a store that is gone after
the test.  Its `namesrv` is what clients are given.  The ini option `sprocket_broker_scope` (function, class, module,
package or session; default function) says how long one broker lives.

Fixture `sprocket_topic`: a topic of the test's own on `sprocket_shared_broker`, one broker for the whole session.
The fixtures are plain functions, so they work with every mode of pytest-asyncio and without it.
"""

import re
from collections.abc import Iterator
from itertools import count
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from sprocket.testing.broker import Broker

_numbers = count(1)
_SCOPES = ("function", "class", "module", "package", "session")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini("sprocket_broker_scope", "How long one sprocket_broker lives.", default="function")


def _scope(fixture_name: str, config: pytest.Config) -> Any:  # pytest wants a literal of its own
    scope = config.getini("sprocket_broker_scope")
    if scope not in _SCOPES:
        raise pytest.UsageError(f"sprocket_broker_scope = {scope!r}: allowed is one of {', '.join(_SCOPES)}")
    return scope


@pytest.fixture(scope=_scope)
def sprocket_broker(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[Broker]":
    """A running broker; see `sprocket.testing.Broker`."""
    from sprocket.testing.broker import Broker

    with Broker(tmp_path_factory.mktemp("sprocket")) as broker:
        yield broker


@pytest.fixture(scope="session")
def sprocket_shared_broker(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[Broker]":
    """A running broker for all tests of the session, or of one worker of pytest-xdist."""
    from sprocket.testing.broker import Broker

    with Broker(tmp_path_factory.mktemp("sprocket")) as broker:
        yield broker


@pytest.fixture
def sprocket_topic(sprocket_shared_broker: "Broker", request: pytest.FixtureRequest) -> str:
    """The name of a new topic with one queue on `sprocket_shared_broker`; it begins with the name of the test."""
    # A topic has at most 127 characters, and a group's prefix such as %RETRY% takes some of them.
    words = re.sub(r"[^0-9A-Za-z_-]+", "-", request.node.name)[:80]
    topic = f"{words}-{next(_numbers)}"
    sprocket_shared_broker.create_topic(topic, 1)
    return topic
