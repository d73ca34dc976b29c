"""Lite topics and sessions of the blocking client."""

import asyncio
import queue
from collections.abc import Iterator
from itertools import count

import pytest

from sprocket import AdminClient, Message, SessionLost, sync
from sprocket.testing import Broker
from tests.client.lite.rig import Channels

_numbers = count(1000)


@pytest.fixture
def channels(shared_broker: Broker) -> Iterator[Channels]:
    made = Channels(next(_numbers))

    async def create() -> None:
        async with AdminClient(shared_broker.namesrv) as admin:
            await made.create(admin, shared_broker.address)

    asyncio.run(create())
    yield made


@pytest.mark.timeout(60)
def test_a_session_reads_in_order_and_an_error_brings_a_message_again(
    shared_broker: Broker, channels: Channels
) -> None:
    with sync.connect(shared_broker.namesrv) as mq:
        with (
            pytest.raises(ValueError, match="spoilt"),
            mq.session("chat", topic=channels.topic, group=channels.exclusive) as session,
        ):
            for number in range(3):
                session.send(b"%d" % number)
            for message in session:
                if message.body == b"1":
                    raise ValueError("spoilt")
        with mq.session("chat", topic=channels.topic, group=channels.exclusive, peer="other") as session:
            assert (session.id, session.topic, session.group, session.peer) == (
                "chat", channels.topic, channels.exclusive, "other",
            )  # fmt: skip
            received = [session.receive(wait_s=20) for _ in range(2)]
            assert [message.body for message in received if message is not None] == [b"1", b"2"]
            assert session.receive(wait_s=0.1) is None


@pytest.mark.timeout(60)
def test_a_consumer_of_lite_topics_hears_of_its_loss(shared_broker: Broker, channels: Channels) -> None:
    lost: queue.Queue[str] = queue.Queue()
    with sync.connect(shared_broker.namesrv) as mq:
        consumer = mq.lite_consumer(channels.exclusive, channels.topic, "a", on_lost=lost.put)
        mq.producer().send(Message(channels.topic, b"x", lite_topic="a"))
        for message in consumer:
            assert (message.body, message.lite_topic) == (b"x", "a")
            message.ack()
            break
        consumer.subscribe("b")
        with sync.LiteConsumer(channels.exclusive, channels.topic, "a", shared_broker.namesrv):
            assert lost.get(timeout=20) == "a"
        assert consumer.lite_topics == ("b",)
        consumer.unsubscribe("b")
        assert consumer.lite_topics == ()


@pytest.mark.timeout(60)
def test_a_lost_session_is_a_clear_error(shared_broker: Broker, channels: Channels) -> None:
    with sync.connect(shared_broker.namesrv) as one, sync.connect(shared_broker.namesrv) as other:
        mine = one.session("chat", topic=channels.topic, group=channels.exclusive)
        theirs = other.session("chat", topic=channels.topic, group=channels.exclusive)
        for session in (mine, theirs):
            session.send(b"who reads this has the session")
            received = session.receive(wait_s=20)
            assert received is not None
            received.ack()
        with pytest.raises(SessionLost):
            mine.receive(wait_s=20)
