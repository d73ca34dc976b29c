"""Transactions that are committed, and delayed messages that are due, after their logical queue has moved."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from broker.server import Broker
from sprocket.client.connection.topic_route import TopicRoute
from sprocket.client.send.queue_choice import BY_CONSISTENT_HASH, BY_HASH, CHOICES
from sprocket.remoting.bodies.client import MessageQueue
from sprocket.remoting.bodies.topic import SHARDING_QUEUES
from sprocket.remoting.client import RemotingClient
from sprocket.remoting.codes import RequestCode
from sprocket.remoting.headers.send import EndTransactionRequestHeader, SendMessageResponseHeader
from sprocket.remoting.message import properties as names
from sprocket.remoting.message.topic_names import FORWARD_GROUP, FORWARD_TOPIC
from store.record.record import Record
from tests.broker.auth.test_users import GUARDED, INNER
from tests.broker.insides import core_of
from tests.broker.rig import GROUP, TOPIC, create, running_broker
from tests.broker.rig import records as records_of
from tests.broker.static_topics.rig import A, B, Site, item, records, site
from tests.broker.static_topics.test_locks import locks
from tests.broker.test_sessions import STORE
from tests.send_headers import send_header
from tests.waiting import until

LOGIC = 10_000
TRANSACTION = {"TRAN_MSG": "true", "PGROUP": GROUP}


async def send(two: Site, body: bytes, named: dict[str, str], **changes: Any) -> SendMessageResponseHeader:
    """Send to logical queue 0 while broker a leads it."""
    text = f"UNIQ_KEY\x01{body.hex():0>32}\x02" + "".join(f"{name}\x01{value}\x02" for name, value in named.items())
    header = send_header(TOPIC, queue_id=0, properties=text, **changes)
    response = await two.clients[A].ask_well(RequestCode.SEND_MESSAGE_V2, header, body)
    return response.header(SendMessageResponseHeader)


async def commit(two: Site, half: SendMessageResponseHeader, number: int = 0) -> None:
    end = EndTransactionRequestHeader(
        producer_group=GROUP, tran_state_table_offset=number, commit_log_offset=int(half.msg_id[-16:], 16),
        commit_or_rollback=8, msg_id=half.msg_id,
    )  # fmt: skip
    await two.clients[A].ask_well(RequestCode.END_TRANSACTION, end)


@asynccontextmanager
async def again(root: Path, two: Site, name: str) -> AsyncIterator[Broker]:
    """Run a broker that was stopped."""
    running = running_broker(
        root / name, broker_name=name, namesrv_addr=two.name_server, auto_create_subscription_group=True
    )
    async with running as (broker, _):
        yield broker


async def pulled(two: Site, bname: str, offset: int) -> list[Record]:
    return records((await two.clients[bname].pull(offset=offset)).body)


def waits_at_leader(two: Site, bname: str, queue_id: int, count: int) -> Any:
    return until(lambda: two.brokers[bname].store.max_offset(TOPIC, queue_id) >= count)


async def test_a_transaction_is_committed_to_the_present_leader(tmp_path: Path) -> None:
    async with site(tmp_path, auto_create_subscription_group=True) as two:
        await two.created()
        half = await send(two, b"half", TRANSACTION, sys_flag=4)
        await two.remapped(LOGIC)
        await commit(two, half)
        await waits_at_leader(two, B, 1, 1)
        [record] = await pulled(two, B, LOGIC)
        assert bytes(record.body) == b"half"
        properties = names.parse(bytes(record.properties).decode())
        assert properties["UNIQ_KEY"] == f"{b'half'.hex():0>32}"
        assert "TRAN_MSG" not in properties and not record.sys_flag & 0xC
        assert two.brokers[A].store.max_offset(TOPIC, 0) == 0
        offsets = core_of(two.brokers[A]).offsets
        await until(lambda: 1 in offsets.queues(FORWARD_GROUP, FORWARD_TOPIC).values())


@pytest.mark.parametrize("named", [{"DELAY": "1"}, {"TIMER_DELAY_MS": "500"}])
async def test_a_delayed_message_goes_to_the_present_leader_when_it_is_due(
    tmp_path: Path, named: dict[str, str]
) -> None:
    async with site(tmp_path, auto_create_subscription_group=True) as two:
        await two.created()
        await send(two, b"later", named)
        await two.remapped(LOGIC)
        await waits_at_leader(two, B, 1, 1)
        [record] = await pulled(two, B, LOGIC)
        assert bytes(record.body) == b"later"
        assert two.brokers[A].store.max_offset(TOPIC, 0) == 0


async def test_a_message_for_a_queue_that_has_returned_goes_to_its_new_place(tmp_path: Path) -> None:
    async with site(tmp_path, auto_create_subscription_group=True) as two:
        await two.created()
        half = await send(two, b"half", TRANSACTION, sys_flag=4)
        await two.remapped(LOGIC)
        items = [item(0, 0, A, 0), item(1, 1, B, LOGIC), item(2, 1, A, 2 * LOGIC)]
        await two.put(A, {0: items}, epoch=3)
        await two.put(B, {0: items, 1: [item(0, 0, B, 0)]}, epoch=3)
        await commit(two, half)
        assert two.brokers[A].store.max_offset(TOPIC, 1) == 1
        assert records_of(two.brokers[A], FORWARD_TOPIC) == []


async def test_messages_wait_for_a_leader_that_is_away_in_their_order(tmp_path: Path) -> None:
    async with site(tmp_path, auto_create_subscription_group=True) as two:
        await two.created()
        halves = [await send(two, b"%d" % number, TRANSACTION, sys_flag=4) for number in range(5)]
        await two.remapped(LOGIC)
        await two.brokers[B].stop()
        for number, half in enumerate(halves):
            await commit(two, half, number)
        figures = await two.clients[A].ask_well(RequestCode.GET_BROKER_RUNTIME_INFO)
        assert b'"lateMessagesWaiting":"5"' in figures.body
        # They are in the log of broker a: a restart loses none.
        await two.brokers[A].stop()
        async with again(tmp_path, two, A), again(tmp_path, two, B) as b:
            await until(lambda: b.store.max_offset(TOPIC, 1) >= 5)
            assert [bytes(record.body) for record in records_of(b, TOPIC)] == [b"%d" % number for number in range(5)]


async def grows(two: Site, queues: int, attribute: str) -> None:
    """Give the plain topic so many queues on each broker."""
    header = create(read_queue_nums=queues, write_queue_nums=queues, attributes=attribute or None)
    for client in two.clients.values():
        await client.ask_well(RequestCode.UPDATE_AND_CREATE_TOPIC, header)


@pytest.mark.parametrize("named", [TRANSACTION, {"DELAY": "1"}, {"TIMER_DELAY_MS": "500"}])
@pytest.mark.parametrize("hashing", [BY_HASH, BY_CONSISTENT_HASH])
async def test_a_late_message_of_a_topic_that_has_grown_goes_where_its_key_goes_now(
    tmp_path: Path, named: dict[str, str], hashing: str
) -> None:
    publish = tuple(MessageQueue(TOPIC, name, number) for name in (A, B) for number in range(4))
    route = TopicRoute(TOPIC, publish, (), {})
    keys = (f"key-{number}" for number in range(1000))
    key, queue = next((key, queue) for key in keys if (queue := CHOICES[hashing](route, key)).broker_name == B)
    async with site(tmp_path, auto_create_subscription_group=True) as two:
        await grows(two, 1, "")
        own = {"__SHARDINGKEY": key, "INNER_SHARDING": hashing}
        sent = await send(two, b"late", named | own, sys_flag=4 if named is TRANSACTION else 0, sharding_queues=2)
        await grows(two, 4, f"+{SHARDING_QUEUES}=0")
        if named is TRANSACTION:
            await commit(two, sent)
        await until(lambda: len(records_of(two.brokers[A], FORWARD_TOPIC)) == 1)
        await grows(two, 4, f"+{SHARDING_QUEUES}=8")
        await waits_at_leader(two, B, queue.queue_id, 1)
        [record] = records_of(two.brokers[B], TOPIC)
        assert bytes(record.body) == b"late" and record.queue_id == queue.queue_id
        assert "INNER_SHARDING" not in names.parse(bytes(record.properties).decode())
        assert records_of(two.brokers[A], TOPIC) == []


async def test_a_late_message_that_the_new_queue_refuses_stays_in_the_old_one(tmp_path: Path) -> None:
    publish = tuple(MessageQueue(TOPIC, name, number) for name in (A, B) for number in range(4))
    route = TopicRoute(TOPIC, publish, (), {})
    keys = (f"key-{number}" for number in range(1000))
    key = next(key for key in keys if CHOICES[BY_HASH](route, key).broker_name == B)
    async with site(tmp_path, auto_create_subscription_group=True) as two:
        await grows(two, 1, "")
        own = {"__SHARDINGKEY": key, "INNER_SHARDING": BY_HASH, "TAGS": "red"}
        half = await send(two, bytes(1000), TRANSACTION | own, sys_flag=4, sharding_queues=2)
        await two.clients[B].ask_well(RequestCode.UPDATE_BROKER_CONFIG, body=b"maxMessageSize=100\n")
        await grows(two, 4, f"+{SHARDING_QUEUES}=8")
        await commit(two, half)
        await waits_at_leader(two, A, 0, 1)
        [record] = records_of(two.brokers[A], TOPIC)
        assert bytes(record.body) == bytes(1000)
        assert names.parse(bytes(record.properties).decode())["TAGS"] == "red"
        assert "INNER_SHARDING" not in names.parse(bytes(record.properties).decode())


async def test_a_client_chooses_no_place_for_messages_that_are_not_late(tmp_path: Path) -> None:
    async with site(tmp_path, auto_create_subscription_group=True) as two:
        await grows(two, 1, "")
        await send(two, b"now", {"INNER_SHARDING": BY_HASH, "REAL_TOPIC": "Other", "REAL_QID": "0"})
        [record] = records_of(two.brokers[A], TOPIC)
        assert "INNER_SHARDING" not in names.parse(bytes(record.properties).decode())


@pytest.mark.parametrize("named", [TRANSACTION, {"TIMER_DELAY_MS": "500"}])
async def test_a_late_message_with_a_key_goes_to_its_queue_if_the_topic_is_as_it_was(
    tmp_path: Path, named: dict[str, str]
) -> None:
    async with site(tmp_path, auto_create_subscription_group=True) as two:
        await grows(two, 1, "")
        own = {"__SHARDINGKEY": "key", "INNER_SHARDING": BY_HASH}
        sent = await send(two, b"late", named | own, sys_flag=4 if named is TRANSACTION else 0)
        if named is TRANSACTION:
            await commit(two, sent)
        await waits_at_leader(two, A, 0, 1)
        [record] = records_of(two.brokers[A], TOPIC)
        assert "INNER_SHARDING" not in names.parse(bytes(record.properties).decode())


async def test_clients_cannot_send_to_the_topic_of_late_messages(tmp_path: Path) -> None:
    async with site(tmp_path) as two:
        await two.created()
        await two.remapped(LOGIC)
        refused = await two.clients[A].ask(RequestCode.SEND_MESSAGE_V2, send_header(FORWARD_TOPIC), b"x")
        assert "is forbidden" in (refused.remark or "")


async def test_late_messages_and_locks_pass_access_control(tmp_path: Path) -> None:
    async with site(tmp_path, store=STORE, auto_create_subscription_group=True, **GUARDED) as two:
        plain = [client.remoting for client in two.clients.values()]
        for client in two.clients.values():
            client.remoting = RemotingClient(credentials=INNER)
            await client.heartbeat("other", TOPIC)
        await two.created()
        half = await send(two, b"half", TRANSACTION, sys_flag=4)
        assert await locks(two, A, "c1")
        await two.remapped(LOGIC)
        await commit(two, half)
        await waits_at_leader(two, B, 1, 1)
        assert not await locks(two, B, "c2")
        assert await locks(two, B, "c1")
        for remoting in plain:
            await remoting.close()
