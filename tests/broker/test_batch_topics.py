"""Topics of queue type BatchCQ through a broker on a socket: what is stored, answered, refused and read back."""

import struct
from pathlib import Path
from typing import Any

from broker.server import Broker
from sprocket.client.message import MessageQueue, ReceivedMessage
from sprocket.client.pull.record_decoder import decode_records
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.command import ReceivedResponse
from sprocket.remoting.headers.offset import (
    GetMaxOffsetRequestHeader,
    GetMaxOffsetResponseHeader,
    GetMinOffsetRequestHeader,
    GetMinOffsetResponseHeader,
)
from sprocket.remoting.headers.pull import PullMessageResponseHeader
from sprocket.remoting.headers.send import (
    ConsumerSendMsgBackRequestHeader,
    SendMessageResponseHeader,
)
from sprocket.remoting.message.properties import encode, parse
from sprocket.remoting.message.record import SysFlag
from store.queue.inner_batch import MAX_MESSAGES
from tests.broker.rig import TOPIC, TestClient, create, running_broker, stored
from tests.send_headers import send_header

KEY = "0A000001000000000000000000000009"
KEPT = int(SysFlag.INNER_BATCH | SysFlag.NEED_UNWRAP)


def members(*bodies: bytes) -> bytes:
    """As `MessageDecoder.encodeMessages` writes them."""
    pieces = []
    for number, body in enumerate(bodies):
        text = encode({"UNIQ_KEY": f"K{number}", "TAGS": "a"}).encode()
        head = struct.pack(">iiiii", 22 + len(body) + len(text), 0, 0, number, len(body))
        pieces.append(head + body + struct.pack(">h", len(text)) + text)
    return b"".join(pieces)


async def send(
    client: TestClient, body: bytes, *, batch: bool = True, sys_flag: int = 0, **properties: str
) -> ReceivedResponse:
    header = send_header(TOPIC, sys_flag=sys_flag, flag=7, properties=encode(properties), batch=batch)
    code = RequestCode.SEND_BATCH_MESSAGE if batch else RequestCode.SEND_MESSAGE_V2
    return await client.ask(code, header, body)


async def create_batch_topic(client: TestClient) -> None:
    header = create(attributes="+queue.type=BatchCQ")
    await client.ask_well(RequestCode.UPDATE_AND_CREATE_TOPIC, header)


async def pulled(client: TestClient, offset: int) -> tuple[list[ReceivedMessage], int]:
    """What our own client makes of a pull, and where the next one begins."""
    response = await client.pull(offset=offset)
    assert response.code == ResponseCode.SUCCESS, response.remark
    queue = MessageQueue(TOPIC, "broker-a", 0)
    return decode_records(response.body, queue), response.header(PullMessageResponseHeader).next_begin_offset


async def test_a_batch_with_a_key_is_one_record(tmp_path: Path) -> None:
    """`SendMessageProcessor.sendBatchMessage`."""
    async with running_broker(tmp_path) as (broker, client):
        await create_batch_topic(client)
        response = await send(client, members(b"a", b"b", b"c"), UNIQ_KEY=KEY, WAIT="true")
        assert response.code == ResponseCode.SUCCESS, response.remark
        answer = response.header(SendMessageResponseHeader)
        assert (answer.queue_offset, answer.transaction_id, answer.batch_uniq_id) == (0, KEY, KEY)
        assert len(answer.msg_id) == 32
        record = stored(broker, TOPIC, 0, 1)
        assert record.body == members(b"a", b"b", b"c")
        assert (record.flag, record.sys_flag) == (7, KEPT)
        properties = parse(str(record.properties, "utf-8"))
        assert (properties["INNER_NUM"], properties["INNER_BASE"], properties["UNIQ_KEY"]) == ("3", "0", KEY)
        second = await send(client, members(b"d", b"e"), UNIQ_KEY=KEY)
        assert second.header(SendMessageResponseHeader).queue_offset == 3
        assert broker.store.max_offset(TOPIC, 0) == 5
        assert not (tmp_path / "store" / "consumequeue" / TOPIC).exists()


