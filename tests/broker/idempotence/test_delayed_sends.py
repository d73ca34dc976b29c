"""Delayed messages with an id: they are recognised while they wait and after their delivery, and delivered once."""

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from broker.idempotence.log_ids import WAITING_TOPICS
from broker.server import Broker
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.command import ReceivedResponse
from sprocket.remoting.headers.send import RecallMessageRequestHeader, SendMessageResponseHeader
from sprocket.remoting.message.properties import IDEMPOTENCE_ID, encode
from sprocket.remoting.message.topic_names import SCHEDULE_TOPIC, TIMER_TOPIC
from tests.broker.rig import TOPIC, TestClient, running_broker, stored
from tests.send_headers import send_header
from tests.waiting import until

LEVEL = {"DELAY": "1"}  # 1 s
TIMER = {"TIMER_DELAY_MS": "1500"}
FAR = {"TIMER_DELAY_SEC": "3600"}


async def send(client: TestClient, id_: str, key: str = "K1", queue_id: int = 1, **more: str) -> ReceivedResponse:
    """Send a message with an id."""
    text = encode({"UNIQ_KEY": key, IDEMPOTENCE_ID: id_} | more)
    header = send_header(TOPIC, queue_id=queue_id, properties=text)
    answer = await client.ask(RequestCode.SEND_MESSAGE_V2, header, b"later")
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    return answer


def place_of(answer: ReceivedResponse) -> tuple[str, int, int, str | None, str | None]:
    """What a producer learns of the place; the rest of the id is the broker's address."""
    header = answer.header(SendMessageResponseHeader)
    return header.msg_id[-16:], header.queue_id, header.queue_offset, header.transaction_id, header.recall_handle


def duplicates(answer: ReceivedResponse) -> int:
    return int(answer.ext_fields["duplicates"])


def waiting(broker: Broker) -> int:
    """Number of messages that were ever put off."""
    return sum(broker.store.max_offset(topic, 0) for topic in WAITING_TOPICS)


@pytest.mark.parametrize("delay", [LEVEL, TIMER], ids=["level", "timer"])
async def test_it_is_stored_once_and_delivered_once(tmp_path: Path, delay: dict[str, str]) -> None:
    async with running_broker(tmp_path) as (broker, client):
        first = await send(client, "a", **delay)
        again = await send(client, "a", "K2", 0, **delay)
        assert (duplicates(first), duplicates(again)) == (0, 1)
        assert place_of(again) == place_of(first)
        assert first.header(SendMessageResponseHeader).queue_id == 1
        # Without a delay it is the same message.
        assert place_of(await send(client, "a")) == place_of(first)
        assert (waiting(broker), broker.store.max_offset(TOPIC, 1)) == (1, 0)
        await until(lambda: broker.store.max_offset(TOPIC, 1) == 1)
        delivered = stored(broker, TOPIC, 1, 0)
        assert (bytes(delivered.body), IDEMPOTENCE_ID.encode() in bytes(delivered.properties)) == (b"later", False)
        assert duplicates(await send(client, "a", **delay)) == 1
        # A message after it is delivered after it: no copy came between.
        await send(client, "b", **delay)
        await until(lambda: broker.store.max_offset(TOPIC, 1) == 2)
        assert waiting(broker) == 2


@pytest.mark.parametrize("delay", [LEVEL, TIMER, FAR], ids=["level", "timer", "far"])
async def test_the_log_gives_the_same_window(tmp_path: Path, delay: dict[str, str]) -> None:
    async with running_broker(tmp_path) as (broker, client):
        first = place_of(await send(client, "a", **delay))
        if delay is not FAR:
            await until(lambda: broker.store.max_offset(TOPIC, 1) == 1)
    async with running_broker(tmp_path) as (broker, client):
        answers = await asyncio.gather(*(send(client, "a", **delay) for _ in range(3)))
        # The handle names the broker's own name, which is the same here.
        assert [(place_of(answer), duplicates(answer)) for answer in answers] == [(first, 1)] * 3
        assert waiting(broker) == 1


async def test_delivery_does_not_prolong_the_window(tmp_path: Path) -> None:
    changes: dict[str, Any] = {"idempotence_window_ms": 1000}
    async with running_broker(tmp_path, **changes) as (broker, client):
        sent_at = time.monotonic()
        await send(client, "a", **TIMER)
        await until(lambda: broker.store.max_offset(TOPIC, 1) == 1)
        await asyncio.sleep(max(sent_at + 1.05 - time.monotonic(), 0))
        delivered = broker.store.max_offset(TOPIC, 1)
    async with running_broker(tmp_path, **changes) as (broker, client):
        # Its copy is in the log too, and younger than the window perhaps; it has no id.
        assert duplicates(await send(client, "a")) == 0
        assert broker.store.max_offset(TOPIC, 1) == delivered + 1


async def test_a_repeated_send_tells_the_handle_that_recalls_the_first(tmp_path: Path) -> None:
    async with running_broker(tmp_path, recall_message_enable=True) as (broker, client):
        first = await send(client, "a", "KA", TIMER_DELAY_MS="4000")
        again = await send(client, "a", TIMER_DELAY_MS="60000")
        handle = again.header(SendMessageResponseHeader).recall_handle
        assert handle == first.header(SendMessageResponseHeader).recall_handle
        await client.ask_well(
            RequestCode.RECALL_MESSAGE,
            RecallMessageRequestHeader(producer_group="PG", topic=TOPIC, recall_handle=handle),
        )
        await send(client, "b", "KB", TIMER_DELAY_MS="6000")
        await until(lambda: broker.store.max_offset(TOPIC, 1) == 1)
        assert b"UNIQ_KEY\x01KB\x02" in bytes(stored(broker, TOPIC, 1, 0).properties)
        assert duplicates(await send(client, "a")) == 1  # recalled, and still known


async def test_a_rolled_message_counts_where_it_came_in(tmp_path: Path) -> None:
    """A wheel of few slots puts a message off several times; each time is a record of the wheel's topic."""
    store = {"timer_roll_window_slot": 2, "timer_precision_ms": 1000}
    async with running_broker(tmp_path, store=store) as (broker, client):
        first = place_of(await send(client, "a", TIMER_DELAY_MS="5000"))
        await until(lambda: broker.store.max_offset(TIMER_TOPIC, 0) > 1)
        rolled = stored(broker, TIMER_TOPIC, 0, 1)
        assert IDEMPOTENCE_ID.encode() not in bytes(rolled.properties)
        assert place_of(await send(client, "a")) == first
        await until(lambda: broker.store.max_offset(TOPIC, 1) == 1)
        assert broker.store.max_offset(SCHEDULE_TOPIC, 0) == 0
