"""Which member of a broker group a client asks for what: the master, a suggested slave, a slave that is left alone."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field

import pytest

from sprocket import Consumer, Message, Producer, TopicNotWritable
from sprocket.client.connection.client_instance import ClientSettings
from sprocket.remoting.bodies.client import ConsumerIdList, HeartbeatData
from sprocket.remoting.bodies.route import BrokerData, QueueData, TopicRouteData
from sprocket.remoting.codec.fastjson import dumps, loads
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.command import Request, Response
from sprocket.remoting.headers.client import GetConsumerListByGroupRequestHeader
from sprocket.remoting.headers.offset import (
    GetMaxOffsetRequestHeader,
    GetMaxOffsetResponseHeader,
    QueryConsumerOffsetRequestHeader,
    QueryConsumerOffsetResponseHeader,
    UpdateConsumerOffsetRequestHeader,
)
from sprocket.remoting.headers.pull import PullMessageRequestHeader, PullMessageResponseHeader
from tests.client.fake_cluster import FakeBroker, FakeNameServer, route
from tests.waiting import until

_COMMIT_OFFSET = 0x1
Pull = Request[PullMessageRequestHeader]
Pulled = Callable[[Pull], Response]


def nothing_new(suggested: int) -> Pulled:
    """At the end of the queue, in which everything is consumed."""

    def answer(request: Pull) -> Response:
        offset = request.header.queue_offset
        header = PullMessageResponseHeader(
            suggest_which_broker_id=suggested, next_begin_offset=offset, min_offset=0, max_offset=offset
        )
        return Response(ResponseCode.PULL_NOT_FOUND, header=header)

    return answer


def busy(request: Pull) -> Response:
    return Response(ResponseCode.SYSTEM_BUSY, "[REJECTREQUEST]")


class Member(FakeBroker):
    """One member of the group `b`; `pulled` answers its pulls, and everything else succeeds."""

    def __init__(self, port: int = 0) -> None:
        super().__init__(
            "b",
            port,
            [
                route(RequestCode.PULL_MESSAGE, PullMessageRequestHeader, self._pull),
                route(RequestCode.QUERY_CONSUMER_OFFSET, QueryConsumerOffsetRequestHeader, self._offset),
                route(RequestCode.UPDATE_CONSUMER_OFFSET, UpdateConsumerOffsetRequestHeader, self._commit),
                route(RequestCode.GET_MAX_OFFSET, GetMaxOffsetRequestHeader, self._max_offset),
                route(RequestCode.GET_CONSUMER_LIST_BY_GROUP, GetConsumerListByGroupRequestHeader, self._members),
            ],
        )
        self.pulled: Pulled = nothing_new(0)
        self.pulls: list[PullMessageRequestHeader] = []
        self.commits: list[UpdateConsumerOffsetRequestHeader] = []
        self.asked: Counter[RequestCode] = Counter()

    async def _pull(self, request: Pull) -> Response:
        self.pulls.append(request.header)
        await asyncio.sleep(0.01)  # held
        return self.pulled(request)

    def _offset(self, request: Request[QueryConsumerOffsetRequestHeader]) -> Response:
        self.asked[RequestCode.QUERY_CONSUMER_OFFSET] += 1
        if request.header.queue_id:
            return Response(ResponseCode.QUERY_NOT_FOUND, "not found")
        return Response(header=QueryConsumerOffsetResponseHeader(offset=5))

    def _max_offset(self, request: Request[GetMaxOffsetRequestHeader]) -> Response:
        self.asked[RequestCode.GET_MAX_OFFSET] += 1
        return Response(header=GetMaxOffsetResponseHeader(offset=7))

    def _commit(self, request: Request[UpdateConsumerOffsetRequestHeader]) -> Response:
        self.commits.append(request.header)
        return Response()

    def _members(self, request: Request[GetConsumerListByGroupRequestHeader]) -> Response:
        ids = {loads(body, HeartbeatData).client_id for body in self.heartbeats}
        return Response(body=dumps(ConsumerIdList(sorted(ids))))

    def queues(self) -> set[int]:
        return {pull.queue_id for pull in self.pulls}


@dataclass
class Group:
    """Topic T with two queues on a broker group of a master and a slave."""

    namesrv: FakeNameServer
    master: Member
    slave: Member
    stays: AsyncExitStack = field(default_factory=AsyncExitStack)

    def register(self, *members: Member) -> None:
        """What the name server tells from now on."""
        addresses = {0 if member is self.master else 1: member.address for member in members}
        data = TopicRouteData(queue_datas=[QueueData("b", 2, 2, 6)], broker_datas=[BrokerData("c", "b", addresses)])
        self.namesrv.topics["T"] = data

    @property
    def settings(self) -> ClientSettings:
        return ClientSettings(
            namesrv=self.namesrv.address, poll_name_server_interval_s=3600.0, persist_consumer_offset_interval_s=0.05
        )

    async def consume(self) -> Consumer:
        return await self.stays.enter_async_context(Consumer("g", ["T"], client=self.settings))


@asynccontextmanager
async def group() -> AsyncIterator[Group]:
    async with FakeNameServer() as namesrv, Member() as master, Member() as slave, AsyncExitStack() as stays:
        found = Group(namesrv, master, slave, stays)
        found.register(master, slave)
        yield found


async def test_consumers_tell_slaves_of_themselves_and_producers_do_not() -> None:
    async with group() as all_of:
        await all_of.consume()
        await until(lambda: bool(all_of.master.heartbeats and all_of.slave.heartbeats))
    async with group() as all_of, Producer("p", client=all_of.settings) as producer:
        await producer.send(Message("T", b"x"))
        await until(lambda: bool(all_of.master.heartbeats))
        assert not all_of.slave.heartbeats


async def test_a_suggested_slave_is_pulled_from_per_queue_and_takes_no_commits() -> None:
    async with group() as all_of:
        master, slave = all_of.master, all_of.slave
        master.pulled = lambda request: nothing_new(1 if request.header.queue_id == 0 else 0)(request)
        slave.pulled = nothing_new(1)
        await all_of.consume()
        await until(lambda: len(slave.pulls) > 5)
        assert slave.queues() == {0}
        assert not any(pull.sys_flag & _COMMIT_OFFSET for pull in slave.pulls)
        assert any(pull.sys_flag & _COMMIT_OFFSET for pull in master.pulls)
        await until(lambda: {commit.queue_id for commit in master.commits} == {0, 1})
        assert not slave.commits
        # And back, when the slave says so.
        master.pulled = slave.pulled = nothing_new(0)
        master.pulls.clear()
        await until(lambda: master.queues() == {0, 1})


async def test_a_slave_that_does_not_serve_is_left() -> None:
    async with group() as all_of:
        all_of.master.pulled, all_of.slave.pulled = nothing_new(1), busy
        await all_of.consume()
        for _ in range(2):
            all_of.master.pulls.clear()
            all_of.slave.pulls.clear()
            await until(lambda: len(all_of.slave.pulls) > 1)
            await until(lambda: all_of.master.queues() == {0, 1})


async def test_without_a_master_the_slave_is_asked_until_that_is_back(monkeypatch: pytest.MonkeyPatch) -> None:
    # Nothing is due for long but to look for what is missing.
    monkeypatch.setattr("sprocket.client.connection.client_instance._FIRST_POLL_S", 3600.0)
    async with group() as all_of:
        master, slave = all_of.master, all_of.slave
        await all_of.consume()
        await until(lambda: master.queues() == {0, 1})
        all_of.register(slave)
        master.pulled = busy  # as good as dead
        await until(lambda: slave.queues() == {0, 1})
        await until(lambda: {commit.queue_id for commit in slave.commits} == {0, 1})
        # Not held long: the route may have a master by then.
        assert max(pull.suspend_timeout_millis for pull in slave.pulls) == 1000
        assert not any(pull.sys_flag & _COMMIT_OFFSET for pull in slave.pulls)
        all_of.register(master, slave)
        master.pulled = nothing_new(0)
        master.pulls.clear()
        await until(lambda: master.queues() == {0, 1})
        slave.commits.clear()
        master.commits.clear()
        await until(lambda: {commit.queue_id for commit in master.commits} == {0, 1})
        assert not slave.commits


async def test_a_consumer_begins_at_a_slave() -> None:
    async with group() as all_of:
        all_of.register(all_of.slave)
        await all_of.consume()
        await until(lambda: all_of.slave.queues() == {0, 1})
        assert {(pull.queue_id, pull.queue_offset) for pull in all_of.slave.pulls} == {(0, 5), (1, 7)}
        assert not all_of.master.asked and not all_of.master.pulls


async def test_nothing_is_sent_to_a_slave() -> None:
    async with group() as all_of, Producer("p", client=all_of.settings) as producer:
        all_of.register(all_of.slave)
        with pytest.raises(TopicNotWritable, match="the master of b is down"):
            await producer.send(Message("T", b"x"))
        assert not all_of.slave.taken
        all_of.register(all_of.master, all_of.slave)
        await producer.send(Message("T", b"x"))
        assert len(all_of.master.taken) == 1


async def test_a_slave_that_knows_nothing_more_is_not_asked_in_a_loop() -> None:
    """RocketMQ's slave answers at once, also while it is the only one."""

    def try_again(request: Pull) -> Response:
        answer = nothing_new(0)(request)
        answer.code = ResponseCode.PULL_RETRY_IMMEDIATELY
        return answer

    async with group() as all_of:
        all_of.register(all_of.slave)
        all_of.slave.pulled = try_again
        await all_of.consume()
        await until(lambda: all_of.slave.queues() == {0, 1})
        before = len(all_of.slave.pulls)
        await asyncio.sleep(0.5)
        # At once, then 0.1, 0.2, 0.4 s later; in a loop there would be fifty of each queue.
        assert len(all_of.slave.pulls) - before <= 2 * 5
