import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from broker.server import Broker
from sprocket.remoting.client import RemotingClient
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.command import ReceivedResponse, Request, Response
from sprocket.remoting.headers.send import (
    ReplyMessageRequestHeader,
    SendMessageRequestHeader,
    SendMessageRequestHeaderV2,
)
from sprocket.remoting.message.properties import encode, parse
from sprocket.remoting.routes import Action, Resource, Route
from store.config.store_config import FlushDiskType
from tests.broker.rig import TestClient, running_broker, stored
from tests.waiting import until

Pair = tuple[Broker, TestClient]
REPLY_TOPIC = "DefaultCluster_REPLY_TOPIC"


@pytest.fixture(params=[FlushDiskType.ASYNC_FLUSH, FlushDiskType.SYNC_FLUSH])
async def pair(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Pair]:
    async with running_broker(tmp_path, store={"flush_disk_type": request.param}) as pair:
        yield pair


class Requester(TestClient):
    """A producer that takes replies; `code` None answers none of them."""

    def __post_init__(self) -> None:
        self.code: ResponseCode | None = ResponseCode.SUCCESS
        code = RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT
        route = Route(code, ReplyMessageRequestHeader, self._take, Resource.NONE, Action.NONE)
        self.remoting = RemotingClient([route])

    def _take(self, request: Request[Any]) -> Response | None:
        self.asked.append(request)
        return None if self.code is None else Response(self.code)


async def requester(client: TestClient, client_id: str = "10.0.0.1@r", group: str = "RG") -> Requester:
    made = Requester(client.address)
    await made.heartbeat(client_id, producer_group=group)
    return made


def reply_header(v1: bool = False, **properties: str) -> SendMessageRequestHeader | SendMessageRequestHeaderV2:
    return (SendMessageRequestHeader if v1 else SendMessageRequestHeaderV2)(
        producer_group="PG",
        topic=REPLY_TOPIC,
        default_topic="TBW102",
        default_topic_queue_nums=4,
        queue_id=0,
        sys_flag=1,
        born_timestamp=1_700_000_000_000,
        flag=7,
        properties=encode(properties),
    )


async def reply(client: TestClient, to: str | None = "10.0.0.1@r", v1: bool = False, **more: str) -> ReceivedResponse:
    properties = {"CORRELATION_ID": "c1", "MSG_TYPE": "reply"} | ({"REPLY_TO_CLIENT": to} if to else {}) | more
    code = RequestCode.SEND_REPLY_MESSAGE if v1 else RequestCode.SEND_REPLY_MESSAGE_V2
    return await client.ask(code, reply_header(v1, **properties), b"answer")


@pytest.mark.parametrize("v1", [False, True])
@pytest.mark.code(RequestCode.SEND_REPLY_MESSAGE, RequestCode.SEND_REPLY_MESSAGE_V2)
async def test_requester_gets_the_reply_and_it_is_stored(pair: Pair, v1: bool) -> None:
    broker, client = pair
    waiting = await requester(client)
    response = await reply(client, v1=v1, TAGS="T", DELAY="3")
    assert response.code == ResponseCode.SUCCESS
    (pushed,) = waiting.asked
    header: ReplyMessageRequestHeader = pushed.header
    assert (pushed.body, header.topic, header.sys_flag, header.flag) == (b"answer", REPLY_TOPIC, 1, 7)
    assert header.born_timestamp == 1_700_000_000_000
    assert header.store_host == broker.address
    properties = parse(header.properties)
    assert int(properties.pop("PUSH_REPLY_TIME")) == header.store_timestamp
    assert properties["CORRELATION_ID"] == "c1"
    record = stored(broker, REPLY_TOPIC, 0, 0)
    assert (bytes(record.body), record.sys_flag, record.flag) == (b"answer", 1, 7)
    kept = parse(str(record.properties, "utf-8"))
    kept.pop("__CRC32#", None)
    assert kept == {"CORRELATION_ID": "c1", "MSG_TYPE": "reply", "REPLY_TO_CLIENT": "10.0.0.1@r", "TAGS": "T"}
    assert response.ext_fields["queueOffset"] == "0"
    assert len(response.ext_fields["msgId"]) == 32
    assert response.ext_fields["MSG_REGION"] == "DefaultRegion"
    await waiting.close()


