"""Every kind of send to a logical queue: what is stored where, and what the response says."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from sprocket.remoting.codes import RequestCode
from sprocket.remoting.headers.pop import PopMessageRequestHeader
from sprocket.remoting.headers.send import (
    ConsumerSendMsgBackRequestHeader,
    EndTransactionRequestHeader,
    SendMessageResponseHeader,
)
from tests.broker.rig import GROUP, TOPIC, bodies_in_order
from tests.broker.static_topics.rig import B, Site, records, site
from tests.send_headers import client_batch, send_header
from tests.waiting import until

LOGIC = 10_000


@pytest.fixture(name="two")
async def two_brokers(tmp_path: Path) -> AsyncIterator[Site]:
    """Logical queue 0 is queue 1 of broker b, from the logical offset 10,000 on."""
    async with site(tmp_path, auto_create_subscription_group=True) as two:
        await two.created()
        await two.remapped(LOGIC)
        yield two


def header(**changes: Any) -> Any:
    text = "UNIQ_KEY\x010A000001000000000000000000000001\x02"
    properties = text + "".join(f"{name}\x01{value}\x02" for name, value in changes.pop("named", {}).items())
    return send_header(TOPIC, queue_id=0, properties=properties, **changes)


async def test_sends_in_one_read_have_offsets_in_order(two: Site) -> None:
    answers = await asyncio.gather(*(two.clients[B].send(b"%d" % number) for number in range(50)))
    assert sorted(answer.queue_offset for answer in answers) == list(range(LOGIC, LOGIC + 50))
    assert {answer.queue_id for answer in answers} == {0}
    assert two.brokers[B].store.max_offset(TOPIC, 1) == 50


async def test_a_batch_is_answered_with_its_first_logical_offset(two: Site) -> None:
    await two.clients[B].send(b"before")
    body = client_batch((0, b"one", b""), (0, b"two", b""))
    response = await two.clients[B].ask_well(RequestCode.SEND_BATCH_MESSAGE, header(batch=True), body)
    shown = response.header(SendMessageResponseHeader)
    assert (shown.queue_id, shown.queue_offset) == (0, LOGIC + 1)
    assert bodies_in_order(two.brokers[B], TOPIC) == [b"before", b"one", b"two"]


async def test_a_delayed_message_arrives_in_the_physical_queue(two: Site) -> None:
    asked = header(named={"DELAY": "1"})
    answer = await two.clients[B].ask_well(RequestCode.SEND_MESSAGE_V2, asked, b"later")
    assert answer.header(SendMessageResponseHeader).queue_id == 0
    await until(lambda: two.brokers[B].store.max_offset(TOPIC, 1) == 1)


async def test_a_transaction_ends_in_the_physical_queue(two: Site) -> None:
    client = two.clients[B]
    asked = header(sys_flag=4, named={"TRAN_MSG": "true", "PGROUP": GROUP})
    half = (await client.ask_well(RequestCode.SEND_MESSAGE_V2, asked, b"half")).header(SendMessageResponseHeader)
    assert half.queue_id == 0
    assert two.brokers[B].store.max_offset(TOPIC, 1) == 0
    end = EndTransactionRequestHeader(
        producer_group=GROUP, tran_state_table_offset=0, commit_log_offset=int(half.msg_id[-16:], 16),
        commit_or_rollback=8, msg_id=half.msg_id,
    )  # fmt: skip
    await client.ask_well(RequestCode.END_TRANSACTION, end)
    assert two.brokers[B].store.max_offset(TOPIC, 1) == 1


async def test_a_message_that_a_consumer_returns_is_found(two: Site) -> None:
    client = two.clients[B]
    sent = await client.send(b"again")
    await client.pull(offset=LOGIC)  # makes the group
    back = ConsumerSendMsgBackRequestHeader(
        offset=int(sent.msg_id[-16:], 16), group=GROUP, delay_level=1, origin_topic=TOPIC
    )
    await client.ask_well(RequestCode.CONSUMER_SEND_MSG_BACK, back)


async def test_a_priority_chooses_no_logical_queue(two: Site) -> None:
    await two.clients[B].ask_well(RequestCode.SEND_MESSAGE_V2, header(named={"_SYS_MSG_PRIORITY_": "0"}), b"urgent")
    assert two.brokers[B].store.max_offset(TOPIC, 1) == 1


async def test_a_repeated_message_is_answered_with_the_place_of_the_first(two: Site) -> None:
    client = two.clients[B]
    await client.send(b"before")
    asked = header(named={"INNER_IDEMPOTENCE_ID": "one"})
    places = []
    for _ in range(2):
        response = await client.ask_well(RequestCode.SEND_MESSAGE_V2, asked, b"once")
        shown = response.header(SendMessageResponseHeader)
        places.append((shown.queue_id, shown.queue_offset))
    assert places == [(0, LOGIC + 1)] * 2
    assert two.brokers[B].store.max_offset(TOPIC, 1) == 2


async def test_a_repeated_message_of_a_batch_is_stored_once(two: Site) -> None:
    body = client_batch((0, b"one", b"INNER_IDEMPOTENCE_ID\x01a\x02"), (0, b"two", b"INNER_IDEMPOTENCE_ID\x01b\x02"))
    for _ in range(2):
        response = await two.clients[B].ask_well(RequestCode.SEND_BATCH_MESSAGE, header(batch=True), body)
        shown = response.header(SendMessageResponseHeader)
        assert (shown.queue_id, shown.queue_offset) == (0, LOGIC)
    assert two.brokers[B].store.max_offset(TOPIC, 1) == 2


async def test_a_pop_reads_the_physical_queues(two: Site) -> None:
    client = two.clients[B]
    await client.send(b"popped")
    asked = PopMessageRequestHeader(
        consumer_group=GROUP, topic=TOPIC, queue_id=-1, max_msg_nums=8, invisible_time=60_000, poll_time=0,
        born_time=two.brokers[B].clock.wall_ms(), init_mode=0, exp_type="TAG", exp="*",
    )  # fmt: skip
    response = await client.ask_well(RequestCode.POP_MESSAGE, asked)
    (record,) = records(response.body)
    assert (bytes(record.body), record.queue_id, record.queue_offset) == (b"popped", 1, 0)
