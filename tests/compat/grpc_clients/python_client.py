"""Scenarios of rocketmq-python-client against a proxy: endpoints, run, and the scenarios' names.

It runs in an environment of its own, which has the client and not Sprocket; see
`tests/compat/proxies/test_proxy_clients.py`.
"""

import sys
import threading
import time
from collections.abc import Callable

from rocketmq import (
    ClientConfiguration,
    ConsumeResult,
    Credentials,
    FilterExpression,
    LitePushConsumer,
    LiteSimpleConsumer,
    Message,
    MessageListener,
    Producer,
    PushConsumer,
    SimpleConsumer,
    TransactionChecker,
    TransactionResolution,
)


def message(topic: str, body: str, tag: str = "") -> Message:
    made = Message()
    made.topic = topic
    made.body = body.encode()
    if tag:
        made.tag = tag
    made.keys = f"key-{body}"
    made.add_property("origin", "python")
    return made


class Scenarios:
    def __init__(self, endpoints: str, account: tuple[str, str]) -> None:
        self.configuration = ClientConfiguration(endpoints, Credentials(*account))

    def producer(self, topic: str, checker: TransactionChecker | None = None) -> Producer:
        made = Producer(self.configuration, (topic,), checker=checker)
        made.startup()
        return made

    def simple(self, topic: str, group: str, expression: str = "*") -> SimpleConsumer:
        made = SimpleConsumer(self.configuration, group, {topic: FilterExpression(expression)}, 5)
        made.startup()
        made.receive(1, 10)  # a group begins at the end of a topic
        return made

    def receive(self, consumer: SimpleConsumer | LiteSimpleConsumer, count: int, seconds: float) -> list[Message]:
        got: list[Message] = []
        end = time.monotonic() + seconds
        while len(got) < count and time.monotonic() < end:
            for one in consumer.receive(16, 20) or ():
                got.append(one)
                consumer.ack(one)
        return got

    def normal(self, topic: str, group: str) -> None:
        consumer, producer = self.simple(topic, group), self.producer(topic)
        ids = {producer.send(message(topic, f"m{number}")).message_id for number in range(20)}
        got = self.receive(consumer, 20, 30)
        assert {one.message_id for one in got} == ids, f"{len(got)} messages"
        assert {one.body.decode() for one in got} == {f"m{number}" for number in range(20)}
        assert all(one.properties.get("origin") == "python" for one in got)
        producer.shutdown()
        consumer.shutdown()

    def tag(self, topic: str, group: str) -> None:
        consumer, producer = self.simple(topic, group, "red"), self.producer(topic)
        for tag in ("red", "green", "red"):
            producer.send(message(topic, tag, tag))
        got = self.receive(consumer, 3, 10)
        assert [one.body.decode() for one in got] == ["red", "red"], f"{len(got)} messages"
        producer.shutdown()
        consumer.shutdown()

    def delay(self, topic: str, group: str) -> None:
        consumer, producer = self.simple(topic, group), self.producer(topic)
        sent = message(topic, "later")
        due = int(time.time()) + 3
        sent.delivery_timestamp = due
        producer.send(sent)
        got = self.receive(consumer, 1, 20)
        assert len(got) == 1 and time.time() >= due - 0.5, f"{len(got)} messages"
        producer.shutdown()
        consumer.shutdown()

    def fifo(self, topic: str, group: str) -> None:
        consumer, producer = self.simple(topic, group), self.producer(topic)
        for number in range(10):
            sent = message(topic, str(number))
            sent.message_group = "one"
            producer.send(sent)
        got = self.receive(consumer, 10, 30)
        assert [one.body.decode() for one in got] == [str(number) for number in range(10)]
        producer.shutdown()
        consumer.shutdown()

    def priority(self, topic: str, group: str) -> None:
        consumer, producer = self.simple(topic, group), self.producer(topic)
        for priority in (1, 0, 3, 9, 2):
            sent = message(topic, str(priority))
            sent.priority = priority
            producer.send(sent)
        got = self.receive(consumer, 5, 30)
        # Of 4 queues the last has the priorities from 3 on.
        assert [one.body.decode() for one in got] == ["3", "9", "2", "1", "0"], f"{[one.body for one in got]}"
        assert [one.priority for one in got] == [3, 9, 2, 1, 0]
        producer.shutdown()
        consumer.shutdown()

    def transaction(self, topic: str, group: str) -> None:
        class Checker(TransactionChecker):
            def check(self, message: Message) -> TransactionResolution:
                return TransactionResolution.COMMIT

        consumer, producer = self.simple(topic, group), self.producer(topic, Checker())
        for outcome in ("commit", "rollback", "nothing"):
            open_transaction = producer.begin_transaction()
            producer.send(message(topic, outcome), open_transaction)
            if outcome == "commit":
                open_transaction.commit()
            elif outcome == "rollback":
                open_transaction.rollback()
        got = self.receive(consumer, 2, 50)
        assert {one.body.decode() for one in got} == {"commit", "nothing"}, f"{[one.body for one in got]}"
        producer.shutdown()
        consumer.shutdown()

    def push(self, topic: str, group: str) -> None:
        got: set[str] = set()
        failed = threading.Event()

        class Listener(MessageListener):
            def consume(self, message: Message) -> ConsumeResult:
                body = message.body.decode()
                if body == "m7" and not failed.is_set():
                    failed.set()
                    return ConsumeResult.FAILURE
                got.add(body)
                return ConsumeResult.SUCCESS

        consumer = PushConsumer(self.configuration, group, Listener(), {topic: FilterExpression()})
        consumer.startup()
        producer = self.producer(topic)
        end = time.monotonic() + 40
        while not got and time.monotonic() < end:
            producer.send(message(topic, "warm"))
            time.sleep(0.5)
        for number in range(30):
            producer.send(message(topic, f"m{number}"))
        while len(got - {"warm"}) < 30 and time.monotonic() < end + 30:
            time.sleep(0.1)
        assert got - {"warm"} == {f"m{number}" for number in range(30)}, f"{len(got)} messages"
        producer.shutdown()
        consumer.shutdown()

    def subscribe_lite(self, consumer: LitePushConsumer | LiteSimpleConsumer, lite: str) -> None:
        """Subscribe as soon as the client knows its quota: it does not wait for its settings.

        Client 5.1.2 subscribes each letter of a name, until it sends all its names 30 s later.
        """
        end = time.monotonic() + 20
        while True:
            try:
                consumer.subscribe_lite(lite)
                return
            except Exception as error:
                if "exceed quota: 0" not in str(error) or time.monotonic() > end:
                    raise
                time.sleep(0.05)

    def send_lite(self, producer: Producer, topic: str, lite: str, *bodies: str) -> None:
        for body in bodies:
            sent = message(topic, body)
            sent.lite_topic = lite
            producer.send(sent)

    def lite(self, topic: str, group: str) -> None:
        """A push consumer subscribes one of two lite topics, and later the other."""
        got: list[tuple[str, str]] = []
        failed = threading.Event()

        class Listener(MessageListener):
            def consume(self, message: Message) -> ConsumeResult:
                body = message.body.decode()
                if body == "a3" and not failed.is_set():
                    failed.set()
                    return ConsumeResult.FAILURE
                got.append((message.lite_topic, body))
                return ConsumeResult.SUCCESS

        def wait(count: int) -> None:
            end = time.monotonic() + 40
            while len(got) < count and time.monotonic() < end:
                time.sleep(0.05)

        consumer = LitePushConsumer(self.configuration, group, topic, Listener())
        consumer.startup()
        self.subscribe_lite(consumer, "a")
        producer = self.producer(topic)
        first, second = [f"a{number}" for number in range(10)], [f"b{number}" for number in range(10)]
        for one, other in zip(first, second, strict=True):
            self.send_lite(producer, topic, "a", one)
            self.send_lite(producer, topic, "b", other)
        wait(10)
        assert got == [("a", body) for body in first], f"{got}"
        self.subscribe_lite(consumer, "b")
        self.send_lite(producer, topic, "b", "b10")
        wait(21)
        assert got[10:] == [("b", body) for body in [*second, "b10"]], f"{got[10:]}"
        consumer.unsubscribe_lite("a")
        self.send_lite(producer, topic, "a", "nobody")
        self.send_lite(producer, topic, "b", "b11")
        wait(22)
        assert got[21:] == [("b", "b11")], f"{got[21:]}"
        producer.shutdown()
        consumer.shutdown()

    def lite_simple(self, topic: str, group: str) -> None:
        consumer = LiteSimpleConsumer(topic, self.configuration, group, 5)
        consumer.startup()
        self.subscribe_lite(consumer, "a")
        producer = self.producer(topic)
        self.send_lite(producer, topic, "a", "a0", "a1", "a2")
        self.send_lite(producer, topic, "b", "b0")
        got = self.receive(consumer, 3, 30)
        assert [(one.lite_topic, one.body.decode()) for one in got] == [("a", f"a{number}") for number in range(3)]
        assert not self.receive(consumer, 1, 2)
        producer.shutdown()
        consumer.shutdown()

    def faults(self, topic: str, group: str) -> None:
        """Send until each message is acknowledged, while servers are killed; the listener refuses one of them."""
        got: set[str] = set()
        failed = threading.Event()

        class Listener(MessageListener):
            def consume(self, message: Message) -> ConsumeResult:
                body = message.body.decode()
                if body == "m7" and not failed.is_set():
                    failed.set()
                    return ConsumeResult.FAILURE
                got.add(body)
                return ConsumeResult.SUCCESS

        consumer = PushConsumer(self.configuration, group, Listener(), {topic: FilterExpression()})
        consumer.startup()
        producer = self.producer(topic)

        def send(body: str) -> None:
            end = time.monotonic() + 60
            while True:
                try:
                    producer.send(message(topic, body))
                    return
                except Exception:
                    if time.monotonic() > end:
                        raise
                    time.sleep(0.2)

        while not got:
            send("warm")
            time.sleep(0.5)
        print("WARM", flush=True)
        for number in range(80):
            send(f"m{number}")
            time.sleep(0.2)
        expected = {f"m{number}" for number in range(80)}
        end = time.monotonic() + 90
        while expected - got and time.monotonic() < end:
            time.sleep(0.05)
        assert not expected - got, f"missing: {sorted(expected - got)}"


def main() -> None:
    endpoints, access_key, secret_key, run, *names = sys.argv[1:]
    scenarios = Scenarios(endpoints, (access_key, secret_key))
    for name in names:
        method: Callable[[str, str], None] = getattr(scenarios, name)
        begin = time.monotonic()
        verdict, what = "PASS", ""
        try:
            method(f"{run}-{name}", f"{run}-{name}-group")
        except Exception as error:
            verdict, what = "FAIL", f"{type(error).__name__}: {error}".replace("\n", " ")
        print(f"RESULT\t{name}\t{verdict}\t{round((time.monotonic() - begin) * 1000)}\t{what}", flush=True)
    # Threads of the client may be at work.
    import os

    os._exit(0)


if __name__ == "__main__":
    main()