async def test_a_pull_gives_each_message_at_its_own_offset(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as (_, client):
        await create_batch_topic(client)
        await send(client, members(b"0", b"1", b"2"), UNIQ_KEY=KEY)
        alone = await send(client, b"3", batch=False, UNIQ_KEY=KEY)
        assert alone.header(SendMessageResponseHeader).queue_offset == 3
        # A batch without a key of its own is stored as its messages.
        apart = await send(client, members(b"4", b"5"), WAIT="true")
        assert len(apart.header(SendMessageResponseHeader).msg_id.split(",")) == 2
        await send(client, members(*[b"%d" % number for number in range(6, 9)]), UNIQ_KEY=KEY)
        messages, next_offset = await pulled(client, 0)
        assert [(message.queue_offset, message.body) for message in messages] == [(n, b"%d" % n) for n in range(9)]
        assert [message.tags for message in messages] == ["a", "a", "a", "", *["a"] * 5]
        assert next_offset == 9
        # From within a record all of it comes.
        messages, next_offset = await pulled(client, 7)
        assert ([message.queue_offset for message in messages], next_offset) == ([6, 7, 8], 9)


async def test_a_restart_keeps_type_and_offsets(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as (_, client):
        await create_batch_topic(client)
        await send(client, members(b"0", b"1"), UNIQ_KEY=KEY)
    async with running_broker(tmp_path) as (_, client):
        await send(client, members(b"2", b"3"), UNIQ_KEY=KEY)
        messages, _ = await pulled(client, 0)
        assert [message.body for message in messages] == [b"0", b"1", b"2", b"3"]


TWO = members(b"x", b"y")


# What -> (body, what differs in the request)
async def test_a_queue_of_batches_without_a_message_begins_at_minus_one(tmp_path: Path) -> None:
    """RocketMQ's `BatchSendIT` asks for it."""

    async def min_offset(client: TestClient, topic: str) -> int:
        response = await client.ask_well(RequestCode.GET_MIN_OFFSET, GetMinOffsetRequestHeader(topic=topic, queue_id=0))
        return response.header(GetMinOffsetResponseHeader).offset

    async with running_broker(tmp_path) as (_, client):
        await create_batch_topic(client)
        await client.ask_well(RequestCode.UPDATE_AND_CREATE_TOPIC, create("Plain"))
        assert (await min_offset(client, TOPIC), await min_offset(client, "Plain")) == (-1, 0)
        pulled = (await client.pull()).header(PullMessageResponseHeader)
        assert (pulled.next_begin_offset, pulled.max_offset) == (0, 0)
        asked = GetMaxOffsetRequestHeader(topic=TOPIC, queue_id=0)
        response = await client.ask_well(RequestCode.GET_MAX_OFFSET, asked)
        assert response.header(GetMaxOffsetResponseHeader).offset == 0
        assert (await send(client, members(b"a", b"b"), UNIQ_KEY=KEY)).code == ResponseCode.SUCCESS
        assert await min_offset(client, TOPIC) == 0
        assert (await client.pull()).header(PullMessageResponseHeader).min_offset == 0


NO_BATCHES: dict[str, tuple[bytes, dict[str, Any]]] = {
    "empty": (b"", {}),
    "cut": (TWO[:-1], {}),
    "more bytes": (TWO + b"\0", {}),
    # countInnerMsgNum goes by this size, decodeMessage does not.
    "another size": (struct.pack(">i", 40) + TWO[4:], {}),
    # The unit has 16 bits for the number.
    "too many": (members(*[b""] * (MAX_MESSAGES + 1)), {}),
    "delay": (TWO, {"DELAY": "3"}),
    "half message": (TWO, {"sys_flag": int(SysFlag.TRANSACTION_PREPARED)}),
    "wrong number": (TWO, {"sys_flag": KEPT, "batch": False, "INNER_NUM": "3"}),
    "no number": (TWO, {"sys_flag": KEPT, "batch": False}),
    "one message with delay": (TWO, {"sys_flag": KEPT, "batch": False, "INNER_NUM": "2", "DELAY": "1"}),
    "number without flag": (b"body", {"batch": False, "INNER_NUM": "2"}),
}


async def test_what_is_no_batch_is_refused(tmp_path: Path) -> None:
    remark = "the message is illegal, maybe msg body or properties length not matched."
    async with running_broker(tmp_path) as (broker, client):
        await create_batch_topic(client)
        for what, (body, fields) in NO_BATCHES.items():
            response = await send(client, body, **{"UNIQ_KEY": KEY} | fields)
            assert response.code == ResponseCode.MESSAGE_ILLEGAL, what
            assert (response.remark or "").startswith(remark), what
            assert broker.store.wrote_offset == 0


async def test_one_record_may_be_sent_as_one_message_too(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as (broker, client):
        await create_batch_topic(client)
        response = await send(client, TWO, batch=False, sys_flag=KEPT, UNIQ_KEY=KEY, INNER_NUM="2")
        assert response.code == ResponseCode.SUCCESS, response.remark
        assert broker.store.max_offset(TOPIC, 0) == 2


async def test_a_batch_to_another_topic_is_stored_as_its_messages(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as (broker, client):
        await client.ask_well(RequestCode.UPDATE_AND_CREATE_TOPIC, create())
        response = await send(client, TWO, UNIQ_KEY=KEY)
        answer = response.header(SendMessageResponseHeader)
        assert (len(answer.msg_id.split(",")), answer.batch_uniq_id) == (2, None)
        assert stored(broker, TOPIC, 0, 1).body == b"y"
        kept = await send(client, TWO, batch=False, sys_flag=KEPT, UNIQ_KEY=KEY, INNER_NUM="2")
        assert kept.code == ResponseCode.MESSAGE_ILLEGAL


async def give_back(client: TestClient, broker: Broker, offset: int) -> ReceivedResponse:
    entry = broker.store.entry(TOPIC, 0, offset)
    assert entry is not None
    header = ConsumerSendMsgBackRequestHeader(offset=entry[0], group="CG", delay_level=1, origin_topic=TOPIC)
    return await client.ask(RequestCode.CONSUMER_SEND_MSG_BACK, header)


async def test_only_a_message_alone_in_its_record_can_be_sent_back_by_its_offset(tmp_path: Path) -> None:
    """A client that is refused sends the one message of the batch itself."""
    async with running_broker(tmp_path) as (broker, client):
        await create_batch_topic(client)
        await send(client, TWO, UNIQ_KEY=KEY)
        await send(client, b"alone", batch=False, UNIQ_KEY=KEY)
        refused = await give_back(client, broker, 0)
        assert (refused.code, (refused.remark or "")[:15]) == (ResponseCode.SYSTEM_ERROR, "MESSAGE_ILLEGAL")
        assert (await give_back(client, broker, 2)).code == ResponseCode.SUCCESS
        properties = parse(str(stored(broker, "SCHEDULE_TOPIC_XXXX", 0, 0).properties, "utf-8"))
        assert not {"INNER_NUM", "INNER_BASE"} & set(properties)
