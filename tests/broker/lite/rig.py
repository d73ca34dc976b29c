"""What producers and consumers of lite topics do, over a socket."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from broker.server import Broker
from sprocket.remoting.bodies.group import SubscriptionGroupConfig
from sprocket.remoting.bodies.lite import (
    LiteSubscriptionAction,
    LiteSubscriptionCtlRequestBody,
    LiteSubscriptionDTO,
    OffsetOption,
)
from sprocket.remoting.codec.fastjson import dumps
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.command import ReceivedResponse
from sprocket.remoting.headers.lite import PopLiteMessageRequestHeader, PopLiteMessageResponseHeader
from sprocket.remoting.headers.pop import AckMessageRequestHeader, ChangeInvisibleTimeRequestHeader
from sprocket.remoting.message import properties as names
from sprocket.remoting.message.pop_extra_info import PopHandle
from store.record.record import Record, decode
from tests.broker.rig import TestClient, create, running_broker

PARENT = "Sessions"
GROUP = "LiteGroup"
LIGHT: dict[str, Any] = {"enable_lmq": True, "enable_multi_dispatch": True}


@dataclass(frozen=True)
class LiteMessage:
    """One popped message, with its handle as RocketMQ's client makes it."""

    lite: str
    body: bytes
    offset: int
    handle: str
    count: int  # earlier deliveries


@asynccontextmanager
async def lite_broker(
    root: Path, *, group: dict[str, str] | None = None, expiration: str = "-1", store: dict[str, Any] | None = None,
    **changes: Any,
) -> AsyncIterator[tuple[Broker, TestClient]]:  # fmt: skip
    """A broker with a parent topic and a group of its lite topics."""
    async with running_broker(root, store=LIGHT | (store or {}), **changes) as (broker, client):
        await create_parent(client, expiration)
        await create_group(client, **(group or {}))
        yield broker, client


async def create_parent(client: TestClient, expiration: str = "-1", topic: str = PARENT) -> None:
    attributes = f"+message.type=LITE,+lite.topic.expiration={expiration}"
    await client.ask_well(RequestCode.UPDATE_AND_CREATE_TOPIC, create(topic, attributes=attributes))


async def create_group(client: TestClient, name: str = GROUP, parent: str = PARENT, **attributes: str) -> None:
    changes = {"+lite.bind.topic": parent} | {
        f"+lite.{key.replace('_', '.')}": text for key, text in attributes.items()
    }
    config = SubscriptionGroupConfig(name, attributes=changes)
    await client.ask_well(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, dumps(config))


async def change_subscriptions(
    client: TestClient, client_id: str, action: str, *lites: str, option: OffsetOption | None = None,
    group: str = GROUP, topic: str = PARENT,
) -> ReceivedResponse:  # fmt: skip
    change = LiteSubscriptionDTO(LiteSubscriptionAction(action), client_id, group, topic, list(lites), option)
    return await client.ask(RequestCode.LITE_SUBSCRIPTION_CTL, None, dumps(LiteSubscriptionCtlRequestBody([change])))


async def subscribe(client: TestClient, client_id: str, *lites: str, **changes: Any) -> None:
    response = await change_subscriptions(client, client_id, "PARTIAL_ADD", *lites, **changes)
    assert response.code == ResponseCode.SUCCESS, (response.code, response.remark)


async def send_lite(client: TestClient, lite: str, body: bytes, topic: str = PARENT) -> None:
    await client.send(body, topic, **{names.LITE_TOPIC: lite})


def pop_header(client_id: str, **changes: Any) -> PopLiteMessageRequestHeader:
    header = PopLiteMessageRequestHeader(
        client_id=client_id, consumer_group=GROUP, topic=PARENT, max_msg_num=32, invisible_time=60_000, poll_time=0
    )
    return msgspec.structs.replace(header, **changes)


async def pop(client: TestClient, client_id: str, **changes: Any) -> ReceivedResponse:
    return await client.ask(RequestCode.POP_LITE_MESSAGE, pop_header(client_id, **changes))


async def popped(client: TestClient, client_id: str, **changes: Any) -> list[LiteMessage]:
    """The messages of one pop; none if it found none."""
    response = await pop(client, client_id, **changes)
    if response.code == ResponseCode.POLLING_TIMEOUT:
        return []
    assert response.code == ResponseCode.SUCCESS, (response.code, response.remark)
    return messages_of(response)


def messages_of(response: ReceivedResponse) -> list[LiteMessage]:
    header = response.header(PopLiteMessageResponseHeader)
    counts = [int(text) for text in (header.order_count_info or "").split(";")]
    found = []
    view, at = memoryview(response.body), 0
    while at < len(view):
        size = int.from_bytes(view[at : at + 4], "big")
        record = decode(view[at : at + size])
        assert isinstance(record, Record), record
        at += size
        properties = names.parse(bytes(record.properties).decode())
        offset = int(properties[names.INNER_MULTI_QUEUE_OFFSET])
        handle = PopHandle(0, header.pop_time, header.invisible_time, header.revive_qid, "0", "broker-a", 0, offset)
        lite, count = properties[names.LITE_TOPIC], counts[len(found)]
        found.append(LiteMessage(lite, bytes(record.body), offset, handle.encode(), count))
    assert len(counts) == len(found)
    return found


async def ack(client: TestClient, message: LiteMessage, **changes: Any) -> ReceivedResponse:
    header = AckMessageRequestHeader(
        consumer_group=GROUP, topic=PARENT, queue_id=0, extra_info=message.handle, offset=message.offset,
        lite_topic=message.lite,
    )  # fmt: skip
    return await client.ask(RequestCode.ACK_MESSAGE, msgspec.structs.replace(header, **changes))


async def change_invisible(
    client: TestClient, message: LiteMessage, invisible_ms: int, **changes: Any
) -> ReceivedResponse:
    header = ChangeInvisibleTimeRequestHeader(
        consumer_group=GROUP, topic=PARENT, queue_id=0, extra_info=message.handle, offset=message.offset,
        invisible_time=invisible_ms, lite_topic=message.lite,
    )  # fmt: skip
    return await client.ask(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, msgspec.structs.replace(header, **changes))
