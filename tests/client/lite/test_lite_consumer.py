"""Lite topics over both ways: order, redelivery, exclusive and wildcard groups, starts, limits."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import sprocket
from sprocket import (
    AdminClient,
    BrokerRefused,
    ConnectionLost,
    ConsumeFrom,
    IllegalArgument,
    IllegalMessage,
    LiteQuotaExceeded,
    Message,
    MessageQueue,
    PopSettings,
    Producer,
    SubscriptionGroupConfig,
    Tail,
    TopicNotFound,
)
from sprocket.remoting.codes import RequestCode
from sprocket.testing import Broker
from tests.client.lite.rig import WAIT_S, Channels, taken


async def send(mq: sprocket.Connection, topic: str, lite_topic: str, *bodies: bytes) -> None:
    for body in bodies:
        await mq.producer().send(Message(topic, body, lite_topic=lite_topic))


@pytest.mark.timeout(120)
async def test_each_lite_topic_comes_in_order_and_only_the_subscribed_ones(address: str, channels: Channels) -> None:
    async with sprocket.connect(address) as mq:
        consumer = mq.lite_consumer(channels.shared, channels.topic, ["a", "b"])
        for number in range(3):
            for lite_topic in ("a", "b", "unread"):
                await send(mq, channels.topic, lite_topic, b"%s%d" % (lite_topic.encode(), number))
        async with asyncio.timeout(WAIT_S):
            found = await taken(consumer, 6)
        by_lite = {name: [m.body for m in found if m.lite_topic == name] for name in ("a", "b")}
        assert by_lite == {"a": [b"a0", b"a1", b"a2"], "b": [b"b0", b"b1", b"b2"]}
        assert consumer.lite_topics == ("a", "b")
        assert await consumer.receive(wait_s=0.1) == []


@pytest.mark.timeout(120)
async def test_a_rejected_message_comes_again_before_those_that_follow(address: str, channels: Channels) -> None:
    async with sprocket.connect(address) as mq:
        await send(mq, channels.topic, "a", b"0", b"1", b"2")
        consumer = mq.lite_consumer(channels.shared, channels.topic, "a")
        seen: list[tuple[bytes, int]] = []
        async with asyncio.timeout(WAIT_S):
            async for message in consumer:
                seen.append((message.body, message.reconsume_times))
                if seen == [(b"0", 0), (b"1", 0)]:
                    await message.nack(1)
                else:
                    await message.ack()
                if message.body == b"2":
                    break
        assert seen[:3] == [(b"0", 0), (b"1", 0), (b"1", 1)]
        assert [body for body, _ in seen[2:]] == [b"1", b"2"]


@pytest.mark.timeout(180)
async def test_a_receive_that_renews_gives_every_delivery(
    shared_broker: Broker, channels: Channels, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A message that lapsed in work is delivered again together with those that follow it, and so it is given."""
    settings = PopSettings(pop_invisible_time_s=1.0)

    async def away(*_: object) -> None:
        raise ConnectionLost("the broker is away")

    async with sprocket.connect(shared_broker.namesrv) as mq:
        await send(mq, channels.topic, "a", b"0", b"1")
        consumer = mq.lite_consumer(channels.shared, channels.topic, "a", settings=settings)
        monkeypatch.setattr(consumer._pops, "change_invisible", away)
        deliveries: list[list[bytes]] = []
        async with asyncio.timeout(120):
            while len(deliveries) < 2:
                if found := await consumer.receive(wait_s=2.0, renew=True):
                    deliveries.append([message.body for message in found])
        assert deliveries == [[b"0", b"1"]] * 2


@pytest.mark.timeout(120)
async def test_run_handles_lite_topics_side_by_side_and_each_in_order(address: str, channels: Channels) -> None:
    async with sprocket.connect(address) as mq:
        consumer = mq.lite_consumer(channels.shared, channels.topic, ["slow", "fast"])
        await send(mq, channels.topic, "slow", b"0", b"1")
        await send(mq, channels.topic, "fast", b"0", b"1")
        log: list[tuple[str, bytes]] = []
        fast_is_done = asyncio.Event()

        async def handle(message: sprocket.PoppedMessage) -> None:
            if message.lite_topic == "slow":
                await fast_is_done.wait()
            log.append((message.lite_topic, message.body))
            if log[-1] == ("fast", b"1"):
                fast_is_done.set()
            if log[-1] == ("slow", b"1"):
                consumer.stop()

        async with asyncio.timeout(WAIT_S):
            await consumer.run(handle, concurrency=4)
        assert log == [("fast", b"0"), ("fast", b"1"), ("slow", b"0"), ("slow", b"1")]


