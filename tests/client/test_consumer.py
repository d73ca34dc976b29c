"""The consumer against a real broker."""

import asyncio
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import pytest

from sprocket import (
    ClientClosed,
    ClientSettings,
    ConsumeFrom,
    Consumer,
    ConsumeSettings,
    IllegalMessage,
    Message,
    MessageModel,
    OrderlyConsumer,
    Producer,
    PullSettings,
    ReceivedMessage,
)
from sprocket.remoting.client import RemotingClient
from sprocket.remoting.codes import RequestCode
from sprocket.remoting.headers.offset import QueryConsumerOffsetRequestHeader, UpdateConsumerOffsetRequestHeader
from sprocket.testing import Broker
from tests.client.fake_cluster import client_tasks
from tests.waiting import until


async def send(broker: Broker, topic: str, count: int, first: int = 0, **fields: str) -> None:
    async with Producer("g", broker.namesrv) as producer:
        messages = (Message(topic, b"%d" % number, **fields) for number in range(first, first + count))
        async for _ in producer.send_many(messages):
            pass


def reader(broker: Broker, topic: str, **options: object) -> Consumer:
    group = options.pop("group", f"group-{topic}")
    options.setdefault("consume_from", ConsumeFrom.FIRST)
    namesrv = "" if "client" in options else broker.namesrv
    return Consumer(group, options.pop("topics", [topic]), namesrv, **options)  # type: ignore[arg-type]


async def take(consumer: Consumer, count: int) -> list[ReceivedMessage]:
    """Receive `count` messages and acknowledge them."""
    messages = []
    while len(messages) < count:
        messages.append(await anext(consumer))
        await consumer.ack(messages[-1])
    return messages


def offset_files(directory: Path, group: str) -> int:
    """How many members keep offsets of `group` there."""
    return len(list(directory.glob(f"*@*/{group}/offsets.json")))


def numbers(messages: list[ReceivedMessage]) -> list[int]:
    return sorted(int(message.body) for message in messages)


async def test_all_messages_come_in_the_order_of_their_queues(shared_broker: Broker, topic: str) -> None:
    await send(shared_broker, topic, 500)
    async with reader(shared_broker, topic) as consumer:
        messages = await take(consumer, 500)
        await until(lambda: len(consumer.assignment) == 4)
    assert numbers(messages) == list(range(500))
    for queue in {message.queue for message in messages}:
        offsets = [message.queue_offset for message in messages if message.queue == queue]
        assert offsets == list(range(len(offsets)))


async def test_next_consumer_goes_on_where_the_last_acknowledged(shared_broker: Broker, topic: str) -> None:
    await send(shared_broker, topic, 100)
    seen = []
    async with reader(shared_broker, topic) as consumer:
        for _ in range(100):
            message = await anext(consumer)
            if message.queue_offset < 20:  # the last five of each queue are left
                await consumer.ack(message)
            else:
                seen.append(int(message.body))
    async with reader(shared_broker, topic) as consumer:
        assert numbers(await take(consumer, 20)) == sorted(seen)


async def test_what_is_acknowledged_is_committed_while_running(shared_broker: Broker, topic: str) -> None:
    await send(shared_broker, topic, 100)
    client = ClientSettings(namesrv=shared_broker.namesrv, persist_consumer_offset_interval_s=0.05)
    remoting = RemotingClient()

    async def committed() -> int:
        total = 0
        for queue_id in range(4):
            header = QueryConsumerOffsetRequestHeader(consumer_group=f"group-{topic}", topic=topic, queue_id=queue_id)
            answer = await remoting.invoke(shared_broker.address, RequestCode.QUERY_CONSUMER_OFFSET, header)
            total += int(answer.ext_fields.get("offset", 0))
        return total

    async with reader(shared_broker, topic, client=client) as consumer:
        await take(consumer, 100)
        while await committed() < 100:
            await asyncio.sleep(0.02)
    await remoting.close()


async def test_only_wanted_tags_come(shared_broker: Broker, topic: str) -> None:
    for first, tag in enumerate(["A", "B", "C"]):
        await send(shared_broker, topic, 10, first * 10, tags=tag)
    async with reader(shared_broker, topic, topics={topic: "A || C"}) as consumer:
        messages = await take(consumer, 20)
    assert Counter(message.tags for message in messages) == {"A": 10, "C": 10}


async def test_tags_with_the_same_hash_are_told_apart(shared_broker: Broker, topic: str) -> None:
    await send(shared_broker, topic, 10, tags="BB")  # the hash of Aa is that of BB
    await send(shared_broker, topic, 10, 10, tags="Aa")
    async with reader(shared_broker, topic, topics={topic: "Aa"}) as consumer:
        assert numbers(await take(consumer, 10)) == list(range(10, 20))


