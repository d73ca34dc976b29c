"""Sends that compiled code starts are those that Python would have started: the same requests to the same queues."""

import random
from itertools import count
from types import SimpleNamespace
from typing import Any

import pytest

from sprocket.client.connection.topic_route import TopicRoute
from sprocket.client.connection.unique_id import unique_ids
from sprocket.client.connection.wire_names import WireNames
from sprocket.client.message import Message
from sprocket.client.send.attempt import Attempt
from sprocket.client.send.compiled_starts import ENGINE
from sprocket.client.send.send_request import SendRequest, SendSettings, single_request
from sprocket.client.send.sender import Sender
from sprocket.remoting.bodies.client import MessageQueue
from sprocket.remoting.frames import encode_request
from tests.clock import ManualClock
from tests.tiers import seeds

pytestmark = pytest.mark.skipif(ENGINE is None, reason="the compiled engine is not built")
BROKERS = ("broker-a", "broker-b")
START_MS = 1_700_000_000_000


class Connection:
    """A connection that keeps the requests that were written to it."""

    def __init__(self, is_signing: bool = False) -> None:
        numbers = count(1)
        self.is_closed = False
        self.is_signing = is_signing
        self.written: list[tuple[object, ...]] = []
        self.next_opaque = lambda: next(numbers)

    def request_encoded(
        self, waiter: Any, code: int, opaque: int, prefix: bytes, body: bytes, timeout_s: float
    ) -> None:
        self.written.append((code, prefix + body, timeout_s))

    def request_for(self, waiter: Any, code: int, fields: dict[str, str], body: bytes, *, timeout_s: float) -> None:
        self.written.append((code, encode_request(code, self.next_opaque(), fields, len(body)) + body, timeout_s))


class Client:
    """A sender, and all that it knows of a cluster of two brokers."""

    def __init__(self, engine: Any, is_signing: bool = False) -> None:
        self.settings = SendSettings()
        self.clock = ManualClock(START_MS)
        self.is_signing = is_signing
        self.route_changes = 1
        self.changes = dict.fromkeys(BROKERS, -1.0)
        self.route: TopicRoute | None = None
        self.connections = {name: Connection(is_signing) for name in BROKERS}
        self.all_connections = list(self.connections.values())
        self.new_id = unique_ids(bytes(4), 7, bytes(4), self.clock, engine)
        self.identity = SimpleNamespace(new_unique_id=self.new_id)
        self.names = WireNames()
        self.remoting = SimpleNamespace(open_channel=self.open_channel)
        instance: Any = self
        self.sender = Sender(instance, "G", self.settings, lambda: 3, engine)
        self.compiled = 0
        self.started: list[tuple[object, ...]] = []

    def cached_route(self, topic: str) -> TopicRoute | None:
        return self.route

    def master_changed_at(self, broker_name: str) -> float:
        return self.changes[broker_name]

    def master_address(self, broker_name: str) -> str:
        return broker_name

    def open_channel(self, address: str) -> Connection | None:
        connection = self.connections[address]
        return None if connection.is_closed else connection

    def reroute(self, counts: tuple[int, int]) -> None:
        pairs = zip(BROKERS, counts, strict=True)
        queues = tuple(MessageQueue("T", name, index) for name, many in pairs for index in range(many))
        self.route = TopicRoute("T", queues, queues, {name: {0: name} for name in BROKERS})
        self.route_changes += 1

    def reconnect(self, broker_name: str) -> None:
        self.connections[broker_name] = Connection(self.is_signing)
        self.all_connections.append(self.connections[broker_name])

    def send(self, message: Message) -> None:
        start = self.sender.compiled.start
        attempt = None if start is None else start(message, 2.5)
        if attempt is None:
            attempt = self.sender.start(single_request(message, self.settings, self.new_id), 2.5)
        else:
            self.compiled += 1
        self.started.append(() if attempt is None else parts_of(attempt))


def parts_of(attempt: Attempt) -> tuple[object, ...]:
    request = [getattr(attempt.request, name) for name in SendRequest.__slots__]
    return (type(attempt), attempt.queue, attempt.started, attempt.outcome, attempt.done(), *request)


def message_of(chance: random.Random) -> Message:
    body = chance.choice((b"x", b"y" * 100, b"z" * 5000))
    if chance.random() < 0.8:
        return Message("T", body, tags=chance.choice(("", "A", 'quote"')), keys=chance.choice(((), ["k1", "k2"])))
    return chance.choice((Message("T", body, delay_level=2), Message("T", body, tags="é"), Message("T", body, flag=7)))


def event_of(chance: random.Random, both: list[Client]) -> None:
    """Change something at both clients."""
    kind, counts = chance.choice((0, 1, 2, 2, 3, 3, 4, 5, 5, 5)), (chance.randrange(1, 4), chance.randrange(3))
    name, seconds = chance.choice(BROKERS), chance.choice((0.0004, 0.5))
    for client in both:
        if kind == 0:
            client.reroute(counts)
        elif kind == 1:
            client.connections[name].is_closed = True
        elif kind == 2:
            client.reconnect(name)
        elif kind == 3:
            client.clock.advance(seconds)
        elif kind == 4:
            now = client.clock.monotonic()
            client.sender.faults.failed(name, now, now)
        else:
            client.changes[name] = client.clock.monotonic()


@pytest.mark.parametrize("seed", seeds(6))
async def test_any_order_of_messages_and_changes_gives_the_same_requests(seed: int) -> None:
    chance = random.Random(seed)
    compiled, pure = both = [Client(ENGINE), Client(None)]
    for client in both:
        client.reroute((2, 1))
    for _ in range(3000):
        if chance.random() < 0.01:
            event_of(chance, both)
        message = message_of(chance)
        for client in both:
            client.send(message)
    assert compiled.started == pure.started
    written = [[connection.written for connection in client.all_connections] for client in both]
    assert written[0] == written[1]
    assert pure.compiled == 0
    assert compiled.compiled > 100


def test_no_ways_are_kept_for_a_signed_connection() -> None:
    client = Client(ENGINE, is_signing=True)
    client.reroute((2, 0))
    for _ in range(10):
        client.send(Message("T", b"x"))
    assert client.compiled == 0
    assert len(client.connections["broker-a"].written) == 10


def test_an_avoided_broker_gets_nothing_from_compiled_code() -> None:
    client = Client(ENGINE)
    client.reroute((2, 2))
    for _ in range(8):
        client.send(Message("T", b"x"))
    assert client.compiled > 0
    client.sender.faults.failed("broker-a", 0.0, 0.0)
    start = client.sender.compiled.start
    assert start is not None
    assert start(Message("T", b"x"), 1.0) is None


def test_a_message_with_an_attribute_of_any_type_is_left_to_python_and_nothing_is_written() -> None:
    client = Client(ENGINE)
    client.reroute((1, 0))
    client.send(Message("T", b"x"))
    start = client.sender.compiled.start
    assert start is not None
    for name in Message.__slots__:
        for value in (7, ["T"], "\ud800"):
            message = Message("T", b"x")
            setattr(message, name, value)
            assert start(message, 1.0) is None
        delattr(message, name)
        assert start(message, 1.0) is None
    not_a_message: Any = "T"
    assert start(not_a_message, 1.0) is None
    assert len(client.connections["broker-a"].written) == 1
