"""Auto-batch: what travels together, what does not, and what each sender learns."""

import asyncio

import pytest

from sprocket import ConsumeFrom, Consumer, IllegalMessage, Message, Producer, SendSettings
from sprocket.client.message import MessageQueue
from sprocket.client.send.accumulator import split_result
from sprocket.client.send_result import SendResult, SendStatus
from sprocket.remoting.codes import RequestCode
from sprocket.testing import Broker
from tests.client.fake_cluster import FakeBroker, FakeNameServer, topic_data

BATCH, SINGLE = int(RequestCode.SEND_BATCH_MESSAGE), int(RequestCode.SEND_MESSAGE_V2)


async def codes_of(messages: list[Message], **settings: int) -> list[int]:
    """The requests that a broker gets when `messages` are sent at once."""
    async with FakeNameServer() as names, FakeBroker("a") as broker:
        names.topics.update({topic: topic_data(broker) for topic in ("T", "U")})
        options = SendSettings(auto_batch=True, **settings)  # type: ignore[arg-type]
        async with Producer("g", names.address, settings=options) as producer:
            results = await asyncio.gather(*map(producer.send, messages))
        assert all(result.status is SendStatus.SEND_OK for result in results)
        return sorted(request.code for request in broker.taken)


async def test_messages_of_one_topic_and_tag_travel_together() -> None:
    assert await codes_of([Message("T", b"x") for _ in range(20)]) == [BATCH]
    assert await codes_of([Message("T", b"x"), Message("U", b"x")]) == [SINGLE, SINGLE]
    assert await codes_of([Message("T", b"x", tags="A"), Message("T", b"x", tags="B")]) == [SINGLE, SINGLE]


async def test_delayed_and_large_messages_travel_alone() -> None:
    messages = [Message("T", b"x"), Message("T", b"x"), Message("T", b"x", delay_level=1), Message("T", bytes(200))]
    assert await codes_of(messages, batch_max_bytes=100) == [SINGLE, SINGLE, BATCH]


async def test_full_batch_goes_and_what_exceeds_the_total_is_sent_at_once() -> None:
    messages = [Message("T", bytes(50)) for _ in range(8)]
    assert await codes_of(messages, batch_max_bytes=100, batch_max_delay_ms=30_000) == [BATCH] * 4
    assert await codes_of(messages[:3], total_batch_max_bytes=100) == [SINGLE, BATCH]


async def test_one_bad_message_does_not_hurt_the_others() -> None:
    async with FakeNameServer() as names, FakeBroker("a") as broker:
        names.topics["T"] = topic_data(broker)
        async with Producer("g", names.address, settings=SendSettings(auto_batch=True)) as producer:
            sends = [
                producer.send(Message("T", b"x")),
                producer.send(Message("T", b"")),
                producer.send(Message("T", b"y")),
            ]
            good, bad, other = await asyncio.gather(*sends, return_exceptions=True)
    assert isinstance(bad, IllegalMessage)
    assert isinstance(good, SendResult)
    assert isinstance(other, SendResult)


async def test_closing_sends_what_waits() -> None:
    async with FakeNameServer() as names, FakeBroker("a") as broker:
        names.topics["T"] = topic_data(broker)
        settings = SendSettings(auto_batch=True, batch_max_delay_ms=30_000)
        async with Producer("g", names.address, settings=settings) as producer:
            waiting = [asyncio.ensure_future(producer.send(Message("T", b"x"))) for _ in range(3)]
            await asyncio.sleep(0)
        assert [request.code for request in broker.taken] == [BATCH]
        assert len({result.message_id for result in await asyncio.gather(*waiting)}) == 3


async def test_results_say_where_each_message_lies(shared_broker: Broker, topic: str) -> None:
    settings = SendSettings(auto_batch=True)
    async with Producer("g", shared_broker.namesrv, settings=settings) as producer:
        results = await asyncio.gather(
            *(producer.send(Message(topic, b"%d" % number), sharding_key="one") for number in range(10))
        )
    sent = {result.message_id: (result.queue_offset, result.offset_message_id) for result in results}
    assert len(sent) == 10
    async with Consumer(f"g-{topic}", [topic], shared_broker.namesrv, consume_from=ConsumeFrom.FIRST) as consumer:
        for number in range(10):
            message = await anext(consumer)
            assert message.body == b"%d" % number
            assert sent[message.message_id] == (message.queue_offset, message.offset_message_id)


def test_batch_that_is_one_record_has_one_offset_id() -> None:
    sent = SendResult(SendStatus.SEND_OK, "A,B", "00", MessageQueue("T", "a", 0), 8)
    assert [(part.message_id, part.offset_message_id, part.queue_offset) for part in split_result(sent, 2)] == [
        ("A", "00", 8),
        ("B", "00", 9),
    ]


@pytest.mark.parametrize(
    "limits",
    [
        {"batch_max_delay_ms": 0},
        {"batch_max_delay_ms": 30_001},
        {"batch_max_bytes": 0},
        {"batch_max_bytes": 3 << 20},
        {"total_batch_max_bytes": 0},
    ],
)
def test_limits_are_those_of_the_reference(limits: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=next(iter(limits))):
        SendSettings(**limits)  # type: ignore[arg-type]