async def test_requester_that_is_gone_is_told_of_clearly_and_the_reply_kept(pair: Pair) -> None:
    broker, client = pair
    waiting = await requester(client)
    await waiting.close()
    await until(lambda: not broker.producers.groups)
    response = await reply(client)
    assert response.code == ResponseCode.SYSTEM_ERROR
    assert response.remark == "push reply message fail, channel of <10.0.0.1@r> not found."
    assert bytes(stored(broker, REPLY_TOPIC, 0, 0).body) == b"answer"


async def test_reply_to_nobody_is_refused(pair: Pair) -> None:
    response = await reply(pair[1], to=None)
    assert response.code == ResponseCode.SYSTEM_ERROR
    assert response.remark == "reply message properties[REPLY_TO_CLIENT] is null"


async def test_requester_that_fails_or_leaves_meanwhile(pair: Pair) -> None:
    _, client = pair
    waiting = await requester(client)
    waiting.code = ResponseCode.SYSTEM_ERROR
    response = await reply(client)
    assert (response.code, response.remark) == (ResponseCode.SYSTEM_ERROR, "push reply message to 10.0.0.1@rfail.")
    waiting.code = None
    sender = client.remoting.invoke(client.address, RequestCode.SEND_REPLY_MESSAGE_V2, _header_to_requester(), b"x")
    asked = asyncio.ensure_future(sender)
    await until(lambda: len(waiting.asked) == 2)
    await waiting.close()
    response = await asked
    assert (response.code, response.remark) == (ResponseCode.SYSTEM_ERROR, "push reply message to 10.0.0.1@rfail.")


def _header_to_requester() -> SendMessageRequestHeaderV2:
    header = reply_header(REPLY_TO_CLIENT="10.0.0.1@r", CORRELATION_ID="c2")
    assert isinstance(header, SendMessageRequestHeaderV2)
    return header


async def test_newest_connection_of_a_client_is_taken(pair: Pair) -> None:
    _, client = pair
    old, new = await requester(client), await requester(client)
    assert (await reply(client)).code == ResponseCode.SUCCESS
    assert (len(old.asked), len(new.asked)) == (0, 1)
    await new.close()
    await until(lambda: len(pair[0].producers.members("RG")) == 1)
    assert (await reply(client)).code == ResponseCode.SUCCESS
    assert len(old.asked) == 1
    await old.close()


async def test_only_so_many_replies_wait_and_nothing_is_stored_when_switched_off(tmp_path: Path) -> None:
    changes: dict[str, Any] = {"reply_thread_pool_queue_capacity": 1, "store_reply_message_enable": False}
    async with running_broker(tmp_path, **changes) as (broker, client):
        waiting = await requester(client)
        assert (await reply(client)).ext_fields["msgId"] == "0"
        waiting.code = None
        channel = await client.remoting.channel(client.address)
        held = channel.request(RequestCode.SEND_REPLY_MESSAGE_V2, _header_to_requester(), b"answer", timeout_s=5)
        await until(lambda: len(waiting.asked) == 2)
        refused = await reply(client)
        assert refused.code == ResponseCode.SYSTEM_BUSY
        assert refused.remark == "[OVERLOAD]system busy, start flow control for a while"
        await waiting.close()
        assert (await held).code == ResponseCode.SYSTEM_ERROR
        later = await requester(client)
        assert (await reply(client)).code == ResponseCode.SUCCESS
        assert broker.store.max_offset(REPLY_TOPIC, 0) == 0
        await later.close()


async def test_reply_is_checked_as_a_send_is(tmp_path: Path) -> None:
    async with running_broker(tmp_path, start_accept_send_request_time_stamp=4_000_000_000_000) as (_, client):
        response = await reply(client)
        assert response.code == ResponseCode.SYSTEM_ERROR
        assert (response.remark or "").startswith("broker unable to service, until ")
    async with running_broker(tmp_path / "b") as (_, client):
        header = reply_header()
        header.topic = "SCHEDULE_TOPIC_XXXX"
        response = await client.ask(RequestCode.SEND_REPLY_MESSAGE_V2, header, b"x")
        assert response.code == ResponseCode.NO_PERMISSION
        header = reply_header()
        header.queue_id = 9
        response = await client.ask(RequestCode.SEND_REPLY_MESSAGE_V2, header, b"x")
        assert response.code == ResponseCode.INVALID_PARAMETER
