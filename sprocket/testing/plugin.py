"""The pytest plugin of Sprocket; pytest loads it by its entry point, so it imports nothing until it is used.

Fixture `sprocket_broker`: a name server and a broker in one process on free ports, with a store that is gone after
the test.  Its `namesrv` is what clients are given.  The ini option `sprocket_broker_scope` (function, class, module,
package or session; default function) says how long one broker lives.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from sprocket.testing.broker import Broker

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