async def test_message_sent_back_is_redelivered_under_its_topic(shared_broker: Broker, topic: str) -> None:
    await send(shared_broker, topic, 1, tags="A", keys="k")
    async with reader(shared_broker, topic) as consumer:
        first = await anext(consumer)
        await consumer.nack(first, delay_level=1)
        again = await anext(consumer)
        await consumer.ack(again)
    assert (again.topic, again.body, again.tags, again.keys) == (topic, b"0", "A", ["k"])
    assert (first.reconsume_times, again.reconsume_times) == (0, 1)
    assert again.message_id == first.message_id
    assert again.queue.topic == f"%RETRY%group-{topic}"


async def test_handler_that_raises_gets_its_message_again(shared_broker: Broker, topic: str) -> None:
    await send(shared_broker, topic, 20)
    handled: list[int] = []
    running = most = 0

    async def handle(message: ReceivedMessage) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.001)
        running -= 1
        if message.body == b"7" and not message.reconsume_times:
            raise ValueError("not yet")
        handled.append(int(message.body))

    async with reader(shared_broker, topic) as consumer:
        work = asyncio.create_task(consumer.run(handle, concurrency=4))
        await until(lambda: len(handled) == 20)
        assert handled[-1] == 7  # a delay lies between
        assert most == 4
        await consumer.close()
        await work


async def test_members_share_the_queues_and_take_over(shared_broker: Broker, topic: str) -> None:
    seen: Counter[int] = Counter()

    async def consume(consumer: Consumer) -> None:
        async for message in consumer:
            seen[int(message.body)] += 1
            await consumer.ack(message)

    def own(consumer: Consumer) -> int:
        return sum(queue.topic == topic for queue in consumer.assignment)

    async with reader(shared_broker, topic) as first:
        work = [asyncio.create_task(consume(first))]
        await until(lambda: own(first) == 4)
        async with reader(shared_broker, topic) as second:
            work.append(asyncio.create_task(consume(second)))
            await until(lambda: own(first) == own(second) == 2)
            assert not set(first.assignment) & set(second.assignment)
            await send(shared_broker, topic, 400)
            await until(lambda: len(seen) == 400)
        await until(lambda: own(first) == 4)
        await send(shared_broker, topic, 400, 400)
        await until(lambda: len(seen) == 800)
    await asyncio.gather(*work)
    assert set(seen.values()) == {1}


