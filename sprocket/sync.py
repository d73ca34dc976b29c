"""The client for programs without an event loop, blocking::

    from sprocket import Message, sync

    with sync.Producer("flights", "127.0.0.1:9876") as producer:
        producer.send(Message("Flights", b"..."))

The classes are those of `sprocket` under their names.
"""

from sprocket.client.sync import Admin, Consumer, OrderlyConsumer, Producer, SimpleConsumer, TransactionProducer

__all__ = ["Admin", "Consumer", "OrderlyConsumer", "Producer", "SimpleConsumer", "TransactionProducer"]
