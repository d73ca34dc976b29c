"""Producers and consumers of a static topic whose queues move between brokers that do what a test tells them."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any, Final

import pytest

from sprocket import (
    ClientSettings,
    Message,
    MessageQueue,
    Producer,
    SendFailed,
    SendSettings,
)
from sprocket.client.connection.client_instance import ClientInstance
from sprocket.client.orderly.queue_locks import QueueLocks
from sprocket.client.rebalance.offset_store import RemoteBrokerOffsetStore
from sprocket.remoting.bodies.client import LockBatchRequestBody, LockBatchResponseBody
from sprocket.remoting.bodies.topic_queue_mapping import LOGICAL_BROKER, TopicQueueMappingInfo
from sprocket.remoting.codec.fastjson import dumps, loads
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.command import Request, Response
from sprocket.remoting.headers.client import LockBatchMqRequestHeader
from sprocket.remoting.headers.offset import (
    QueryConsumerOffsetRequestHeader,
    QueryConsumerOffsetResponseHeader,
    UpdateConsumerOffsetRequestHeader,
)
from sprocket.remoting.headers.send import SendMessageRequestHeaderV2, SendMessageResponseHeader
from tests.client.fake_cluster import FakeBroker, FakeNameServer, route, topic_data

QUEUES: Final = 4


class StaticBroker(FakeBroker):
    """Serves the logical queues that it leads, and refuses the others as RocketMQ's does."""

    def __init__(self, name: str) -> None:
        super().__init__(
            name,
            routes=[
                route(RequestCode.QUERY_CONSUMER_OFFSET, QueryConsumerOffsetRequestHeader, self._query),
                route(RequestCode.UPDATE_CONSUMER_OFFSET, UpdateConsumerOffsetRequestHeader, self._update),
                route(RequestCode.LOCK_BATCH_MQ, LockBatchMqRequestHeader, self._lock),
            ],
        )
        self.leads: set[int] = set()
        self.offsets: dict[int, int] = {}
        self.locked: list[MessageQueue] = []
        self.bnames: list[str | None] = []

    def accept(self, request: Request[SendMessageRequestHeaderV2]) -> Response:
        if request.header.queue_id not in self.leads:
            return Response(ResponseCode.NOT_LEADER_FOR_QUEUE, "not the leader")
        super().accept(request)
        self.bnames.append(request.header.broker_name)
        # The logical offset is not known while the queue moves.
        return Response(
            header=SendMessageResponseHeader(msg_id="00", queue_id=request.header.queue_id, queue_offset=-1)
        )

    def _query(self, request: Request[QueryConsumerOffsetRequestHeader]) -> Response:
        number = request.header.queue_id
        if number not in self.leads:
            return Response(ResponseCode.NOT_LEADER_FOR_QUEUE, "not the leader")
        return Response(header=QueryConsumerOffsetResponseHeader(offset=self.offsets.get(number, 0)))

    def _update(self, request: Request[UpdateConsumerOffsetRequestHeader]) -> Response:
        if request.header.queue_id not in self.leads:
            return Response(ResponseCode.NOT_LEADER_FOR_QUEUE, "not the leader")
        self.offsets[request.header.queue_id] = request.header.commit_offset
        return Response()

    def _lock(self, request: Request[LockBatchMqRequestHeader]) -> Response:
        queues = loads(request.body, LockBatchRequestBody).mq_set
        self.locked += queues
        return Response(body=dumps(LockBatchResponseBody(queues)))


class Site:
    """Two brokers and a name server, which learns of a move only with `tell`."""

    def __init__(self, name_server: FakeNameServer, a: StaticBroker, b: StaticBroker) -> None:
        self.name_server, self.a, self.b = name_server, a, b
        self._epoch = 0

    def move(self, *to_b: int) -> None:
        self.b.leads = set(to_b)
        self.a.leads = set(range(QUEUES)) - self.b.leads

    def tell(self) -> None:
        self._epoch += 1
        data = topic_data(self.a, self.b, queues=QUEUES)
        data.topic_queue_mapping_by_broker = {
            broker.name: TopicQueueMappingInfo(
                "T", total_queues=QUEUES, bname=broker.name, epoch=self._epoch,
                curr_id_map={str(number): number for number in broker.leads},
            )
            for broker in (self.a, self.b)
        }  # fmt: skip
        self.name_server.topics["T"] = data


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    async with FakeNameServer() as name_server, StaticBroker("a") as a, StaticBroker("b") as b:
        made = Site(name_server, a, b)
        made.move(2, 3)
        made.tell()
        yield made


