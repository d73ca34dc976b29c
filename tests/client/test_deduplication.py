"""One handling of what comes twice."""

import asyncio

import pytest

from sprocket import ConsumeFrom, Consumer, Deduplicator, KeyWindow, Message, Producer, ReceivedMessage, SendSettings
from sprocket.testing import Broker
from tests.client.consume.test_process_queue import message
from tests.client.fake_cluster import until
from tests.clock import ManualClock


async def test_window_forgets_by_age_and_by_number() -> None:
    clock = ManualClock()
    window = KeyWindow(60, 3, clock=clock)
    for key in "abcd":
        await window.add(key)
    assert [await window.contains(key) for key in "abcd"] == [False, True, True, True]
    clock.advance(30)
    await window.add("b")
    clock.advance(31)
    assert [await window.contains(key) for key in "bcd"] == [True, False, False]
    assert len(window) == 1


async def test_what_fails_is_handled_again_and_what_succeeded_is_not() -> None:
    seen: list[int] = []

    async def handler(received: ReceivedMessage) -> None:
        seen.append(received.queue_offset)
        await asyncio.sleep(0)
        if len(seen) == 1:
            raise ValueError

    once = Deduplicator(key=lambda received: received.message_id)
    handle = once.once(handler)
    # Two of one id at the same time: the second waits, and handles it because the first failed.
    outcomes = await asyncio.gather(*(handle(message(offset)) for offset in (1, 2)), return_exceptions=True)
    assert isinstance(outcomes[0], ValueError)
    assert outcomes[1] is None
    await handle(message(3))
    assert seen == [1, 2]
    assert once.duplicates == 1


async def test_sync_handlers_and_keys_of_ones_own() -> None:
    seen: list[int] = []
    handle = Deduplicator(key=lambda received: received.topic).once(lambda received: seen.append(received.queue_offset))
    for offset in range(6):
        await handle(message(offset))
    assert seen == [0]


@pytest.mark.parametrize("is_batch", [False, True])
async def test_message_that_was_sent_again_under_its_key_is_handled_once(
    shared_broker: Broker, topic: str, is_batch: bool
) -> None:
    seen: list[str] = []
    once = Deduplicator()
    for _ in range(2):  # a producer, and the one that was started after it died
        async with Producer("g", shared_broker.namesrv, settings=SendSettings(auto_batch=is_batch)) as producer:
            orders = [Message(topic, b"x", unique_key=f"order-{number}") for number in range(5)]
            results = await asyncio.gather(*map(producer.send, orders))
    async with Consumer(f"g-{topic}", [topic], shared_broker.namesrv, consume_from=ConsumeFrom.FIRST) as consumer:
        run = asyncio.create_task(consumer.run(once.once(lambda received: seen.append(received.message_id))))
        await until(lambda: len(seen) + once.duplicates == 10)
    await run
    assert sorted(seen) == sorted({result.message_id for result in results})
    assert once.duplicates == 5
