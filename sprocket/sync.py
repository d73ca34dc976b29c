"""The client for programs without an event loop, blocking::

    from sprocket import Message, sync

    with sync.connect("127.0.0.1:9876") as mq:
        mq.producer().send(Message("Flights", b"..."))

The classes are those of `sprocket` under their names.
"""

from sprocket.client.sync import Admin, Consumer, OrderlyConsumer, Producer, SimpleConsumer, TransactionProducer
from sprocket.client.sync import Popped as PoppedMessage
from sprocket.client.sync import Received as ReceivedMessage
from sprocket.client.sync_connect import Connection, Topic, TypedConsumer, connect
from sprocket.client.sync_deduplication import Deduplicator

__all__ = [
    "Admin",
    "Connection",
    "Consumer",
    "Deduplicator",
    "OrderlyConsumer",
    "PoppedMessage",
    "Producer",
    "ReceivedMessage",
    "SimpleConsumer",
    "Topic",
    "TransactionProducer",
    "TypedConsumer",
    "connect",
]