def producer(site: Site, **settings: Any) -> Producer:
    return Producer("g", site.name_server.address, settings=SendSettings(**settings))


def numbers(broker: StaticBroker) -> list[int]:
    return [request.header.queue_id for request in broker.taken]


async def test_messages_go_to_the_leaders_of_logical_queues(site: Site) -> None:
    async with producer(site) as sender:
        results = [await sender.send(Message("T", b"x")) for _ in range(8)]
        assert await sender.queues("T") == [MessageQueue("T", LOGICAL_BROKER, number) for number in range(QUEUES)]
    assert sorted(result.queue for result in results[:QUEUES]) == sorted(result.queue for result in results[QUEUES:])
    assert {result.queue.broker_name for result in results} == {LOGICAL_BROKER}
    assert {result.queue_offset for result in results} == {-1}
    assert (set(numbers(site.a)), set(numbers(site.b))) == ({0, 1}, {2, 3})
    # As RocketMQ's client does: the header names the real broker.
    assert (set(site.a.bnames), set(site.b.bnames)) == ({"a"}, {"b"})


@pytest.mark.parametrize("told", [True, False])
async def test_a_message_follows_its_queue_to_the_new_leader(site: Site, told: bool) -> None:
    async with producer(site) as sender:
        for _ in range(8):  # the way to each queue is known
            await sender.send(Message("T", b"before"))
        site.move(0, 1, 2, 3)
        if told:
            site.tell()
        sending = asyncio.create_task(_all(sender))
        if not told:
            while not any(request.body == b"after" for request in site.b.taken):
                await asyncio.sleep(0)
            site.tell()
        assert len(await sending) == 12
        after = [request for request in site.b.taken if request.body == b"after"]
        assert len(after) == 12 and {request.header.broker_name for request in after} == {"b"}


async def _all(sender: Producer) -> list[Any]:
    queue = MessageQueue("T", LOGICAL_BROKER, 1)
    plain = [await sender.send(Message("T", b"after")) for _ in range(4)]
    keyed = [await sender.send(Message("T", b"after"), sharding_key=f"k{number}") for number in range(4)]
    return plain + keyed + [await sender.send(Message("T", b"after"), queue=queue) for _ in range(4)]


async def test_while_the_route_is_old_attempts_become_rare(site: Site) -> None:
    site.a.leads = site.b.leads = set()
    async with producer(site) as sender:
        with pytest.raises(SendFailed, match="NOT_LEADER_FOR_QUEUE"):
            await sender.send(Message("T", b"x"), timeout_s=1.0)
    assert len(site.name_server.asked) < 20


async def test_a_queue_that_nobody_leads_is_passed_but_its_keys_wait_for_it(site: Site) -> None:
    site.move(2)
    site.a.leads = {0, 1}
    site.tell()
    async with producer(site) as sender:
        for _ in range(6):
            await sender.send(Message("T", b"x"))
        assert set(numbers(site.a) + numbers(site.b)) == {0, 1, 2}
        queue = MessageQueue("T", LOGICAL_BROKER, 3)
        with pytest.raises(SendFailed, match="__syslo__none__"):
            await sender.send(Message("T", b"x"), queue=queue, timeout_s=0.2)
        waiting = asyncio.create_task(sender.send(Message("T", b"x"), queue=queue))
        site.b.leads.add(3)
        site.tell()
        assert (await waiting).queue == queue


async def test_offsets_and_locks_are_kept_at_the_leader_wherever_it_goes(site: Site) -> None:
    queue = MessageQueue("T", LOGICAL_BROKER, 0)
    instance = ClientInstance(ClientSettings(namesrv=site.name_server.address))
    await instance.open()
    try:
        store = RemoteBrokerOffsetStore(instance, "g")
        assert await store.read(queue) == 0
        assert await store.persist({queue: 7}) == {queue}
        assert site.a.offsets == {0: 7}
        site.move(0, 1, 2, 3)
        site.tell()  # the client has the old route
        assert await store.persist({queue: 8}) == {queue}
        assert site.b.offsets == {0: 8} and await store.read(queue) == 8
        assert await QueueLocks(instance, "g").lock([queue]) == {queue}
        assert site.b.locked == [queue] and site.a.locked == []
    finally:
        await instance.close()
