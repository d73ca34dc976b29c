"""Kinds and limits of messages through a broker on a socket: what is stored whole, what is refused and how.

Codes and remarks: RocketMQ 5.3.3, `SendMessageProcessor.handlePutMessageResult`, `HookUtils.checkBeforePutMessage`,
`MessageExtEncoder`, `TopicValidator`.
"""

import socket
import struct
from pathlib import Path

import pytest

from broker.message_id import host_bytes
from sprocket.client.message import MessageQueue
from sprocket.client.pull.record_decoder import decode_records
from sprocket.common.limits import MAX_PROPERTIES_BYTES
from sprocket.remoting.bodies.group import SubscriptionGroupConfig
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.command import ReceivedResponse
from sprocket.remoting.headers.send import (
    ConsumerSendMsgBackRequestHeader,
    SendMessageResponseHeader,
)
from sprocket.remoting.message.properties import encode
from sprocket.remoting.message.record import MAGIC_V1, MAGIC_V2, SysFlag
from tests.broker.rig import TOPIC, TestClient, running_broker, stored
from tests.send_headers import send_header

MAX_BODY = 4 * 1024 * 1024
ILLEGAL = (
    "the message is illegal, maybe msg body or properties length not matched. msg body length limit "
    "4194304B, msg properties length limit 32KB."
)
KEY = "0A000001000000000000000000000001"
LARGE_LOG = {"mapped_file_size_commit_log": 16 << 20}


async def send(
    client: TestClient,
    body: bytes = b"body",
    topic: str = TOPIC,
    code: int = RequestCode.SEND_MESSAGE_V2,
    **properties: str,
) -> ReceivedResponse:
    text = encode({"UNIQ_KEY": KEY} | properties)
    header = send_header(topic, flag=7, properties=text, batch=code == RequestCode.SEND_BATCH_MESSAGE)
    return await client.ask(code, header, body)


async def read_back(client: TestClient, topic: str = TOPIC, offset: int = 0) -> list[tuple[int, bytes, dict[str, str]]]:
    """(queue offset, body, properties) of messages of queue 0, as our client decodes a pull."""
    response = await client.pull(topic=topic, offset=offset)
    messages = decode_records(response.body, MessageQueue(topic, "broker-a", 0))
    return [(message.queue_offset, message.body, message.properties) for message in messages]


