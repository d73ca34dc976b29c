"""Broker for FastStream: handlers read topics as members of groups, and their results are published::

    from faststream import FastStream
    from sprocket.contrib.faststream import SprocketBroker

    broker = SprocketBroker("127.0.0.1:9876")
    app = FastStream(broker)

    @broker.subscriber("Orders", group="billing")
    @broker.publisher("Invoices")
    async def bill(order: Order) -> Invoice: ...

FastStream has no public interface for brokers: its own brokers and this one inherit from `faststream._internal`, which
may change with every minor version.  So the extra `faststream` has a narrow upper bound.
"""

from sprocket.common.extras import missing_package

try:
    from sprocket.contrib.faststream.annotations import SprocketBatchMessage, SprocketMessage
    from sprocket.contrib.faststream.broker import SprocketBroker, SprocketRouter
    from sprocket.contrib.faststream.publish_command import SprocketResponse
    from sprocket.contrib.faststream.testing import TestSprocketBroker
except ModuleNotFoundError as error:
    raise ImportError(missing_package(error, "sprocket.contrib.faststream") or str(error), name=error.name) from error

__all__ = [
    "SprocketBatchMessage",
    "SprocketBroker",
    "SprocketMessage",
    "SprocketResponse",
    "SprocketRouter",
    "TestSprocketBroker",
]