@pytest.mark.timeout(120)
async def test_a_failed_handler_stops_its_lite_topic_alone(address: str, channels: Channels) -> None:
    async with sprocket.connect(address) as mq:
        consumer = mq.lite_consumer(channels.shared, channels.topic, ["bad", "good"])
        await send(mq, channels.topic, "bad", b"0", b"1")
        await send(mq, channels.topic, "good", b"0", b"1")
        handled: list[tuple[str, bytes]] = []

        async def handle(message: sprocket.PoppedMessage) -> None:
            handled.append((message.lite_topic, message.body))
            if len(handled) == 3 or message.body == b"1":
                consumer.stop()
            if message.lite_topic == "bad":
                raise ValueError("cannot be handled")

        async with asyncio.timeout(WAIT_S):
            await consumer.run(handle, concurrency=1)
        assert ("bad", b"1") not in handled and ("good", b"1") in handled


@pytest.mark.code(RequestCode.NOTIFY_UNSUBSCRIBE_LITE)
@pytest.mark.timeout(120)
async def test_the_last_subscriber_of_an_exclusive_group_has_the_lite_topic(address: str, channels: Channels) -> None:
    lost: asyncio.Queue[str] = asyncio.Queue()
    async with sprocket.connect(address) as mq:
        first = mq.lite_consumer(channels.exclusive, channels.topic, ["a", "b"], on_lost=lost.put_nowait)
        await first.start()
        second = mq.lite_consumer(channels.exclusive, channels.topic, "a")
        await second.start()
        async with asyncio.timeout(WAIT_S):
            assert await lost.get() == "a"
            assert first.lite_topics == ("b",)
            await send(mq, channels.topic, "a", b"for the second")
            await send(mq, channels.topic, "b", b"for the first")
            assert [m.body for m in await taken(second, 1)] == [b"for the second"]
            assert [m.body for m in await taken(first, 1)] == [b"for the first"]


@pytest.mark.timeout(120)
async def test_a_wildcard_group_gets_every_lite_topic_and_names_none(address: str, channels: Channels) -> None:
    async with sprocket.connect(address) as mq:
        consumer = mq.lite_consumer(channels.wildcard, channels.topic)
        await consumer.start()
        await send(mq, channels.topic, "one", b"1")
        await send(mq, channels.topic, "two", b"2")
        async with asyncio.timeout(WAIT_S):
            assert {(m.lite_topic, m.body) for m in await taken(consumer, 2)} == {("one", b"1"), ("two", b"2")}
        with pytest.raises(BrokerRefused):
            await consumer.subscribe("one")


@pytest.mark.timeout(120)
async def test_a_subscriber_says_where_to_begin(address: str, channels: Channels) -> None:
    async with sprocket.connect(address) as mq:
        await send(mq, channels.topic, "a", b"0", b"1", b"2")
        consumer = mq.lite_consumer(channels.shared, channels.topic)
        async with asyncio.timeout(WAIT_S):
            await consumer.subscribe("a", start=ConsumeFrom.LAST)
            await send(mq, channels.topic, "a", b"3")
            assert [m.body for m in await taken(consumer, 1)] == [b"3"]
            for start, expected in (
                (ConsumeFrom.FIRST, [b"0", b"1", b"2", b"3"]),
                (2, [b"2", b"3"]),
                (Tail(1), [b"3"]),
                (datetime.now(UTC) - timedelta(hours=1), [b"0", b"1", b"2", b"3"]),
            ):
                await consumer.unsubscribe("a")
                await consumer.subscribe("a", start=start)
                assert [m.body for m in await taken(consumer, len(expected))] == expected


@pytest.mark.timeout(120)
async def test_a_dead_letter_frees_its_lite_topic(address: str, channels: Channels) -> None:
    async with sprocket.connect(address) as mq:
        await send(mq, channels.topic, "a", b"bad", b"good")
        consumer = mq.lite_consumer(channels.shared, channels.topic, "a")
        async with asyncio.timeout(WAIT_S):
            bad = await anext(aiter(consumer))
            await bad.dead_letter("unreadable")
            assert [m.body for m in await taken(consumer, 1)] == [b"good"]


