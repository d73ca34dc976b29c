"""`mq.consumer` over gRPC: handlers, redelivery, order within a message group, and limits."""

import asyncio
from functools import partial

import pytest

import sprocket
from sprocket import ConnectionLost, IllegalArgument, Message, PopSettings, ReceivedMessage
from sprocket.client.grpc import push_consumer
from sprocket.client.grpc.pops import GrpcPops
from sprocket.testing import Broker
from tests.proxy.rig import Rig, create_group, create_topic, running
from tests.waiting import until


async def test_handler_gets_every_message_and_a_failed_one_again(rig: Rig, topic: str) -> None:
    seen: list[tuple[bytes, int]] = []
    async with sprocket.connect(f"grpc://127.0.0.1:{rig.port}") as mq:
        consumer = mq.consumer("group-push", topic)

        async def handle(message: ReceivedMessage) -> None:
            seen.append((message.body, message.reconsume_times))
            if message.body == b"7" and not message.reconsume_times:
                await message.nack(1)
            elif len({body for body, _ in seen}) == 20 and (b"7", 1) in seen:
                consumer.stop()

        await mq.simple_consumer("group-push", topic).receive(1, wait_s=0.1)  # the group's place is before the sends
        running = asyncio.create_task(consumer.run(handle))
        for number in range(20):
            await mq.producer().send(Message(topic, b"%d" % number))
        async with asyncio.timeout(25):
            await running
    assert sorted(seen) == sorted([*((b"%d" % number, 0) for number in range(20)), (b"7", 1)])


async def test_message_group_of_an_ordered_group_is_handled_in_order(rig: Rig) -> None:
    topic = await create_topic(rig.broker, "FIFO", queues=4)
    group = await create_group(rig.broker, consume_message_orderly=True)
    seen: list[bytes] = []
    async with sprocket.connect(f"grpc://127.0.0.1:{rig.port}") as mq:
        consumer = mq.consumer(group, topic)

        async def handle(message: ReceivedMessage) -> None:
            await asyncio.sleep(0.01)
            seen.append(message.body)
            if len(seen) == 10:
                consumer.stop()

        await mq.simple_consumer(group, topic).receive(1, wait_s=0.1)
        for number in range(10):
            await mq.producer().send(Message(topic, b"%d" % number), sharding_key="one")
        async with asyncio.timeout(25):
            await consumer.run(handle)
    assert seen == [b"%d" % number for number in range(10)]


@pytest.mark.parametrize("by_key", [False, True])
@pytest.mark.timeout(180)
async def test_what_waits_longer_than_its_invisible_time_is_handled_after_an_outage(
    broker: Broker, topic: str, monkeypatch: pytest.MonkeyPatch, by_key: bool
) -> None:
    """Messages that lapsed before their handler began leave room, and their next deliveries are handled."""
    settings = partial(PopSettings, pop_invisible_time_s=2.0, poll_time_s=2.0, pop_threshold_for_queue=3)
    monkeypatch.setattr(push_consumer, "PopSettings", settings)
    bodies = {b"0", b"1", b"2", b"3"}
    seen: set[bytes] = set()

    async def fail(*_: object) -> None:
        raise ConnectionLost("the proxy is away")

    async with (
        running(broker, min_invisible_time_mills_for_recv=1000) as rig,
        sprocket.connect(f"grpc://127.0.0.1:{rig.port}") as mq,
    ):
        consumer = mq.consumer(f"group-{topic}", topic, max_in_flight=4)
        held = consumer._popping._renewal.held  # type: ignore[attr-defined]

        async def handle(message: ReceivedMessage) -> None:
            if not seen:
                seen.add(message.body)
                await until(lambda: len(held()) >= 3)
                if by_key:
                    await until(lambda: len(consumer.taken) >= 3)  # type: ignore[attr-defined]
                with monkeypatch.context() as away:
                    away.setattr(GrpcPops, "pop", fail)
                    away.setattr(GrpcPops, "change_invisible", fail)
                    await until(lambda: all(map(consumer.is_over, held())))  # type: ignore[attr-defined]
            seen.add(message.body)
            if seen == bodies:
                consumer.stop()

        await mq.simple_consumer(consumer.group, topic).receive(1, wait_s=0.1)
        for body in sorted(bodies):
            await mq.producer().send(Message(topic, body))
        async with asyncio.timeout(120):
            await consumer.run(handle, concurrency=4 if by_key else 1, by_key=by_key and (lambda message: 0))
        await until(lambda: not consumer.taken)  # type: ignore[attr-defined]


async def test_typed_topic_works_above_it(rig: Rig, topic: str) -> None:
    async with sprocket.connect(f"grpc://127.0.0.1:{rig.port}") as mq:
        orders = mq.topic(topic, dict[str, int])
        await mq.simple_consumer("group-typed", topic).receive(1, wait_s=0.1)
        await orders.send({"number": 7})
        async with asyncio.timeout(15):
            async for order in orders.consume("group-typed"):
                assert order == {"number": 7}
                break


async def test_queues_of_a_member_do_not_exist(rig: Rig, topic: str) -> None:
    async with sprocket.connect(f"grpc://127.0.0.1:{rig.port}") as mq:
        with pytest.raises(IllegalArgument, match="connect to the name server"):
            await mq.consumer("group-none", topic).lag()
        with pytest.raises(IllegalArgument, match="consumeMessageOrderly"):
            mq.orderly_consumer("group-none", topic)
