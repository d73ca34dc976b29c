"""Batches of FastStream through a real broker, and through its broker in memory."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from sprocket import ConsumeFrom, IllegalMessage, connect
from sprocket.remoting.client import RemotingClient
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.message.record import SysFlag
from sprocket.testing import Broker
from tests.send_headers import send_header

pytest.importorskip("faststream", reason="faststream is not installed: pip install 'sprocket-mq[faststream]'")

from faststream.exceptions import IncorrectState, RejectMessage, SubscriberNotFound  # after the check
from pydantic import BaseModel

from sprocket.contrib.faststream import (
    SprocketBatchMessage,
    SprocketBroker,
    SprocketMessage,
    SprocketResponse,
    TestSprocketBroker,
)

FIRST = ConsumeFrom.FIRST
WAIT_S = 60


class Order(BaseModel):
    number: int


def orders(*numbers: int) -> list[Order]:
    return [Order(number=number) for number in numbers]


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    # The first redelivery comes after 1 s; by default, after 10 s.
    levels = {"messageDelayLevel": " ".join(["1s"] * 18)}
    with Broker(tmp_path_factory.mktemp("batches"), properties=levels) as broker:
        yield broker


async def test_a_published_batch_lies_in_one_queue_and_is_handled_as_lists(servers: Broker) -> None:
    for topic in ("Orders", "Invoices"):
        servers.create_topic(topic, 4)
    broker = SprocketBroker(servers.namesrv)
    lists, invoices = asyncio.Queue[tuple[list[int], SprocketBatchMessage]](), asyncio.Queue[Any]()

    @broker.subscriber("Orders", group="billing", consume_from=FIRST, batch=True, max_records=3)
    @broker.publisher("Invoices", batch=True, tags="invoice", headers={"from": "billing"})
    async def bill(batch: list[Order], message: SprocketBatchMessage) -> list[Order]:
        lists.put_nowait(([order.number for order in batch], message))
        return [Order(number=order.number * 2) for order in batch]

    @broker.subscriber("Invoices", group="archive", expression="invoice", consume_from=FIRST)
    async def archive(order: Order, message: SprocketMessage) -> None:
        invoices.put_nowait((order.number, message.raw_message.queue, message.headers["from"]))

    with pytest.raises(IncorrectState, match="the broker is not connected; start it"):
        await broker.publish_batch(*orders(1), topic="Orders")
    # Stored before the group comes, so that it meets all of them at once.
    async with broker:
        last = SprocketResponse(Order(number=5), tags="last", keys=["o5"], headers={"n": 5}, correlation_id="own")
        batch = [*orders(1, 2, 3, 4), last]
        sent = await broker.publish_batch(
            *batch, topic="Orders", tags="new", keys="k", headers={"n": 0}, correlation_id="abc"
        )
        assert len(set(sent.message_id.split(","))) == 5
        await broker.start()
        got = [await asyncio.wait_for(lists.get(), WAIT_S)]
        while sum(len(numbers) for numbers, _ in got) < 5:
            got.append(await asyncio.wait_for(lists.get(), WAIT_S))
        twice = [await asyncio.wait_for(invoices.get(), WAIT_S) for _ in range(5)]
    assert [number for numbers, _ in got for number in numbers] == [1, 2, 3, 4, 5]
    assert max(len(numbers) for numbers, _ in got) == 3
    raw = [one for _, message in got for one in message.raw_message]
    assert [one.queue for one in raw] == [sent.queue] * 5
    assert [(one.tags, one.keys) for one in raw] == [("new", ["k"])] * 4 + [("last", ["o5"])]
    assert [one.properties["correlation_id"] for one in raw] == ["abc"] * 4 + ["own"]
    assert [known["n"] for _, message in got for known in message.batch_headers] == ["0"] * 4 + ["5"]
    assert (got[0][1].correlation_id, got[0][1].content_type) == ("abc", "application/json")
    # What a handler returned for one list is one batch, in one queue.
    assert sorted(number for number, _, _ in twice) == [2, 4, 6, 8, 10]
    assert {origin for _, _, origin in twice} == {"billing"}
    queue_of = {number: queue for number, queue, _ in twice}
    for numbers, _ in got:
        assert len({queue_of[number * 2] for number in numbers}) == 1


async def test_an_error_redelivers_a_batch_but_what_the_handler_settled(servers: Broker) -> None:
    servers.create_topic("Faulty", 1)
    broker = SprocketBroker(servers.namesrv, logger=None)
    seen: asyncio.Queue[tuple[str, int]] = asyncio.Queue()

    @broker.subscriber("Faulty", group="faulty", consume_from=FIRST, batch=True)
    async def fail(texts: list[str], message: SprocketBatchMessage) -> None:
        for text, raw in zip(texts, message.raw_message, strict=True):
            seen.put_nowait((text, raw.reconsume_times))
        if "hopeless" in texts:
            raise RejectMessage(reason="no such order")
        if message.raw_message[0].reconsume_times == 0:
            await message.raw_message[0].ack()
            raise ValueError("bad")

    async with connect(servers.namesrv) as mq, broker:
        await broker.publish_batch("one", "two", "three", topic="Faulty")
        await broker.start()
        assert [await asyncio.wait_for(seen.get(), WAIT_S) for _ in range(3)] == [("one", 0), ("two", 0), ("three", 0)]
        again = {await asyncio.wait_for(seen.get(), WAIT_S) for _ in range(2)}
        assert again == {("two", 1), ("three", 1)}
        await broker.publish_batch("hopeless", "hopeless", topic="Faulty")
        dead = mq.consumer("undertaker", "%DLQ%faulty", consume_from=FIRST)
        letters = []
        while len(letters) < 2:
            letters += await asyncio.wait_for(dead.receive(2), WAIT_S)
        assert [(letter.body, letter.properties["DEAD_LETTER_REASON"]) for letter in letters] == [
            (b"hopeless", "no such order")
        ] * 2


async def test_a_batch_that_was_handled_does_not_come_again(servers: Broker) -> None:
    servers.create_topic("Restart", 1)
    broker = SprocketBroker(servers.namesrv)
    seen: asyncio.Queue[str] = asyncio.Queue()

    @broker.subscriber("Restart", group="restart", consume_from=FIRST, batch=True)
    async def note(texts: list[str]) -> None:
        for text in texts:
            seen.put_nowait(text)

    for texts in (("one", "two"), ("three", "four")):
        await broker.start()
        await broker.publish_batch(*texts, topic="Restart")
        assert [await asyncio.wait_for(seen.get(), WAIT_S) for _ in texts] == list(texts)
        await broker.stop()
    assert seen.empty()


async def test_a_message_that_nobody_can_read_holds_no_handler_up(servers: Broker) -> None:
    servers.create_topic("Damaged", 1)
    broker = SprocketBroker(servers.namesrv, logger=None)
    in_lists, alone = asyncio.Queue[str](), asyncio.Queue[str]()

    @broker.subscriber("Damaged", group="damaged", consume_from=FIRST, batch=True)
    async def note(texts: list[str]) -> None:
        for text in texts:
            in_lists.put_nowait(text)

    @broker.subscriber("Damaged", group="damaged-alone", consume_from=FIRST)
    async def note_one(text: str) -> None:
        alone.put_nowait(text)

    async with connect(servers.namesrv) as mq, broker:
        await broker.publish("one", "Damaged")
        client = RemotingClient()
        header = send_header("Damaged", sys_flag=int(SysFlag.COMPRESSED))
        answer = await client.invoke(
            servers.address, RequestCode.SEND_MESSAGE_V2, header, b"not zlib", timeout_s=WAIT_S
        )
        assert answer.code == ResponseCode.SUCCESS
        await client.close()
        await broker.publish("two", "Damaged")
        await broker.start()
        for seen in (in_lists, alone):
            assert [await asyncio.wait_for(seen.get(), WAIT_S) for _ in range(2)] == ["one", "two"]
        for group in ("damaged", "damaged-alone"):
            dead = mq.consumer(f"undertaker-{group}", f"%DLQ%{group}", consume_from=FIRST)
            [letter] = await dead.receive(wait_s=WAIT_S)
            assert letter.stored_body == b"not zlib"
            assert "damaged" in letter.properties["DEAD_LETTER_REASON"]


async def test_a_batch_subscriber_without_handlers_is_read(servers: Broker) -> None:
    servers.create_topic("Loop", 1)
    broker = SprocketBroker(servers.namesrv)
    reader = broker.subscriber("Loop", group="loop", consume_from=FIRST, batch=True, max_records=2)
    publisher = broker.publisher("Loop", batch=True)
    async with broker:
        await publisher.publish(1, 2, 3, headers={"a": "b"})
        first = await reader.get_one(timeout=WAIT_S)
        assert first is not None
        assert await first.decode() == [1, 2]
        assert first.batch_headers[1]["a"] == "b"
        await first.ack()
        async for message in reader:
            assert await message.decode() == [3]
            await message.ack()
            break
        assert await reader.get_one(timeout=0.05) is None
        await reader.stop()


async def test_what_cannot_be_a_batch_is_refused(servers: Broker) -> None:
    servers.create_topic("Refused", 1)
    broker = SprocketBroker(servers.namesrv)
    async with broker:
        with pytest.raises(IllegalMessage, match="at least one message"):
            await broker.publish_batch(topic="Refused")
        with pytest.raises(IllegalMessage, match="at least one message"):
            await broker.publisher("Refused", batch=True).publish()
        with pytest.raises(IllegalMessage, match="delayed"):
            await broker.publish_batch("a", SprocketResponse("b", delay=5), topic="Refused")
        with pytest.raises(IllegalMessage, match="no message has a sharding_key"):
            await broker.publish_batch("a", SprocketResponse("b", sharding_key="k"), topic="Refused")
        with pytest.raises(IllegalMessage, match="maxMessageSize"):
            await broker.publish_batch(*[bytes(3 << 20)] * 2, topic="Refused")


async def test_results_of_handlers_as_batches() -> None:
    broker = SprocketBroker("127.0.0.1:1")
    got: list[list[Any]] = []
    results = {
        "list": ["a", "b"],
        "tuple": ("a",),
        "text": "ab",
        "nothing": [],
        "response": SprocketResponse(["a", SprocketResponse("b", tags="other")], tags="tag"),
    }

    @broker.subscriber("Ask", group="ask")
    @broker.publisher("Out", batch=True)
    async def answer(kind: str) -> Any:
        return results[kind]

    @broker.subscriber("Out", group="out", batch=True)
    async def note(texts: list[Any], message: SprocketBatchMessage) -> None:
        got.append([(raw.body, raw.tags) for raw in message.raw_message])

    async with TestSprocketBroker(broker) as memory:
        for kind in results:
            await memory.publish(kind, "Ask")
    assert got == [
        [(b"a", ""), (b"b", "")],
        [(b"a", "")],
        [(b"ab", "")],
        [(b"", "")],
        [(b"a", "tag"), (b"b", "other")],
    ]


async def test_the_broker_in_memory_delivers_batches() -> None:
    broker = SprocketBroker("127.0.0.1:1")
    asked = broker.publisher("Nowhere", batch=True)

    @broker.subscriber("Orders", group="billing", expression="new", batch=True)
    async def bill(batch: list[Order]) -> None: ...

    @broker.subscriber("Orders", group="counting")
    async def count(order: Order) -> None: ...

    async with TestSprocketBroker(broker) as memory:
        sent = await memory.publish_batch(
            *orders(1, 2), SprocketResponse(Order(number=3), tags="old"), topic="Orders", tags="new"
        )
        assert sent.queue.topic == "Orders"
        bill.mock.assert_called_once_with([{"number": 1}, {"number": 2}])
        assert [call.args for call in count.mock.call_args_list] == [({"number": n},) for n in (1, 2, 3)]
        bill.mock.reset_mock()
        await memory.publish(Order(number=4), "Orders", tags="new")
        bill.mock.assert_called_once_with([{"number": 4}])
        await asked.publish("a", "b")
        asked.mock.assert_called_once_with(["a", "b"])
        # A batch has one result, so its requesters get none.
        with pytest.raises(SubscriberNotFound):
            await memory.request("a", "Nowhere")