async def test_a_body_up_to_the_limit_comes_back_whole(tmp_path: Path) -> None:
    sizes = (1, 1023, 1024, 65_536, MAX_BODY)
    bodies = [bytes(range(256)) * (size // 256) + b"x" * (size % 256) for size in sizes]
    async with running_broker(tmp_path, store=LARGE_LOG) as (_, client):
        for body in bodies:
            assert (await send(client, body)).code == ResponseCode.SUCCESS
        found = await read_back(client)
        found += await read_back(client, offset=len(found))
        assert [offset for offset, _, _ in found] == list(range(len(sizes)))
        assert [body for _, body, _ in found] == bodies
        assert {properties["UNIQ_KEY"] for _, _, properties in found} == {KEY}


async def test_a_body_beyond_the_limits_is_refused(tmp_path: Path) -> None:
    """Without a body too: `RemotingCommand.decode` then has none, and the store takes none."""
    async with running_broker(tmp_path, store=LARGE_LOG) as (broker, client):
        for size in (0, MAX_BODY + 1, 2 * MAX_BODY):
            response = await send(client, bytes(size))
            assert response.code == ResponseCode.MESSAGE_ILLEGAL == 13, size
            assert (response.remark or "").startswith(ILLEGAL)
            assert broker.store.wrote_offset == 0
        assert (await send(client)).code == ResponseCode.SUCCESS


def members(*bodies: bytes) -> bytes:
    """A batch of a client: messages without properties."""
    return b"".join(struct.pack(">iiiii", 22 + len(body), 0, 0, 0, len(body)) + body + b"\0\0" for body in bodies)


async def test_the_limit_of_a_batch_is_that_of_its_whole_body(tmp_path: Path) -> None:
    half = b"x" * (MAX_BODY // 2 - 22)
    async with running_broker(tmp_path, store=LARGE_LOG) as (broker, client):
        fits = await send(client, members(half, half), code=RequestCode.SEND_BATCH_MESSAGE)
        assert fits.code == ResponseCode.SUCCESS, fits.remark
        wrote = broker.store.wrote_offset
        refused = await send(client, members(half, half + b"x"), code=RequestCode.SEND_BATCH_MESSAGE)
        assert (refused.code, (refused.remark or "")[: len(ILLEGAL)]) == (ResponseCode.MESSAGE_ILLEGAL, ILLEGAL)
        assert broker.store.wrote_offset == wrote


async def test_properties_may_fill_their_field_and_no_more(tmp_path: Path) -> None:
    """What the broker adds counts: region, trace switch, cluster, and the seal of the whole record."""
    async with running_broker(tmp_path) as (broker, client):
        await send(client, x="1")
        stored_bytes = len(stored(broker, TOPIC, 0, 0).properties)
        room = MAX_PROPERTIES_BYTES - stored_bytes + 1
        assert (await send(client, x="y" * room)).code == ResponseCode.SUCCESS
        assert len(stored(broker, TOPIC, 0, 1).properties) == MAX_PROPERTIES_BYTES == 32_767
        for more in (room + 1, room + 20, 32_767, 65_536, 200_000):
            response = await send(client, x="y" * more)
            assert (response.code, (response.remark or "")[: len(ILLEGAL)]) == (ResponseCode.MESSAGE_ILLEGAL, ILLEGAL)
        # Characters do not count, bytes do.
        assert (await send(client, x="é" * (room // 2))).code == ResponseCode.SUCCESS
        assert (await send(client, x="é" * (room // 2 + 1))).code == ResponseCode.MESSAGE_ILLEGAL
        lengths = [len(properties["x"]) for _, _, properties in await read_back(client)]
        assert lengths == [1, room, room // 2]


async def test_largest_body_and_longest_properties_go_together(tmp_path: Path) -> None:
    async with running_broker(tmp_path, store=LARGE_LOG) as (_, client):
        response = await send(client, b"x" * MAX_BODY, x="y" * 32_000)
        assert response.code == ResponseCode.SUCCESS, response.remark


async def test_a_segment_that_is_too_small_for_a_message_refuses_it(tmp_path: Path) -> None:
    """In the original no segment ever has room for it, and the send ends in an unknown error."""
    async with running_broker(tmp_path, store={"mapped_file_size_commit_log": 1 << 20}) as (_, client):
        response = await send(client, b"x" * (1 << 20))
        assert response.code == ResponseCode.MESSAGE_ILLEGAL
        assert "record has" in (response.remark or "")


TOO_LONG = "The specified topic is longer than topic max length."
NAMES: list[tuple[str, int, str]] = [
    ("t" * 127, ResponseCode.SUCCESS, ""),
    ("t" * 128, ResponseCode.INVALID_PARAMETER, TOO_LONG),
    ("t" * 256, ResponseCode.INVALID_PARAMETER, TOO_LONG),
    ("%RETRY%" + "g" * 121, ResponseCode.INVALID_PARAMETER, TOO_LONG),
    ("", ResponseCode.INVALID_PARAMETER, "The specified topic is blank."),
    ("../T", ResponseCode.INVALID_PARAMETER, "The specified topic contains illegal characters"),
    ("thèse", ResponseCode.INVALID_PARAMETER, "The specified topic contains illegal characters"),
    ("SCHEDULE_TOPIC_XXXX", ResponseCode.NO_PERMISSION, "Sending message to topic[SCHEDULE_TOPIC_XXXX] is forbidden."),
]


async def test_names_of_topics(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as (broker, client):
        for topic, code, remark in NAMES:
            response = await send(client, topic=topic)
            assert (response.code, (response.remark or "")[: len(remark)]) == (code, remark), topic
        record = stored(broker, "t" * 127, 0, 0)
        head = broker.store.record_at(record.physical_offset)
        assert head is not None and int.from_bytes(head[4:8], "big", signed=True) == MAGIC_V1
        assert [body for _, body, _ in await read_back(client, "t" * 127)] == [b"body"]


async def give_back(client: TestClient, physical_offset: int, group: str, delay_level: int = -1) -> ReceivedResponse:
    await client.heartbeat("C", TOPIC, group=group)
    header = ConsumerSendMsgBackRequestHeader(
        offset=physical_offset, group=group, delay_level=delay_level, origin_topic=TOPIC, max_reconsume_times=16
    )
    return await client.ask(RequestCode.CONSUMER_SEND_MSG_BACK, header)


# In the original a dead-letter topic of more than 127 bytes is refused, and only a retry topic may be longer.
@pytest.mark.parametrize(("group_chars", "magic"), [(122, MAGIC_V1), (123, MAGIC_V2), (248, MAGIC_V2)])
async def test_a_long_groups_topics_have_records_of_the_second_version(
    tmp_path: Path, group_chars: int, magic: int
) -> None:
    group = "g" * group_chars
    async with running_broker(tmp_path) as (broker, client):
        broker.groups.update([SubscriptionGroupConfig(group)])  # an old one
        await client.send()
        response = await give_back(client, 0, group)
        assert response.code == ResponseCode.SUCCESS, response.remark
        topic = "%DLQ%" + group
        record = stored(broker, topic, 0, 0)
        head = broker.store.record_at(record.physical_offset)
        assert head is not None and int.from_bytes(head[4:8], "big", signed=True) == magic
    async with running_broker(tmp_path) as (broker, client):
        assert stored(broker, topic, 0, 0).body == b"body"


@pytest.mark.parametrize("delay_level", [-1, 1])
async def test_a_group_too_long_for_a_directory_is_refused_and_hurts_nobody(tmp_path: Path, delay_level: int) -> None:
    """`HookUtils.checkBeforePutMessage`: a file's name has at most 255 bytes.  Tables of RocketMQ hold such groups."""
    async with running_broker(tmp_path) as (broker, client):
        broker.groups.update([SubscriptionGroupConfig("g" * 251)])
        await client.send()
        wrote = broker.store.wrote_offset
        response = await give_back(client, 0, "g" * 251, delay_level)
        assert response.code == ResponseCode.MESSAGE_ILLEGAL
        assert broker.store.wrote_offset == wrote
        assert broker.store.failure is None
        await client.send()


def has_ipv6() -> bool:
    """Whether a server may listen at ::1: the system may know IPv6 and have it switched off."""
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


@pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6")
async def test_a_broker_on_ipv6(tmp_path: Path) -> None:
    async with running_broker(tmp_path, bind_address="::1", broker_ip1="::1") as (broker, _):
        client = TestClient(f"[::1]:{broker.port}")
        try:
            answer = (await send(client)).header(SendMessageResponseHeader)
            record = stored(broker, TOPIC, 0, 0)
            assert record.sys_flag == int(SysFlag.BORN_HOST_V6 | SysFlag.STORE_HOST_V6)
            assert record.store_host == host_bytes("::1", broker.port)
            assert record.born_host[:16] == bytes(15) + b"\1"
            assert answer.msg_id == record.store_host.hex().upper() + "0" * 16
            assert len(answer.msg_id) == 56
            assert [body for _, body, _ in await read_back(client)] == [b"body"]
        finally:
            await client.close()
    async with running_broker(tmp_path, bind_address="::1", broker_ip1="::1") as (broker, _):
        assert stored(broker, TOPIC, 0, 0).born_host[:16] == bytes(15) + b"\1"
