"""The client for programs without an event loop, blocking::

    from sprocket import Message, sync

    with sync.connect("127.0.0.1:9876") as mq:
        mq.producer().send(Message("Flights", b"..."))

The classes are those of `sprocket` under their names.
"""

from sprocket.client.sync.admin import Admin
from sprocket.client.sync.connection import Connection, connect
from sprocket.client.sync.consumers import Consumer, OrderlyConsumer
from sprocket.client.sync.consumers import Received as ReceivedMessage
from sprocket.client.sync.deduplication import Deduplicator
from sprocket.client.sync.lite import LiteConsumer, Session
from sprocket.client.sync.producers import Producer, TransactionProducer
from sprocket.client.sync.simple_consumer import Popped as PoppedMessage
from sprocket.client.sync.simple_consumer import SimpleConsumer
from sprocket.client.sync.typed import Table, Topic, TypedConsumer, TypedMessage

__all__ = [
    "Admin",
    "Connection",
    "Consumer",
    "Deduplicator",
    "LiteConsumer",
    "OrderlyConsumer",
    "PoppedMessage",
    "Producer",
    "ReceivedMessage",
    "Session",
    "SimpleConsumer",
    "Table",
    "Topic",
    "TransactionProducer",
    "TypedConsumer",
    "TypedMessage",
    "connect",
]
