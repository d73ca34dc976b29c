"""Locks of queues against a broker that does what it is told, on a clock moved by hand."""

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from sprocket import ClientSettings
from sprocket.client.connection.client_instance import ClientInstance
from sprocket.client.orderly.queue_locks import QueueLocks
from sprocket.remoting.bodies.client import LockBatchRequestBody, LockBatchResponseBody, MessageQueue
from sprocket.remoting.codec.fastjson import dumps, loads
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.command import Request, Response
from sprocket.remoting.headers.client import LockBatchMqRequestHeader, UnlockBatchMqRequestHeader
from tests.client.fake_cluster import FakeNameServer, FakeServer, route, topic_data
from tests.clock import ManualClock

QUEUES = [MessageQueue("T", "broker-a", number) for number in range(3)]


class LockBroker(FakeServer):
    """Gives the locks of all queues but those in `others`; refuses everything while `is_failing`."""

    def __init__(self) -> None:
        super().__init__(
            [
                route(RequestCode.LOCK_BATCH_MQ, LockBatchMqRequestHeader, self._lock),
                route(RequestCode.UNLOCK_BATCH_MQ, UnlockBatchMqRequestHeader, self._unlock),
            ]
        )
        self.others: set[MessageQueue] = set()
        self.asked: list[LockBatchRequestBody] = []
        self.unlocked: list[MessageQueue] = []
        self.is_failing = False
        self.during_lock: Callable[[], None] = lambda: None

    def _lock(self, request: Request[Any]) -> Response:
        if self.is_failing:
            return Response(ResponseCode.SYSTEM_ERROR, "scripted")
        body = loads(request.body, LockBatchRequestBody)
        self.asked.append(body)
        self.during_lock()
        return Response(body=dumps(LockBatchResponseBody([queue for queue in body.mq_set if queue not in self.others])))

    def _unlock(self, request: Request[Any]) -> Response:
        self.unlocked += loads(request.body, LockBatchRequestBody).mq_set
        return Response()


class Rig:
    def __init__(self, broker: LockBroker, locks: QueueLocks, clock: ManualClock) -> None:
        self.broker = broker
        self.locks = locks
        self.clock = clock

    def held(self) -> list[int]:
        return [queue.queue_id for queue in QUEUES if self.locks.is_held(queue)]


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    async with FakeNameServer() as name_server, LockBroker() as broker:
        name_server.topics["T"] = topic_data(("broker-a", broker.address), queues=3)
        clock = ManualClock()
        instance = ClientInstance(ClientSettings(namesrv=name_server.address), clock=clock)
        await instance.open()
        await instance.refresh_route("T")
        yield Rig(broker, QueueLocks(instance, "G"), clock)
        await instance.close()


async def test_one_request_locks_all_queues_of_a_broker(rig: Rig) -> None:
    rig.broker.others = {QUEUES[1]}
    assert await rig.locks.lock(QUEUES) == {QUEUES[0], QUEUES[2]}
    assert rig.held() == [0, 2]
    (asked,) = rig.broker.asked
    assert (asked.consumer_group, sorted(asked.mq_set)) == ("G", QUEUES)


async def test_lock_is_good_for_30_s_from_the_request_on(rig: Rig) -> None:
    rig.broker.during_lock = lambda: rig.clock.advance(10)
    await rig.locks.lock(QUEUES)
    rig.broker.during_lock = lambda: None
    rig.clock.advance(20)
    assert rig.held() == [0, 1, 2]
    rig.clock.step_wall(-3_600_000)
    rig.clock.advance(0.1)
    assert rig.held() == []
    await rig.locks.lock(QUEUES[:1])
    assert rig.held() == [0]


async def test_broker_that_does_not_answer_takes_no_lock_away(rig: Rig) -> None:
    await rig.locks.lock(QUEUES)
    rig.broker.is_failing = True
    rig.clock.advance(20)
    assert await rig.locks.lock(QUEUES) == set()
    assert rig.held() == [0, 1, 2]
    rig.clock.advance(10.1)
    assert rig.held() == []


async def test_lock_that_another_has_is_lost_at_the_renewal(rig: Rig) -> None:
    await rig.locks.lock(QUEUES)
    rig.broker.others = {QUEUES[2]}
    await rig.locks.lock(QUEUES)
    assert rig.held() == [0, 1]


async def test_unlocked_queue_is_not_held_and_the_broker_knows(rig: Rig) -> None:
    await rig.locks.lock(QUEUES)
    await rig.locks.unlock(QUEUES[:2])
    assert (rig.held(), rig.broker.unlocked) == ([2], QUEUES[:2])
