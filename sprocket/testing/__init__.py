"""A real broker for the tests of an application, in a process of its own.

With pytest, the fixture `sprocket_broker` gives one (see `sprocket.testing.plugin`); elsewhere::

    from sprocket.testing import Broker

    with Broker() as broker:
        async with Producer("g", broker.namesrv) as producer: ...
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sprocket.testing.broker import Broker, BrokerNotStarted

__all__ = ["Broker", "BrokerNotStarted"]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module 'sprocket.testing' has no attribute {name!r}")
    from sprocket.testing import broker

    return getattr(broker, name)
