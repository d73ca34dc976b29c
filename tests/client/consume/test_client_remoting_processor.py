"""What a consumer answers when a broker asks it, on a real connection that the test holds the other end of."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from sprocket import (
    ConsumeFrom,
    Consumer,
    Message,
    OrderlyConsumer,
    PoppedMessage,
    Producer,
    ReceivedMessage,
    ReconsumeLater,
    SimpleConsumer,
)
from sprocket.remoting.bodies.client import MessageQueue, by_queue
from sprocket.remoting.bodies.consumption import (
    CMResult,
    ConsumeMessageDirectlyResult,
    ConsumerRunningInfo,
    GetConsumerStatusBody,
    MessageQueueForC,
    ResetOffsetBodyForC,
)
from sprocket.remoting.bodies.stats import ResetOffsetBody
from sprocket.remoting.client import RemotingClient
from sprocket.remoting.codec.fastjson import dumps, loads
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.command import ReceivedResponse, Response
from sprocket.remoting.headers.admin import GetConsumerStatusRequestHeader
from sprocket.remoting.headers.base import Header
from sprocket.remoting.headers.client import (
    ConsumeMessageDirectlyRequestHeader,
    GetConsumerRunningInfoRequestHeader,
    HeartbeatRequestHeader,
)
from sprocket.remoting.headers.offset import ResetOffsetRequestHeader
from sprocket.testing import Broker
from tests.client.fake_cluster import FakeServer, route
from tests.client.java_vectors import RECORD_IPV4
from tests.waiting import until

Ask = Callable[[RequestCode, Header, bytes], Awaitable[ReceivedResponse]]


@asynccontextmanager
async def asking(consumer: Consumer) -> AsyncIterator[Ask]:
    """Connect to `consumer` as a broker does; yields a function that asks it."""
    channels: list[Any] = []
    hello = route(
        RequestCode.HEART_BEAT, HeartbeatRequestHeader, lambda request: channels.append(request.channel) or Response()
    )
    async with FakeServer([hello]) as server:
        await consumer._instance.remoting.invoke(server.address, RequestCode.HEART_BEAT, HeartbeatRequestHeader())

        async def ask(code: RequestCode, header: Header, body: bytes = b"") -> ReceivedResponse:
            return await channels[0].request(code, header, body, timeout_s=10)

        yield ask


async def send(broker: Broker, topic: str, count: int) -> None:
    async with Producer("g", broker.namesrv) as producer:
        for number in range(count):
            await producer.send(Message(topic, b"%d" % number), sharding_key="one")


def consumer_of(broker: Broker, topic: str) -> Consumer:
    return Consumer(f"g-{topic}", {topic: "*"}, broker.namesrv, consume_from=ConsumeFrom.FIRST)


async def test_running_info_tells_queues_offsets_and_rates(shared_broker: Broker, topic: str) -> None:
    await send(shared_broker, topic, 5)
    async with consumer_of(shared_broker, topic) as consumer, asking(consumer) as ask:
        for number in range(5):
            message = await anext(consumer)
            if number < 3:
                await consumer.ack(message)
        header = GetConsumerRunningInfoRequestHeader(consumer_group=consumer.group, client_id="", jstack_enable=True)
        response = await ask(RequestCode.GET_CONSUMER_RUNNING_INFO, header, b"")
        info = loads(response.body, ConsumerRunningInfo[str])
    assert info.properties["PROP_CONSUME_TYPE"] == "CONSUME_PASSIVELY"
    assert info.properties["PROP_CONSUMEORDERLY"] == "false"
    assert int(str(info.properties["PROP_CONSUMER_START_TIMESTAMP"])) > 1_600_000_000_000
    assert {data.topic for data in info.subscription_set} == {topic, f"%RETRY%{consumer.group}"}
    held = by_queue(info.mq_table)[message.queue]
    assert (held.commit_offset, held.cached_msg_min_offset, held.cached_msg_max_offset) == (3, 3, 4)
    assert (held.cached_msg_count, held.locked, held.dropped) == (2, False, False)
    assert 0 < held.last_consume_timestamp <= held.last_pull_timestamp + 60_000
    assert info.status_table[topic].consume_ok_tps > 0
    assert info.status_table[topic].pull_tps > 0
    assert info.jstack is not None
    assert "test_client_remoting_processor" in info.jstack


async def test_orderly_consumer_tells_its_locks(shared_broker: Broker, topic: str) -> None:
    await send(shared_broker, topic, 1)
    consumer = OrderlyConsumer(f"g-{topic}", {topic: "*"}, shared_broker.namesrv, consume_from=ConsumeFrom.FIRST)
    async with consumer, asking(consumer) as ask:
        await until(lambda: len(consumer.assignment) >= 4)
        header = GetConsumerRunningInfoRequestHeader(consumer_group=consumer.group, client_id="")
        response = await ask(RequestCode.GET_CONSUMER_RUNNING_INFO, header, b"")
    info = loads(response.body, ConsumerRunningInfo[str])
    assert info.properties["PROP_CONSUMEORDERLY"] == "true"
    assert all(held.locked and held.last_lock_timestamp > 0 for held in info.mq_table.values())


async def test_other_group_is_refused(shared_broker: Broker, topic: str) -> None:
    async with consumer_of(shared_broker, topic) as consumer, asking(consumer) as ask:
        header = GetConsumerRunningInfoRequestHeader(consumer_group="other", client_id="")
        response = await ask(RequestCode.GET_CONSUMER_RUNNING_INFO, header, b"")
    assert response.code == ResponseCode.SYSTEM_ERROR
    assert response.remark == "The Consumer Group <other> not exist in this consumer"


@pytest.mark.code(RequestCode.CONSUME_MESSAGE_DIRECTLY)
async def test_message_is_consumed_directly_by_the_handler(shared_broker: Broker, topic: str) -> None:
    seen: list[ReceivedMessage] = []

    async def handler(message: ReceivedMessage) -> None:
        seen.append(message)
        if len(seen) == 2:
            raise ValueError("no")
        if len(seen) == 3:
            raise ReconsumeLater

    header = ConsumeMessageDirectlyRequestHeader(consumer_group=f"g-{topic}", client_id="", broker_name="broker-x")
    async with consumer_of(shared_broker, topic) as consumer, asking(consumer) as ask:
        without = await ask(RequestCode.CONSUME_MESSAGE_DIRECTLY, header, RECORD_IPV4)
        assert (without.code, without.remark) == (
            ResponseCode.SYSTEM_ERROR,
            f"a consumer of g-{topic} has no handler running",
        )
        run = asyncio.create_task(consumer.run(handler, concurrency=1))
        await asyncio.sleep(0)
        answers = [await ask(RequestCode.CONSUME_MESSAGE_DIRECTLY, header, RECORD_IPV4) for _ in range(3)]
        garbage = await ask(RequestCode.CONSUME_MESSAGE_DIRECTLY, header, RECORD_IPV4[:-5])
    await run
    results = [loads(answer.body, ConsumeMessageDirectlyResult) for answer in answers]
    assert [result.consume_result for result in results] == [CMResult.SUCCESS, CMResult.THROW_EXCEPTION, CMResult.LATER]
    assert results[1].remark == "ValueError: no"
    assert seen[0].queue.broker_name == "broker-x"
    assert garbage.code == ResponseCode.SYSTEM_ERROR


@pytest.mark.code(RequestCode.RESET_CONSUMER_CLIENT_OFFSET, RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT)
async def test_status_and_reset_of_offsets(shared_broker: Broker, topic: str) -> None:
    await send(shared_broker, topic, 10)
    async with consumer_of(shared_broker, topic) as consumer, asking(consumer) as ask:
        for _ in range(10):
            message = await anext(consumer)
            await consumer.ack(message)
        header = GetConsumerStatusRequestHeader(topic=topic, group=consumer.group)
        response = await ask(RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, header, b"")
        assert by_queue(loads(response.body, GetConsumerStatusBody[str]).message_queue_table)[message.queue] == 10
        # Java's form of the body, then that for C++.
        queue = message.queue
        bodies = [
            dumps(ResetOffsetBody[MessageQueue](offset_table={queue: 7})),
            dumps(ResetOffsetBodyForC([MessageQueueForC(topic, queue.broker_name, queue.queue_id, 8)])),
        ]
        reset = ResetOffsetRequestHeader(topic=topic, group=consumer.group, timestamp=0, is_force=True)
        for body, expected in zip(bodies, ([7, 8, 9], [8, 9]), strict=True):
            assert (await ask(RequestCode.RESET_CONSUMER_CLIENT_OFFSET, reset, body)).code == ResponseCode.SUCCESS
            again = []
            for _ in expected:
                again.append(await anext(consumer))
                await consumer.ack(again[-1])
            assert [message.queue_offset for message in again] == expected


async def test_orderly_consumer_goes_on_from_the_offset_of_a_reset(shared_broker: Broker, topic: str) -> None:
    await send(shared_broker, topic, 4)
    seen: list[int] = []
    consumer = OrderlyConsumer(f"g-{topic}", {topic: "*"}, shared_broker.namesrv, consume_from=ConsumeFrom.FIRST)
    async with consumer, asking(consumer) as ask:
        run = asyncio.create_task(consumer.run(lambda message: seen.append(message.queue_offset)))
        await until(lambda: seen == [0, 1, 2, 3])
        (queue,) = [queue for queue, offset in consumer.committed(topic).items() if offset == 4]
        reset = ResetOffsetRequestHeader(topic=topic, group=consumer.group, timestamp=0, is_force=True)
        await ask(
            RequestCode.RESET_CONSUMER_CLIENT_OFFSET,
            reset,
            dumps(ResetOffsetBody[MessageQueue](offset_table={queue: 2})),
        )
        await until(lambda: seen == [0, 1, 2, 3, 2, 3])
        await until(lambda: consumer.committed(topic)[queue] == 4)
    await run


async def ask_broker(broker: Broker, code: RequestCode, header: Header) -> ReceivedResponse:
    client = RemotingClient()
    try:
        return await client.invoke(broker.address, code, header, timeout_s=20)
    finally:
        await client.close()


@pytest.mark.code(RequestCode.GET_CONSUMER_RUNNING_INFO)
async def test_operator_asks_through_the_broker(shared_broker: Broker, topic: str) -> None:
    async with Producer("g", shared_broker.namesrv) as producer:
        sent = [await producer.send(Message(topic, b"%d" % number), sharding_key="one") for number in range(4)]
    seen: list[bytes] = []
    async with consumer_of(shared_broker, topic) as consumer:
        run = asyncio.create_task(consumer.run(lambda message: seen.append(message.body)))
        await until(lambda: len(seen) == 4)
        client_id = consumer.client_id

        about = GetConsumerRunningInfoRequestHeader(consumer_group=consumer.group, client_id=client_id)
        response = await ask_broker(shared_broker, RequestCode.GET_CONSUMER_RUNNING_INFO, about)
        info = loads(response.body, ConsumerRunningInfo[str])
        assert by_queue(info.mq_table)[sent[0].queue].commit_offset == 4

        direct = ConsumeMessageDirectlyRequestHeader(
            consumer_group=consumer.group, client_id=client_id, msg_id=sent[2].offset_message_id, topic=topic
        )
        response = await ask_broker(shared_broker, RequestCode.CONSUME_MESSAGE_DIRECTLY, direct)
        assert loads(response.body, ConsumeMessageDirectlyResult).consume_result is CMResult.SUCCESS
        assert seen[4:] == [b"2"]

        reset = ResetOffsetRequestHeader(topic=topic, group=consumer.group, timestamp=0, is_force=True)
        response = await ask_broker(shared_broker, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, reset)
        assert response.code == ResponseCode.SUCCESS
        await until(lambda: seen[5:] == [b"0", b"1", b"2", b"3"])
    await run


async def test_popping_consumer_is_asked_through_the_broker(shared_broker: Broker, topic: str) -> None:
    await send(shared_broker, topic, 3)
    seen: list[PoppedMessage] = []
    may_end = asyncio.Event()

    async def handler(message: PoppedMessage) -> None:
        seen.append(message)
        await may_end.wait()

    async with SimpleConsumer(f"g-{topic}", [topic], shared_broker.namesrv, consume_from=ConsumeFrom.FIRST) as consumer:
        run = asyncio.create_task(consumer.run(handler, concurrency=2))
        await until(lambda: len(seen) == 2)
        client_id = consumer.client_id
        about = GetConsumerRunningInfoRequestHeader(consumer_group=consumer.group, client_id=client_id)
        response = await ask_broker(shared_broker, RequestCode.GET_CONSUMER_RUNNING_INFO, about)
        info = loads(response.body, ConsumerRunningInfo[str])
        assert info.properties["PROP_CONSUME_TYPE"] == "CONSUME_POP"
        assert sum(queue.wait_ack_count for queue in by_queue(info.mq_pop_table).values()) >= 2
        may_end.set()
        await until(lambda: len(seen) == 3)
        direct = ConsumeMessageDirectlyRequestHeader(
            consumer_group=consumer.group,
            client_id=client_id,
            msg_id=seen[0].message.offset_message_id,
            topic=topic,
        )
        response = await ask_broker(shared_broker, RequestCode.CONSUME_MESSAGE_DIRECTLY, direct)
        assert loads(response.body, ConsumeMessageDirectlyResult).consume_result is CMResult.SUCCESS
        assert seen[3].message_id == seen[0].message_id
    await run
