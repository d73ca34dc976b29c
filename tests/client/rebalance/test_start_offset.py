"""Where a group that is new to a queue begins, also if its first members leave before their first pull is answered."""

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from sprocket import (
    ClientSettings,
    ConsumeFrom,
    Consumer,
    ConsumerListener,
    ConsumeSettings,
    Message,
    MessageModel,
    MessageQueue,
    OrderlyConsumer,
    Producer,
)
from sprocket.remoting.bodies.client import (
    ConsumerIdList,
    HeartbeatData,
    LockBatchRequestBody,
    LockBatchResponseBody,
)
from sprocket.remoting.codec.fastjson import dumps, loads
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.command import Request, Response
from sprocket.remoting.headers.client import (
    GetConsumerListByGroupRequestHeader,
    LockBatchMqRequestHeader,
    UnlockBatchMqRequestHeader,
)
from sprocket.remoting.headers.offset import (
    GetMaxOffsetRequestHeader,
    GetMaxOffsetResponseHeader,
    QueryConsumerOffsetRequestHeader,
    QueryConsumerOffsetResponseHeader,
    UpdateConsumerOffsetRequestHeader,
)
from sprocket.remoting.headers.pull import PullMessageRequestHeader
from sprocket.testing import Broker
from tests.client.fake_cluster import FakeBroker, FakeNameServer, route, topic_data
from tests.waiting import until


class OldQueue(FakeBroker):
    """One queue from which messages have expired: its broker answers no offset for a new group, and no pull at all."""

    def __init__(self) -> None:
        super().__init__(
            "a",
            0,
            [
                route(RequestCode.PULL_MESSAGE, PullMessageRequestHeader, self._pull),
                route(RequestCode.QUERY_CONSUMER_OFFSET, QueryConsumerOffsetRequestHeader, self._offset),
                route(RequestCode.UPDATE_CONSUMER_OFFSET, UpdateConsumerOffsetRequestHeader, self._commit),
                route(RequestCode.GET_MAX_OFFSET, GetMaxOffsetRequestHeader, self._max_offset),
                route(RequestCode.GET_CONSUMER_LIST_BY_GROUP, GetConsumerListByGroupRequestHeader, self._members),
                route(RequestCode.LOCK_BATCH_MQ, LockBatchMqRequestHeader, self._lock),
                route(RequestCode.UNLOCK_BATCH_MQ, UnlockBatchMqRequestHeader, lambda request: Response()),
            ],
        )
        self.end = 7
        self.committed: int | None = None
        self.answers_zero = False  # as of a queue whose first message is in memory
        self.begun: list[int] = []

    def _pull(self, request: Request[PullMessageRequestHeader]) -> None:
        if request.header.topic == "T":
            self.begun.append(request.header.queue_offset)

    def _offset(self, request: Request[QueryConsumerOffsetRequestHeader]) -> Response:
        offset = 0 if self.answers_zero and self.committed is None else self.committed
        if offset is None:
            return Response(ResponseCode.QUERY_NOT_FOUND, "Not found")
        return Response(header=QueryConsumerOffsetResponseHeader(offset=offset))

    def _commit(self, request: Request[UpdateConsumerOffsetRequestHeader]) -> Response:
        if request.header.topic == "T":
            self.committed = request.header.commit_offset
        return Response()

    def _max_offset(self, request: Request[GetMaxOffsetRequestHeader]) -> Response:
        return Response(header=GetMaxOffsetResponseHeader(offset=self.end))

    def _members(self, request: Request[GetConsumerListByGroupRequestHeader]) -> Response:
        ids = [loads(body, HeartbeatData).client_id for body in self.heartbeats[-1:]]  # one member at a time
        return Response(body=dumps(ConsumerIdList(ids)))

    def _lock(self, request: Request[LockBatchMqRequestHeader]) -> Response:
        return Response(body=dumps(LockBatchResponseBody(loads(request.body, LockBatchRequestBody).mq_set)))


class Assigned(ConsumerListener):
    """Tells when the consumer has its queues."""

    has_queues = False

    def on_assigned(self, queues: list[MessageQueue]) -> None:
        self.has_queues = self.has_queues or any(queue.topic == "T" for queue in queues)


@pytest.mark.parametrize("kind", [Consumer, OrderlyConsumer])
@pytest.mark.parametrize("ends", ["close", "kill"])
async def test_session_that_ends_before_its_first_pull_is_answered_loses_nothing(
    kind: type[Consumer], ends: str
) -> None:
    async with FakeNameServer() as names, OldQueue() as broker:
        names.topics["T"] = topic_data(broker)
        listener = Assigned()
        consumer = kind("g", ["T"], names.address, consume_from=ConsumeFrom.LAST, listener=listener)
        async with consumer:
            await until(lambda: broker.begun == [7] and (ends == "close" or listener.has_queues))
            if ends == "kill":
                assert broker.committed == 7  # nothing commits it later
        broker.end = 11  # four messages arrive while no member runs
        async with kind("g", ["T"], names.address, consume_from=ConsumeFrom.LAST):
            await until(lambda: len(broker.begun) == 2)
    assert broker.begun == [7, 7]


async def test_begin_of_a_young_queue_still_counts_when_the_queue_has_grown() -> None:
    async with FakeNameServer() as names, OldQueue() as broker:
        names.topics["T"] = topic_data(broker)
        broker.answers_zero = True
        async with Consumer("g", ["T"], names.address, consume_from=ConsumeFrom.LAST):
            await until(lambda: broker.begun == [0])
        broker.answers_zero = False
        async with Consumer("g", ["T"], names.address, consume_from=ConsumeFrom.LAST):
            await until(lambda: len(broker.begun) == 2)
    assert broker.begun == [0, 0]


async def test_guess_for_the_first_offset_is_not_committed() -> None:
    """The queue begins later, which only the answer to the first pull tells."""
    async with FakeNameServer() as names, OldQueue() as broker:
        names.topics["T"] = topic_data(broker)
        async with Consumer("g", ["T"], names.address, consume_from=ConsumeFrom.FIRST):
            await until(lambda: broker.begun == [0])
        assert broker.committed is None


def _clustering(tmp_path: Path) -> dict[str, object]:
    return {}


def _broadcasting(tmp_path: Path) -> dict[str, object]:
    settings = ConsumeSettings(local_offset_store_dir=tmp_path)
    return {"model": MessageModel.BROADCASTING, "settings": settings}


@pytest.mark.parametrize("options", [_clustering, _broadcasting])
async def test_start_time_counts_for_the_first_session_only(
    shared_broker: Broker, topic: str, tmp_path: Path, options: Callable[[Path], dict[str, object]]
) -> None:
    client = ClientSettings(namesrv=shared_broker.namesrv, instance_name=topic)

    def member() -> Consumer:
        made = options(tmp_path)
        return Consumer(f"g-{topic}", [topic], consume_from=datetime.now(UTC), client=client, **made)  # type: ignore[arg-type]

    async with Producer("g", shared_broker.namesrv) as producer:
        await producer.send(Message(topic, b"before"))
        async with member() as consumer:
            await until(lambda: len(consumer.assignment) == 4)
        await producer.send(Message(topic, b"between"))
        async with member() as consumer:
            assert (await anext(consumer)).body == b"between"
