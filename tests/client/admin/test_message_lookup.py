"""Lookups of messages, of a broker that maps queues of a static topic and of a real one that stores batches."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from sprocket.client.admin.admin_client import AdminClient
from sprocket.client.admin.message_lookup import MessageLookup
from sprocket.client.message import Message, MessageQueue
from sprocket.client.producer import Producer
from sprocket.remoting.bodies.topic import TopicConfig
from sprocket.remoting.codes import RequestCode
from sprocket.remoting.command import Request, Response
from sprocket.remoting.headers.pull import PullMessageRequestHeader, PullMessageResponseHeader
from sprocket.testing import Broker
from tests.client import java_vectors as java
from tests.client.fake_cluster import FakeBroker, FakeNameServer, route, topic_data

TOPIC = "TopicTest"
# Queue offset in the records of `java_vectors`, and what the mapping adds to it.
STORED_AT, DELTA = 42, 100


def pull_of_static_topic(request: Request[PullMessageRequestHeader]) -> Response:
    """Answer as `PullMessageProcessor.rewriteResponseForStaticTopic`: offsets are mapped, but not in the records."""
    first = STORED_AT + DELTA
    found = PullMessageResponseHeader(
        suggest_which_broker_id=0, next_begin_offset=first + 1, min_offset=first, max_offset=first + 1,
        offset_delta=DELTA,
    )  # fmt: skip
    return Response(header=found, body=java.RECORD_IPV4)


@pytest.fixture
async def mapped() -> AsyncIterator[tuple[MessageLookup, str]]:
    pulls = route(RequestCode.PULL_MESSAGE, PullMessageRequestHeader, pull_of_static_topic)
    async with FakeNameServer() as names, FakeBroker("broker-a", routes=[pulls]) as broker:
        names.topics[TOPIC] = topic_data(broker)
        async with AdminClient(names.address) as admin:
            yield MessageLookup(admin), broker.address


async def test_messages_of_a_static_topic_have_the_offsets_of_the_topic(mapped: tuple[MessageLookup, str]) -> None:
    lookup, address = mapped
    first = STORED_AT + DELTA
    asked: Any = (MessageQueue(TOPIC, "broker-a", 3), address, first)
    messages, next_offset = await lookup.messages(*asked)
    stored, _ = await lookup.stored(*asked)
    assert [message.queue_offset for message in messages] == [first]
    assert [one.message.queue_offset for one in stored] == [first]
    assert next_offset == first + 1
    # A page leaves out messages from its end on, by their offsets.
    assert [len(page) async for page in lookup.pages(*asked, first + 1)] == [1]
    assert [len(page) async for page in lookup.stored_pages(*asked, first + 1)] == [1]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with Broker(tmp_path_factory.mktemp("lookup")) as broker:
        yield broker


async def test_messages_of_a_batch_are_found_by_the_id_of_the_batch(broker: Broker) -> None:
    async with Producer("PG", broker.namesrv) as producer, AdminClient(broker.namesrv) as admin:
        await admin.create_topic(broker.address, TopicConfig("Batched", 1, 1))
        sent = await producer.send_batch([Message("Batched", b"%d" % number, keys=["k"]) for number in range(3)])
        lookup = MessageLookup(admin)
        # The index is built a moment after the send.
        by_key = await lookup.by_key("Batched", "k")
        while len(by_key) < 3:
            await asyncio.sleep(0.01)
            by_key = await lookup.by_key("Batched", "k")
        assert {message.message_id for message in by_key} == set(sent.message_id.split(","))
        (batch_id,) = {message.properties["UNIQ_KEY"] for message in by_key}
        found = await lookup.by_unique_key("Batched", batch_id)
        assert sorted(message.body for message in found) == [b"0", b"1", b"2"]
