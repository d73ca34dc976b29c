"""Compacted topics through a broker on a socket: what is refused, kept, deleted and read back."""

from pathlib import Path
from typing import Any

from broker.server import Broker
from sprocket.client.message import MessageQueue, ReceivedMessage
from sprocket.client.pull.record_decoder import decode_records
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.command import ReceivedResponse
from sprocket.remoting.headers.admin import DeleteTopicRequestHeader
from sprocket.remoting.headers.offset import GetMinOffsetRequestHeader, GetMinOffsetResponseHeader
from sprocket.remoting.headers.pop import PopMessageRequestHeader
from sprocket.remoting.headers.pull import PullMessageResponseHeader
from sprocket.remoting.message.properties import encode
from tests.broker.group_rig import cluster
from tests.broker.rig import GROUP, TOPIC, TestClient, create, running_broker
from tests.send_headers import send_header
from tests.store.reading import records_of
from tests.waiting import until

SEGMENT_BYTES = 64 * 1024
SMALL: dict[str, Any] = {"mapped_file_size_commit_log": SEGMENT_BYTES, "compaction_schedule_internal": 100}


async def create_compacted(client: TestClient, **changes: Any) -> None:
    header = create(attributes="+cleanup.policy=COMPACTION", **changes)
    await client.ask_well(RequestCode.UPDATE_AND_CREATE_TOPIC, header)


async def send_raw(client: TestClient, body: bytes, **properties: str) -> ReceivedResponse:
    header = send_header(TOPIC, properties=encode({"UNIQ_KEY": "0A000001000000000000000000000001"} | properties))
    return await client.ask(RequestCode.SEND_MESSAGE_V2, header, body)


async def pulled(client: TestClient, offset: int = 0) -> list[ReceivedMessage]:
    """All messages from `offset` on."""
    messages: list[ReceivedMessage] = []
    while True:
        response = await client.pull(offset=offset)
        header = response.header(PullMessageResponseHeader)
        if response.code == ResponseCode.SUCCESS:
            messages += decode_records(response.body, MessageQueue(TOPIC, "broker-a", 0))
        elif response.code != ResponseCode.PULL_RETRY_IMMEDIATELY:
            assert response.code == ResponseCode.PULL_NOT_FOUND, (response.code, response.remark)
            return messages
        assert header.next_begin_offset > offset
        offset = header.next_begin_offset


async def close_segment(broker: Broker, client: TestClient) -> None:
    """Fill the log's segment, and wait until what was in it is compacted."""
    await client.ask_well(RequestCode.UPDATE_AND_CREATE_TOPIC, create(topic="Other"))
    end, done = broker.store.wrote_offset // SEGMENT_BYTES, broker.store.compaction.finished
    while broker.store.wrote_offset // SEGMENT_BYTES == end:
        await client.send(b"x" * 8000, topic="Other")
    await until(lambda: broker.store.compaction.finished > done)


async def test_only_the_last_message_of_a_key_is_kept_and_a_message_without_a_body_deletes(tmp_path: Path) -> None:
    async with running_broker(tmp_path, store=SMALL | {"compaction_delete_retention": 0}) as (broker, client):
        await create_compacted(client)
        for key, body in [("a", b"1"), ("b", b"2"), ("a", b"3"), ("c", b"4"), ("b", b"")]:
            await client.send(body, KEYS=key)
        await close_segment(broker, client)
        await client.send(b"5", KEYS="d")
        assert [(m.queue_offset, m.body) for m in await pulled(client)] == [(2, b"3"), (3, b"4"), (5, b"5")]
        response = await client.ask_well(RequestCode.GET_MIN_OFFSET, GetMinOffsetRequestHeader(topic=TOPIC, queue_id=0))
        assert response.header(GetMinOffsetResponseHeader).offset == 0


async def test_a_message_without_a_key_is_refused(tmp_path: Path) -> None:
    """`SendMessageProcessor.sendMessage`."""
    async with running_broker(tmp_path) as (broker, client):
        await create_compacted(client)
        for keys in ({}, {"KEYS": " "}):
            response = await send_raw(client, b"body", **keys)
            assert (response.code, response.remark) == (
                ResponseCode.MESSAGE_ILLEGAL, "Required message key is missing",
            )  # fmt: skip
        assert broker.store.max_offset(TOPIC, 0) == 0


async def test_a_message_without_a_body_is_refused_elsewhere(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as (_, client):
        await client.ask_well(RequestCode.UPDATE_AND_CREATE_TOPIC, create())
        assert (await send_raw(client, b"", KEYS="a")).code == ResponseCode.MESSAGE_ILLEGAL


async def test_a_deleted_topic_starts_empty_when_it_is_created_again(tmp_path: Path) -> None:
    async with running_broker(tmp_path, store=SMALL) as (broker, client):
        await create_compacted(client)
        await client.send(b"old", KEYS="a")
        await close_segment(broker, client)
        await client.ask_well(RequestCode.DELETE_TOPIC_IN_BROKER, DeleteTopicRequestHeader(topic=TOPIC))
        await create_compacted(client)
        await client.send(b"new", KEYS="b")
        assert [(m.queue_offset, m.body) for m in await pulled(client)] == [(0, b"new")]
        await until(lambda: not (tmp_path / "store" / "compacted" / TOPIC).exists() or
                    not any((tmp_path / "store" / "compacted" / TOPIC).iterdir()))  # fmt: skip


async def test_pops_get_what_is_kept(tmp_path: Path) -> None:
    """As in RocketMQ, whose pops read through `DefaultMessageStore.getMessage` too."""
    async with running_broker(tmp_path, store=SMALL) as (broker, client):
        await create_compacted(client)
        for key, body in [("a", b"1"), ("b", b"2"), ("a", b"3")]:
            await client.send(body, KEYS=key)
        await close_segment(broker, client)
        await client.send(b"4", KEYS="b")
        header = PopMessageRequestHeader(
            consumer_group=GROUP, topic=TOPIC, queue_id=0, max_msg_nums=32, invisible_time=60_000, poll_time=0,
            born_time=0, init_mode=0, exp_type="TAG", exp="*", order=False,
        )  # fmt: skip
        found = await client.ask_well(RequestCode.POP_MESSAGE, header)
        messages = decode_records(found.body, MessageQueue(TOPIC, "broker-a", 0))
        assert [(m.queue_offset, m.body) for m in messages] == [(1, b"2"), (2, b"3")]


async def test_a_slave_compacts_by_itself_and_serves_the_same(tmp_path: Path) -> None:
    async with cluster(tmp_path) as group:
        master = await group.start("broker-a", store=SMALL)
        slave = await group.start("broker-a", 1, store=SMALL)
        client = group.client(master)
        await create_compacted(client)
        for number in range(30):
            await client.send(b"%d" % number, KEYS=f"k{number % 4}")
        await close_segment(master, client)
        await until(lambda: slave.store.compaction.finished)
        await until(lambda: slave.store.max_offset(TOPIC, 0) == 30)
        expected = [(m.queue_offset, m.body) for m in await pulled(client)]
        assert expected == [(number, b"%d" % number) for number in range(26, 30)]
        result = slave.store.get(TOPIC, 0, 0, 32, 1 << 20)
        found = [(record.queue_offset, bytes(record.body)) for record in records_of(result.slices)]
        assert found == expected
