"""`send_many` with auto-batch: what travels together, in which order results come, and what ends a stream."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator

import pytest

from sprocket import BrokerRefused, ConsumeFrom, Consumer, IllegalMessage, Message, Producer, SendSettings
from sprocket import sync as blocking
from sprocket.client.send_result import SendResult
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.testing import Broker
from tests.client.fake_cluster import FakeBroker, FakeNameServer, hang_up, refuse, topic_data
from tests.waiting import until

BATCH, SINGLE = int(RequestCode.SEND_BATCH_MESSAGE), int(RequestCode.SEND_MESSAGE_V2)


@pytest.fixture
async def broker() -> AsyncIterator[FakeBroker]:
    async with FakeBroker("a") as broker:
        yield broker


@pytest.fixture
async def namesrv(broker: FakeBroker) -> AsyncIterator[str]:
    async with FakeNameServer() as names:
        names.topics.update({topic: topic_data(broker) for topic in ("T", "U")})
        yield names.address


def batching(namesrv: str, **settings: float) -> Producer:
    return Producer("g", namesrv, settings=SendSettings(auto_batch=True, **settings))  # type: ignore[arg-type]


async def sent(producer: Producer, messages: Iterable[Message], window: int = 256) -> list[SendResult]:
    return [result async for result in producer.send_many(messages, window=window)]


@pytest.mark.parametrize(
    ("messages", "window", "expected"),
    [
        ([Message("T", b"x")] * 20, 256, [BATCH]),
        ([Message("T", b"x")] * 20, 40, [BATCH] * 2),
        ([Message("T", b"x")] * 3, 1, [SINGLE] * 3),
        ([Message("T", b"x"), Message("U", b"x"), Message("U", b"x")], 256, [SINGLE, BATCH]),
        ([Message("T", b"x", tags="A"), Message("T", b"x", tags="B")], 256, [SINGLE] * 2),
        ([Message("T", b"x"), Message("T", b"x", wait_store_ok=False)], 256, [SINGLE] * 2),
        ([Message("T", b"x", delay_level=1)] * 2, 256, [SINGLE] * 2),
        ([*[Message("T", b"x")] * 2, Message("T", b"x", delay_level=1), *[Message("T", b"x")] * 2], 256,
         [BATCH, SINGLE, BATCH]),
        # Both limits are bytes of bodies: 32 KiB by default.
        ([Message("T", bytes(20_000))] * 2, 256, [SINGLE] * 2),
        ([Message("T", bytes(40_000)), Message("T", b"x"), Message("T", b"x")], 256, [SINGLE, BATCH]),
    ],
)  # fmt: skip
async def test_neighbours_that_are_alike_travel_together(
    namesrv: str, broker: FakeBroker, messages: list[Message], window: int, expected: list[int]
) -> None:
    async with batching(namesrv) as producer:
        await producer.queues("T")
        await producer.queues("U")
        results = await sent(producer, messages, window)
    assert [result.queue.topic for result in results] == [message.topic for message in messages]
    assert sorted(request.code for request in broker.taken) == sorted(expected)


async def test_results_come_in_order_and_say_where_each_message_lies(shared_broker: Broker, topic: str) -> None:
    bodies = [b"%d" % number for number in range(1000)]
    async with batching(shared_broker.namesrv) as producer:
        results = await sent(producer, (Message(topic, body, keys=body.decode()) for body in bodies), window=64)
    expected = {result.message_id: (body, result.queue_offset, result.offset_message_id)
                for body, result in zip(bodies, results, strict=True)}  # fmt: skip
    assert len(expected) == len(bodies)
    async with Consumer(f"g-{topic}", [topic], shared_broker.namesrv, consume_from=ConsumeFrom.FIRST) as consumer:
        for _ in bodies:
            message = await anext(consumer)
            place = (message.body, message.queue_offset, message.offset_message_id)
            assert expected.pop(message.message_id) == place


async def test_a_stream_goes_on_after_a_broker_hangs_up(namesrv: str, broker: FakeBroker) -> None:
    async with batching(namesrv, retry_times_when_send_failed=3) as producer:
        await producer.queues("T")
        broker.script.append(hang_up)
        assert len(await sent(producer, [Message("T", b"x")] * 100, window=16)) == 100


async def test_results_come_up_to_the_message_that_cannot_be_sent(namesrv: str, broker: FakeBroker) -> None:
    messages = [Message("T", body) for body in (b"a", b"b", b"c", b"d")]
    messages[2].body = b""
    results = []
    async with batching(namesrv) as producer:
        with pytest.raises(IllegalMessage, match="the body is empty"):
            async for result in producer.send_many(messages):
                results.append(result)  # noqa: PERF401  # what came before the error counts
    assert len(results) == 2
    assert [bytes(request.body) for request in broker.taken] == [b"a", b"b"]


async def test_what_is_no_message_is_refused_when_it_is_taken(namesrv: str) -> None:
    async with batching(namesrv) as producer:
        with pytest.raises(IllegalMessage, match="pass a Message"):
            await sent(producer, ["T"])  # type: ignore[list-item]
        with pytest.raises(IllegalMessage, match="topic"):
            await sent(producer, [Message("no topic!", b"x")])


async def test_a_refusal_ends_the_stream(namesrv: str, broker: FakeBroker) -> None:
    async with batching(namesrv) as producer:
        await producer.queues("T")
        broker.script.append(refuse(ResponseCode.MESSAGE_ILLEGAL))
        with pytest.raises(BrokerRefused, match="scripted"):
            await sent(producer, [Message("T", b"x")] * 4)
        assert len(await sent(producer, [Message("T", b"x")] * 4)) == 4


async def test_a_message_does_not_wait_for_a_slow_source(namesrv: str, broker: FakeBroker) -> None:
    async def source() -> AsyncIterator[Message]:
        yield Message("T", b"1")
        yield Message("T", b"2")
        await until(lambda: bool(broker.taken))
        yield Message("T", b"3")

    async with batching(namesrv) as producer:
        results = [result async for result in producer.send_many(source())]
    assert len(results) == 3
    assert [request.code for request in broker.taken] == [BATCH, SINGLE]


async def test_a_stream_takes_no_more_than_its_window(namesrv: str, broker: FakeBroker) -> None:
    released = asyncio.Event()
    held = taken = 0

    async def hold(request: object) -> object:
        nonlocal held
        held += 1
        await released.wait()
        return broker.accept(request)  # type: ignore[arg-type]

    def source() -> Iterator[Message]:
        nonlocal taken
        for _ in range(100):
            taken += 1
            yield Message("T", b"x")

    async with batching(namesrv, send_msg_timeout_s=60.0) as producer:
        await producer.send(Message("T", b"x"))
        broker.script.extend([hold] * 100)  # type: ignore[list-item]
        stream = producer.send_many(source(), window=12)
        first = asyncio.ensure_future(anext(stream))
        await until(lambda: held >= 4)
        assert taken <= 13
        released.set()
        await first
        assert len([result async for result in stream]) == 99


async def test_a_stream_that_is_left_early_leaves_no_task(namesrv: str, broker: FakeBroker) -> None:
    before = asyncio.all_tasks()
    async with batching(namesrv) as producer:
        stream = producer.send_many([Message("T", b"x")] * 100, window=8)
        await anext(stream)
        await stream.aclose()  # type: ignore[attr-defined]
    await until(lambda: not [task for task in asyncio.all_tasks() - before if "BatchedStream" in repr(task)])
    assert broker.taken


def test_the_blocking_twin_batches_too(shared_broker: Broker, topic: str) -> None:
    with blocking.Producer("g", shared_broker.namesrv, settings=SendSettings(auto_batch=True)) as producer:
        results = list(producer.send_many(Message(topic, b"%d" % number) for number in range(100)))
    assert len({(result.queue, result.queue_offset) for result in results}) == 100
