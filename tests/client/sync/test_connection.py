"""`sprocket.sync.connect`: the blocking form of one object for a cluster."""

import threading
from dataclasses import dataclass

import pytest

from sprocket import AdminError, ConsumeFrom, ConsumeSettings, Message, TransactionState, sync
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


def test_transactions_of_a_connection(shared_broker: Broker, topic: str) -> None:
    with sync.connect(shared_broker.namesrv) as mq:
        checker = lambda message: TransactionState.ROLLBACK  # noqa: E731
        with mq.transaction_producer(f"tx-{topic}", checker=checker) as producer:
            sent = producer.send_in_transaction(Message(topic, b"paid"), lambda message, id_: TransactionState.COMMIT)
        (message,) = mq.consumer(f"g-{topic}", topic, consume_from=FIRST).receive()
        assert (message.body, message.message_id) == (b"paid", sent.message_id)


def test_batches_and_keys(shared_broker: Broker, topic: str) -> None:
    with sync.connect(shared_broker.namesrv) as mq:
        queue = mq.producer().queues(topic)[0]
        mq.producer().send_batch([Message(topic, b"%d" % number) for number in range(4)], queue=queue)
        settings = ConsumeSettings(consume_message_batch_max_size=4)
        batching = mq.consumer(f"g-{topic}", topic, consume_from=FIRST, settings=settings)
        batches = []

        def handle_all(messages: list[sync.ReceivedMessage]) -> None:
            batches.append([message.body for message in messages])
            if sum(map(len, batches)) == 4:
                batching.stop()

        batching.run_batches(handle_all)
        assert [body for batch in batches for body in batch] == [b"0", b"1", b"2", b"3"]
        keyed = mq.consumer(f"h-{topic}", topic, consume_from=FIRST)
        at_work: list[str] = []
        together = []
        seen = []

        def handle(message: sync.ReceivedMessage) -> None:
            key = "odd" if int(message.body) % 2 else "even"
            together.append(key in at_work)
            at_work.append(key)
            seen.append(message.body)
            at_work.remove(key)
            if len(seen) == 4:
                keyed.stop()

        keyed.run(handle, by_key=lambda message: int(message.body) % 2)
        assert not any(together)
        assert [body for body in seen if int(body) % 2] == [b"1", b"3"]


def test_a_message_is_given_up_by_its_consumer(shared_broker: Broker, topic: str) -> None:
    with sync.connect(shared_broker.namesrv) as mq:
        mq.producer().send(Message(topic, b"wrong"))
        consumer = mq.consumer(f"g-{topic}", topic, consume_from=FIRST)
        (message,) = consumer.receive()
        consumer.extend(message, 60)
        assert not consumer.is_settled(message)
        consumer.dead_letter(message, "no such customer")
        assert consumer.is_settled(message)
        (dead,) = mq.consumer(f"d-{topic}", f"%DLQ%{consumer.group}", consume_from=FIRST).receive()
        assert (dead.body, dead.properties["DEAD_LETTER_REASON"]) == (b"wrong", "no such customer")


def test_pops_are_handled_in_threads(shared_broker: Broker, topic: str) -> None:
    with sync.connect(shared_broker.namesrv) as mq:
        mq.producer().send(Message(topic, b"job"))
        consumer = mq.simple_consumer(f"p-{topic}", topic, consume_from=FIRST)
        seen = []

        def handle(popped: sync.PoppedMessage) -> None:
            assert not consumer.is_settled(popped)
            seen.append((popped.body, threading.current_thread().name.partition("_")[0]))
            consumer.stop()

        consumer.run(handle, concurrency=2)
        assert seen == [(b"job", "sprocket-handler")]


def test_typed_messages_are_settled_one_by_one(shared_broker: Broker, topic: str) -> None:
    with sync.connect(shared_broker.namesrv) as mq:
        orders = mq.topic(topic, Order)
        assert orders.name == topic
        mq.producer().send(orders.message(Order(7), tags="new"))
        consumer = orders.consume(f"g-{topic}", consume_from=FIRST, max_in_flight=1)
        for typed in consumer.messages():
            with typed.process():
                assert (typed.value, typed.message.tags) == (Order(7), "new")
            break
        assert sum(consumer.consumer.committed().values()) == 1
        consumer.close()


def test_requests_of_an_operator(shared_broker: Broker, topic: str) -> None:
    with sync.connect(shared_broker.namesrv) as mq:
        assert topic in mq.admin.topic_list()
        with pytest.raises(AdminError):
            mq.admin.topic_route("Nowhere")
