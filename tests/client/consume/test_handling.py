"""Handlers of lists, decisions to consume later, and what is held for too long."""

import asyncio
from collections import defaultdict

import pytest

from sprocket import (
    AdminClient,
    ConsumeFrom,
    Consumer,
    ConsumeSettings,
    Message,
    OrderlyConsumer,
    OrderlySettings,
    Producer,
    ReceivedMessage,
    ReconsumeLater,
)
from sprocket.testing import Broker
from tests.waiting import until


async def send(broker: Broker, topic: str, count: int, queue: int = 0) -> None:
    async with Producer("g", broker.namesrv) as producer:
        messages = [Message(topic, b"%d" % number) for number in range(count)]
        await producer.send_batch(messages, queue=(await producer.queues(topic))[queue])


def numbers(messages: list[ReceivedMessage]) -> list[int]:
    return [int(message.body) for message in messages]


async def test_lists_are_of_one_queue_and_bounded(shared_broker: Broker, topic: str) -> None:
    await send(shared_broker, topic, 25)
    await send(shared_broker, topic, 25, queue=1)
    lists: list[list[ReceivedMessage]] = []
    settings = ConsumeSettings(consume_message_batch_max_size=8)
    consumer = Consumer(f"g-{topic}", [topic], shared_broker.namesrv, consume_from=ConsumeFrom.FIRST, settings=settings)
    async with consumer:
        run = asyncio.create_task(consumer.run_batches(lists.append, concurrency=1))
        await until(lambda: sum(map(len, lists)) == 50)
        await until(lambda: sum(consumer.committed(topic).values()) == 50)
    await run
    assert max(map(len, lists)) == 8
    assert all(len({message.queue for message in messages}) == 1 for messages in lists)
    by_queue = defaultdict(list)
    for messages in lists:
        by_queue[messages[0].queue] += [message.queue_offset for message in messages]
    assert all(seen == list(range(len(seen))) for seen in by_queue.values())


async def test_what_the_handler_acknowledged_itself_is_not_redelivered(shared_broker: Broker, topic: str) -> None:
    await send(shared_broker, topic, 4)
    seen: list[tuple[int, int]] = []
    settings = ConsumeSettings(consume_message_batch_max_size=4)
    consumer = Consumer(f"g-{topic}", [topic], shared_broker.namesrv, consume_from=ConsumeFrom.FIRST, settings=settings)

    async def handler(messages: list[ReceivedMessage]) -> None:
        seen.extend((int(message.body), message.reconsume_times) for message in messages)
        if not messages[0].reconsume_times:
            for message in messages[:2]:
                await message.ack()
            raise ReconsumeLater(1)  # after 1 s

    async with consumer:
        run = asyncio.create_task(consumer.run_batches(handler))
        await until(lambda: len(seen) >= 6)
    await run
    assert sorted(seen) == [(0, 0), (1, 0), (2, 0), (2, 1), (3, 0), (3, 1)]


async def test_handler_sends_a_message_to_the_dead_letter_topic(shared_broker: Broker, topic: str) -> None:
    await send(shared_broker, topic, 1)

    async def dead(message: ReceivedMessage) -> None:
        raise ReconsumeLater(-1)

    group = f"g-{topic}"
    async with Consumer(group, [topic], shared_broker.namesrv, consume_from=ConsumeFrom.FIRST) as consumer:
        run = asyncio.create_task(consumer.run(dead))
        letters = Consumer(f"dlq-{topic}", [f"%DLQ%{group}"], shared_broker.namesrv, consume_from=ConsumeFrom.FIRST)
        async with letters:
            message = await anext(letters)
    await run
    assert message.body == b"0"


async def test_message_that_is_held_too_long_is_sent_back_once(shared_broker: Broker, topic: str) -> None:
    """A message sent back this way has a delay of 10 s; the offset shows that it was sent back."""
    await send(shared_broker, topic, 2)
    settings = ConsumeSettings(consume_timeout_s=2.0)
    consumer = Consumer(f"g-{topic}", [topic], shared_broker.namesrv, consume_from=ConsumeFrom.FIRST, settings=settings)
    async with consumer:
        first, second = await anext(consumer), await anext(consumer)
        await consumer.ack(second)
        assert consumer.committed(topic)[first.queue] == 0
        await until(lambda: consumer.committed(topic)[first.queue] == 2)
        assert first.is_settled
        await consumer.ack(first)
        await consumer.nack(first)  # it was sent back before: nothing happens
        async with AdminClient(shared_broker.namesrv) as admin:
            info = await admin.running_info(consumer.group, consumer.client_id)
    assert info.status_table[topic].consume_failed_msgs == 1


async def test_orderly_lists_are_retried_without_what_is_done(shared_broker: Broker, topic: str) -> None:
    await send(shared_broker, topic, 7)
    seen: list[list[int]] = []
    settings = OrderlySettings(consume_message_batch_max_size=3, suspend_current_queue_time_s=0.01)
    consumer = OrderlyConsumer(
        f"g-{topic}", [topic], shared_broker.namesrv, consume_from=ConsumeFrom.FIRST, settings=settings
    )

    async def handler(messages: list[ReceivedMessage]) -> None:
        seen.append(numbers(messages))
        if len(seen) == 1:
            await messages[0].ack()
            raise ValueError("the rest again")
        if len(seen) == 2:
            raise ReconsumeLater(suspend_s=0.02)

    async with consumer:
        run = asyncio.create_task(consumer.run_batches(handler))
        await until(lambda: sum(consumer.committed(topic).values()) == 7)
    await run
    assert seen == [[0, 1, 2], [1, 2, 3], [1, 2, 3], [4, 5, 6]]


@pytest.mark.parametrize("size", [0, 1025])
def test_size_of_lists_is_limited_as_in_the_reference(size: int) -> None:
    with pytest.raises(ValueError, match="1 to 1024"):
        ConsumeSettings(consume_message_batch_max_size=size)


async def cancelled_inside() -> None:
    """What a handler awaits is cancelled, and not the handler."""
    inner = asyncio.get_running_loop().create_future()
    inner.cancel()
    await inner


@pytest.mark.parametrize("kind", [Consumer, OrderlyConsumer])
async def test_cancellation_inside_a_handler_is_a_failure_of_its_message(
    kind: type[Consumer], shared_broker: Broker, topic: str
) -> None:
    await send(shared_broker, topic, 3)
    done: list[bytes] = []
    is_first = True

    async def handler(message: ReceivedMessage) -> None:
        nonlocal is_first
        if is_first:
            is_first = False
            await cancelled_inside()
        done.append(message.body)

    consumer = kind(f"g-{topic}", [topic], shared_broker.namesrv, consume_from=ConsumeFrom.FIRST)
    async with consumer:
        run = asyncio.create_task(consumer.run(handler, concurrency=1))
        await until(lambda: run.done() or sum(consumer.committed(topic).values()) == 3)
        assert not run.done()
    await run
    assert len(done) >= 2