async def test_nack_on_a_revoked_queue_sends_nothing_back(
    shared_broker: Broker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its new owner gets the message: a copy by the retry topic would be a second one."""
    sent_back: list[ReceivedMessage] = []

    async def send_back(message: ReceivedMessage, delay_level: int) -> None:
        sent_back.append(message)

    await send(shared_broker, topic, 20)
    async with reader(shared_broker, topic) as first:
        monkeypatch.setattr(first._back, "send", send_back)
        held = [await anext(first) for _ in range(20)]
        async with reader(shared_broker, topic) as second:
            await until(lambda: len([queue for queue in first.assignment if queue.topic == topic]) == 2)
            revoked = [message for message in held if message.queue not in first.assignment]
            assert len(revoked) == 10
            for message in held:
                await first.nack(message)
            assert numbers(await take(second, 10)) == numbers(revoked)
    assert numbers(sent_back) == sorted(set(numbers(held)) - set(numbers(revoked)))


async def test_no_pull_names_a_version_that_brokers_were_not_told_of(
    shared_broker: Broker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They would refuse it: SUBSCRIPTION_NOT_LATEST, on a healthy start."""
    arrived = asyncio.Event()
    async with reader(shared_broker, topic) as consumer:
        await until(lambda: len(consumer.assignment) == 4)
        loops = [loop for loop in consumer._assignment._loops.values() if loop.process_queue.queue.topic == topic]
        before = loops[0]._subscription().sub_version
        with monkeypatch.context() as patched:
            patched.setattr(consumer._instance, "heartbeat_all", arrived.wait)
            changing = asyncio.create_task(consumer._assignment_changed())
            await until(lambda: consumer._subscriptions[topic].sub_version > before)
            assert loops[0]._subscription().sub_version == before
            arrived.set()
            await changing
        assert loops[0]._subscription().sub_version > before


async def test_broadcasting_gives_everything_to_everybody(shared_broker: Broker, topic: str, tmp_path: Path) -> None:
    def listener(name: str) -> Consumer:
        return reader(
            shared_broker,
            topic,
            model=MessageModel.BROADCASTING,
            settings=ConsumeSettings(local_offset_store_dir=tmp_path),
            client=ClientSettings(namesrv=shared_broker.namesrv, instance_name=name),
        )

    await send(shared_broker, topic, 50)
    async with listener("one") as one, listener("two") as two:
        assert numbers(await take(one, 50)) == numbers(await take(two, 50)) == list(range(50))
    assert offset_files(tmp_path, f"group-{topic}") == 2
    await send(shared_broker, topic, 10, 50)
    async with listener("one") as one:
        assert numbers(await take(one, 10)) == list(range(50, 60))


async def test_new_group_begins_where_it_is_told(shared_broker: Broker, topic: str) -> None:
    await send(shared_broker, topic, 20)
    await asyncio.sleep(0.01)
    between = datetime.now(UTC)
    await asyncio.sleep(0.01)
    await send(shared_broker, topic, 20, 20)
    async with reader(shared_broker, topic, group="by-time", consume_from=between) as consumer:
        assert numbers(await take(consumer, 20)) == list(range(20, 40))
    async with reader(shared_broker, topic, group="from-first") as consumer:
        assert numbers(await take(consumer, 40)) == list(range(40))


async def test_offset_that_does_not_exist_is_corrected(shared_broker: Broker, topic: str) -> None:
    await send(shared_broker, topic, 8)
    remoting = RemotingClient()
    for queue_id in range(4):
        header = UpdateConsumerOffsetRequestHeader(
            consumer_group=f"group-{topic}", topic=topic, queue_id=queue_id, commit_offset=1000
        )
        await remoting.invoke(shared_broker.address, RequestCode.UPDATE_CONSUMER_OFFSET, header)
    await remoting.close()
    async with reader(shared_broker, topic) as consumer:
        await until(lambda: len(consumer.assignment) == 4)
        await send(shared_broker, topic, 8, 8)
        seen: set[int] = set()
        while not set(range(8, 16)) <= seen:
            (message,) = await take(consumer, 1)
            seen.add(int(message.body))


async def test_no_more_is_pulled_than_may_be_unacknowledged(shared_broker: Broker, topic: str) -> None:
    await send(shared_broker, topic, 400)
    pull = PullSettings(pull_threshold_for_queue=10, pull_batch_size=4)
    async with reader(shared_broker, topic, settings=ConsumeSettings(pull=pull)) as consumer:
        held = [await anext(consumer) for _ in range(44)]  # 12 of each queue at most: 10 and the rest of a batch
        assert all(message.queue_offset < 14 for message in held)
        for message in held:
            await consumer.ack(message)
        assert len(await take(consumer, 356)) == 356


async def test_subscription_is_changed_while_open(shared_broker: Broker, topic: str) -> None:
    await send(shared_broker, topic, 5)
    async with reader(shared_broker, topic, topics=[]) as consumer:
        await consumer.subscribe(topic, "*")
        assert numbers(await take(consumer, 5)) == list(range(5))
        await consumer.unsubscribe(topic)
        assert [queue.topic for queue in consumer.assignment if queue.topic == topic] == []


async def test_topic_that_comes_later_is_found(shared_broker: Broker) -> None:
    async with reader(shared_broker, "ComesLater") as consumer:
        await send(shared_broker, "ComesLater", 3)
        assert numbers(await take(consumer, 3)) == [0, 1, 2]


async def test_closing_ends_an_iteration_that_waits(shared_broker: Broker, topic: str) -> None:
    async with reader(shared_broker, topic) as consumer:
        waiting = asyncio.create_task(anext(consumer, None))
        await until(lambda: len(consumer.assignment) == 4)
    assert await waiting is None


async def test_misuse_is_told() -> None:
    with pytest.raises(IllegalMessage, match="names no tag"):
        Consumer("g", {"T": " || "}, "127.0.0.1:1")
    with pytest.raises(IllegalMessage, match="group"):
        Consumer("a b", ["T"], "127.0.0.1:1")
    with pytest.raises(ValueError, match="namesrv"):
        Consumer("g", ["T"])
    with pytest.raises(ClientClosed, match="async with"):
        await anext(Consumer("g", ["T"], "127.0.0.1:1"))


async def test_receive_gives_what_is_there_and_waits_no_longer_than_told(shared_broker: Broker, topic: str) -> None:
    await send(shared_broker, topic, 40)
    async with reader(shared_broker, topic) as consumer:
        taken: list[ReceivedMessage] = []
        while len(taken) < 40:
            part = await consumer.receive(8)
            assert 0 < len(part) <= 8
            assert len({message.queue for message in part}) == 1
            taken += part
        assert await consumer.receive(8, wait_s=0.05) == []
        waiting = asyncio.create_task(consumer.receive())
        await asyncio.sleep(0)
    assert await waiting == []
    assert consumer.is_closed
    assert numbers(taken) == list(range(40))


@pytest.mark.parametrize("kind", [Consumer, OrderlyConsumer])
async def test_closing_that_is_cancelled_leaves_nothing_behind(
    kind: type[Consumer], shared_broker: Broker, topic: str
) -> None:
    """A member whose heartbeats went on would keep its queues from the others."""
    await send(shared_broker, topic, 1)
    before = asyncio.all_tasks()
    consumer = kind(f"g-{topic}", [topic], shared_broker.namesrv, consume_from=ConsumeFrom.FIRST)
    await consumer.__aenter__()
    await until(lambda: bool(consumer.assignment))
    closing = asyncio.create_task(consumer.close())
    await asyncio.sleep(0)
    closing.cancel()
    await asyncio.wait([closing])
    assert not client_tasks(before)
