"""`sprocket.sync.connect`: the blocking form of one object for a cluster."""

from dataclasses import dataclass

import pytest

from sprocket import ConsumeFrom, Message, sync
from sprocket.client.connection.event_loop_thread import shared_loop
from sprocket.testing import Broker

FIRST = ConsumeFrom.FIRST


@dataclass(frozen=True)
class Order:
    number: int


def test_everything_of_a_connection_blocks(shared_broker: Broker, topic: str) -> None:
    with sync.connect(shared_broker.namesrv) as mq:
        queue = mq.producer().queues(topic)[0]
        mq.producer().send_batch([Message(topic, b"%d" % number) for number in range(3)], queue=queue)
        consumer = mq.consumer(f"g-{topic}", topic, consume_from=FIRST)
        for message in consumer:
            with message.process():
                assert (message.body, message.queue) == (b"0", queue)
            break
        assert consumer.committed()[queue] == 1
        consumer.seek(queue, 2)
        (message,) = consumer.receive()
        assert message.body == b"2"
        with pytest.raises(LookupError), message.process(delay=1):
            raise LookupError
        seen = []

        def handle(message: sync.ReceivedMessage) -> None:
            seen.append((message.body, message.reconsume_times))
            message.ack()
            consumer.stop()

        consumer.run(handle)
        assert seen == [(b"2", 1)]
        popping = mq.simple_consumer(f"p-{topic}", topic, consume_from=FIRST)
        (popped,) = popping.receive(1, wait_s=5)
        popped.extend(90)
        popped.ack()
        assert popped.is_settled
        assert topic in mq.admin(lambda aio: aio.topic_list())
    assert not shared_loop.is_running


def test_typed_topic(shared_broker: Broker, topic: str) -> None:
    with sync.connect(shared_broker.namesrv) as mq:
        orders = mq.topic(topic, Order)
        orders.send(Order(1), sharding_key="a")
        orders.send(Order(2), sharding_key="a")
        with orders.consume(f"g-{topic}", consume_from=FIRST) as consumer:
            values = iter(consumer)
            assert [next(values), next(values)] == [Order(1), Order(2)]
        handling = orders.consume(f"h-{topic}", consume_from=FIRST)
        seen = []

        def handle(order: Order) -> None:
            seen.append(order)
            if len(seen) == 2:
                handling.stop()

        handling.run(handle)
        assert set(seen) == {Order(1), Order(2)}