@pytest.mark.timeout(120)
async def test_too_many_lite_topics_are_a_clear_error_and_change_nothing(
    address: str, shared_broker: Broker, channels: Channels
) -> None:
    group = f"{channels.shared}-quota"
    async with AdminClient(shared_broker.namesrv) as admin:
        attributes = {"+lite.bind.topic": channels.topic, "+lite.sub.client.quota": "1"}
        await admin.create_group(shared_broker.address, SubscriptionGroupConfig(group, attributes=attributes))
    async with sprocket.connect(address) as mq:
        consumer = mq.lite_consumer(group, channels.topic, "kept")
        await consumer.start()
        with pytest.raises(LiteQuotaExceeded, match=r"quota exceeded.*Unsubscribe lite topics"):
            await consumer.subscribe([f"n{number}" for number in range(400)])
        assert consumer.lite_topics == ("kept",)
        await send(mq, channels.topic, "kept", b"x")
        async with asyncio.timeout(WAIT_S):
            assert [m.body for m in await taken(consumer, 1)] == [b"x"]


@pytest.mark.timeout(120)
async def test_a_group_that_is_not_bound_is_refused_with_the_way_out(address: str, channels: Channels) -> None:
    async with sprocket.connect(address) as mq:
        with pytest.raises(BrokerRefused, match=r"lite\.bind\.topic"):
            await mq.lite_consumer("nobody-made-me", channels.topic, "a").start()
        with pytest.raises(TopicNotFound):
            await mq.lite_consumer(channels.shared, "NoSuchParent", "a").start()


@pytest.mark.timeout(120)
async def test_streams_keep_the_order_of_a_lite_topic(address: str, channels: Channels) -> None:
    async with sprocket.connect(address) as mq:
        messages = [Message(channels.topic, b"%d" % number, lite_topic="stream") for number in range(20)]
        sent = [result async for result in mq.producer("streams").send_many(messages)]
        assert [result.queue_offset for result in sent] == list(range(20)) or address.startswith("grpc")
        consumer = mq.lite_consumer(channels.shared, channels.topic, "stream")
        async with asyncio.timeout(WAIT_S):
            assert sorted(int(m.body) for m in await taken(consumer, 20)) == list(range(20))


async def test_what_a_lite_message_cannot_have_is_refused(shared_broker: Broker, channels: Channels) -> None:
    wrong: tuple[dict[str, Any], ...] = ({"lite_topic": "a:b"}, {"lite_topic": "x" * 241}, {"lite_topic": 7})
    for fields in wrong:
        with pytest.raises(IllegalMessage, match="lite_topic"):
            Message("T", b"x", **fields)
    with pytest.raises(IllegalMessage, match="neither delay nor priority"):
        Message("T", b"x", lite_topic="a", delay=1)
    with pytest.raises(IllegalMessage, match="neither delay nor priority"):
        Message("T", b"x", lite_topic="a", priority=1)
    message = Message(channels.topic, b"x", lite_topic="a")
    async with Producer("g", shared_broker.namesrv) as producer:
        with pytest.raises(IllegalMessage, match="a lite topic chooses the queue"):
            await producer.send(message, sharding_key="k")
        with pytest.raises(IllegalMessage, match="a lite topic chooses the queue"):
            await producer.send(message, queue=MessageQueue(channels.topic, "b", 0))
        with pytest.raises(IllegalMessage, match="in a batch"):
            await producer.send_batch([message])
        queues = {(await producer.send(message)).queue for _ in range(3)}
        await producer.send_oneway(message)
        assert len(queues) == 1


def test_starts_are_checked() -> None:
    with pytest.raises(IllegalArgument):
        Tail(-1)
    with pytest.raises(IllegalArgument, match="start"):
        sprocket.LiteConsumer("g", "T", "a", "h:1", start=-1)
    with pytest.raises(IllegalArgument, match="time zone"):
        sprocket.LiteConsumer("g", "T", "a", "h:1", start=datetime(2026, 1, 1))
    with pytest.raises(IllegalArgument, match="lite_topics"):
        sprocket.LiteConsumer("g", "T", ["a b"], "h:1")
