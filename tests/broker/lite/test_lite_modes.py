"""Lite topics beside synchronous flush, transactions, delays and a slave."""

from pathlib import Path

from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.headers.send import EndTransactionRequestHeader, SendMessageResponseHeader
from sprocket.remoting.message import properties as names
from sprocket.remoting.message.lite_topics import lite_queue
from store.config.store_config import FlushDiskType
from tests.broker.group_rig import cluster
from tests.broker.lite.rig import (
    LIGHT,
    PARENT,
    create_group,
    create_parent,
    lite_broker,
    pop,
    popped,
    send_lite,
    subscribe,
)
from tests.waiting import until


async def test_a_lite_message_waits_for_the_flush_and_then_wakes_the_pop(tmp_path: Path) -> None:
    async with lite_broker(tmp_path, store={"flush_disk_type": FlushDiskType.SYNC_FLUSH}) as (_, client):
        await subscribe(client, "c1", "s1")
        await send_lite(client, "s1", b"safe")
        assert [m.body for m in await popped(client, "c1", poll_time=10_000)] == [b"safe"]


async def test_a_half_message_enters_its_lite_topic_with_the_commit(tmp_path: Path) -> None:
    async with lite_broker(tmp_path) as (_, client):
        await subscribe(client, "c1", "s1")
        sent: SendMessageResponseHeader = await client.send(
            b"half", PARENT, **{names.LITE_TOPIC: "s1", "TRAN_MSG": "true", "PGROUP": "PG"}
        )
        assert await popped(client, "c1") == []
        half_offset = int(sent.msg_id[-16:], 16)
        end = EndTransactionRequestHeader(
            topic=PARENT, producer_group="PG", tran_state_table_offset=sent.queue_offset,
            commit_log_offset=half_offset, commit_or_rollback=8, from_transaction_check=False, msg_id="",
        )  # fmt: skip
        await client.ask_well(RequestCode.END_TRANSACTION, end)
        assert [m.body for m in await popped(client, "c1", poll_time=10_000)] == [b"half"]


async def test_a_delayed_message_enters_its_lite_topic_when_it_is_due(tmp_path: Path) -> None:
    async with lite_broker(tmp_path, store={"message_delay_level": "1s 2s"}) as (_, client):
        await subscribe(client, "c1", "s1")
        await client.send(b"later", PARENT, **{names.LITE_TOPIC: "s1", "DELAY": "1"})
        assert await popped(client, "c1") == []
        assert [m.body for m in await popped(client, "c1", poll_time=20_000)] == [b"later"]


async def test_a_slave_has_the_lite_topics_and_serves_no_pops_of_them(tmp_path: Path) -> None:
    async with cluster(tmp_path) as group:
        master = await group.start("broker-a", store=LIGHT)
        slave = await group.start("broker-a", 1, store=LIGHT)
        client, at_slave = group.client(master), group.client(slave)
        await create_parent(client)
        await create_group(client)
        await subscribe(client, "c1", "s1")
        await send_lite(client, "s1", b"a")
        assert [m.body for m in await popped(client, "c1")] == [b"a"]
        await until(lambda: slave.store.max_offset(lite_queue(PARENT, "s1"), 0) == 1)
        assert (await pop(at_slave, "c1")).code == ResponseCode.SERVICE_NOT_AVAILABLE
