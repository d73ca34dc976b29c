"""Popping from several brokers; two of them do what the test says."""

import asyncio
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from sprocket import BrokerRefused, ConsumeFrom, SimpleConsumer, TopicNotFound
from sprocket.remoting.bodies.pop import BatchAckMessageRequestBody
from sprocket.remoting.bodies.topic import PERM_WRITE
from sprocket.remoting.codec.fastjson import loads
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.command import Request, Response
from sprocket.remoting.headers.pop import (
    AckMessageRequestHeader,
    NotificationRequestHeader,
    NotificationResponseHeader,
    PopMessageRequestHeader,
    PopMessageResponseHeader,
)
from sprocket.remoting.routes import NoHeader
from tests.client.fake_cluster import FakeBroker, FakeNameServer, route, topic_data
from tests.client.java_vectors import RECORD_IPV4
from tests.waiting import until

TOPIC = "TopicTest"


class PopBroker(FakeBroker):
    """Gives `stock` to pops; holds notifications until it is filled."""

    def __init__(self, name: str) -> None:
        super().__init__(
            name,
            routes=[
                route(RequestCode.POP_MESSAGE, PopMessageRequestHeader, self._pop),
                route(RequestCode.NOTIFICATION, NotificationRequestHeader, self._notification),
                route(RequestCode.ACK_MESSAGE, AckMessageRequestHeader, self._ack),
                route(RequestCode.BATCH_ACK_MESSAGE, NoHeader, self._batch_ack),
            ],
        )
        self.stock = b""
        self.pops: list[PopMessageRequestHeader] = []
        self.waiting: list[Request[NotificationRequestHeader]] = []
        self.acks: list[AckMessageRequestHeader] = []
        self.batches: list[BatchAckMessageRequestBody] = []
        self.refusal: ResponseCode | None = None

    def fill(self, *offsets: int) -> None:
        for offset in offsets:
            data = bytearray(RECORD_IPV4)
            struct.pack_into(">q", data, 20, offset)
            self.stock += bytes(data)
        for request in self.waiting:
            request.channel.reply(request, Response(header=NotificationResponseHeader(has_msg=True)))
        self.waiting.clear()

    def _pop(self, request: Request[PopMessageRequestHeader]) -> Response:
        self.pops.append(request.header)
        if self.refusal is not None:
            return Response(self.refusal, "scripted")
        stock, self.stock = self.stock, b""
        header = PopMessageResponseHeader(pop_time=1, invisible_time=30_000, revive_qid=0, rest_num=0)
        return Response(header=header, body=stock) if stock else Response(ResponseCode.POLLING_TIMEOUT, "", header)

    def _notification(self, request: Request[NotificationRequestHeader]) -> Response | None:
        if self.refusal is not None:
            return Response(self.refusal, "scripted")
        self.waiting.append(request)
        return None

    def _ack(self, request: Request[AckMessageRequestHeader]) -> Response:
        self.acks.append(request.header)
        return Response()

    def _batch_ack(self, request: Request[NoHeader]) -> Response:
        self.batches.append(loads(request.body, BatchAckMessageRequestBody))
        return Response()


@asynccontextmanager
async def cluster() -> AsyncIterator[tuple[SimpleConsumer, PopBroker, PopBroker]]:
    async with FakeNameServer() as names, PopBroker("a") as a, PopBroker("b") as b:
        names.topics[TOPIC] = topic_data(a, b)
        topics = {TOPIC: "*"}
        async with SimpleConsumer("g", topics, names.address, consume_from=ConsumeFrom.FIRST) as consumer:
            yield consumer, a, b


async def test_what_one_broker_has_is_found_without_waiting() -> None:
    async with cluster() as (consumer, a, b):
        for broker in (a, b, a):
            broker.fill(1, 2)
            messages = await consumer.receive(16)
            assert [message.queue_offset for message in messages] == [1, 2]
            assert {message.handle.broker_name for message in messages} == {broker.name}
        header = a.pops[0]
        assert (header.queue_id, header.max_msg_nums, header.poll_time, header.init_mode) == (-1, 16, 0, 0)
        assert (header.exp_type, header.exp, header.invisible_time, header.order) == ("TAG", "*", 60_000, False)
        assert a.heartbeats  # before the first pop, which needs the group
        assert b'"consumeType":"CONSUME_POP"' in a.heartbeats[0]


async def test_a_waiting_pop_is_woken_by_any_broker() -> None:
    async with cluster() as (consumer, a, b):
        waiting = asyncio.create_task(consumer.receive(wait_s=30))
        await until(lambda: bool(a.waiting and b.waiting))
        b.fill(7)
        (message,) = await waiting
        assert (message.queue_offset, message.handle.broker_name) == (7, "b")


async def test_one_broker_that_refuses_does_not_hide_the_other() -> None:
    async with cluster() as (consumer, a, b):
        a.refusal = ResponseCode.SYSTEM_ERROR
        b.fill(1)
        assert len(await consumer.receive()) == 1
        b.refusal = ResponseCode.SYSTEM_ERROR
        with pytest.raises(BrokerRefused, match="scripted"):
            await consumer.receive(wait_s=1)


async def test_cancelled_wait_takes_nothing() -> None:
    async with cluster() as (consumer, a, b):
        waiting = asyncio.create_task(consumer.receive(wait_s=30))
        await until(lambda: bool(a.waiting and b.waiting))
        pops = len(a.pops) + len(b.pops)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        b.fill(3)
        await asyncio.sleep(0.05)
        assert len(a.pops) + len(b.pops) == pops  # nobody asks for it
        (message,) = await consumer.receive(wait_s=5)
        assert message.queue_offset == 3


async def test_messages_are_acknowledged_where_they_came_from() -> None:
    async with cluster() as (consumer, a, b):
        a.fill(10, 11, 13)
        b.fill(5, 6)
        messages = [*await consumer.receive(), *await consumer.receive()]
        await consumer.ack_all(messages)
        (batch,) = a.batches
        (ack,) = batch.acks
        assert (batch.broker_name, ack.c, ack.t, ack.so, ack.pt, ack.it) == ("a", "g", TOPIC, 10, 1, 30_000)
        assert ack.b == bytes([0b1011])
        assert [entry.so for entry in b.batches[0].acks] == [5]
        a.fill(20, 21)
        first, second = await consumer.receive()
        await consumer.ack(first)
        await consumer.ack_all([second])  # one of a broker has no batch
        handles = [first.handle.encode(), second.handle.encode()]
        assert [(ack.offset, ack.extra_info) for ack in a.acks] == [(20, handles[0]), (21, handles[1])]
        assert len(a.batches) == 1


async def test_topic_without_a_queue_that_may_be_read_is_named() -> None:
    async with FakeNameServer() as name_server, PopBroker("a") as broker:
        data = name_server.topics[TOPIC] = topic_data(broker)
        data.queue_datas[0].perm = PERM_WRITE
        async with SimpleConsumer("g", [TOPIC], name_server.address) as consumer:
            with pytest.raises(TopicNotFound, match="may be read"):
                await consumer.receive(wait_s=0)
