"""A master acknowledges only while it holds its lease."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from sprocket.client.admin.admin_client import AdminClient, AdminError
from sprocket.common.figures import values
from sprocket.common.refusal_reasons import Reason
from sprocket.remoting.bodies.schedule import Schedule
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.command import ReceivedResponse
from sprocket.remoting.headers.auth import UserRequestHeader
from sprocket.remoting.headers.pop import PopMessageRequestHeader
from sprocket.remoting.headers.send import ConsumerSendMsgBackRequestHeader, EndTransactionRequestHeader
from sprocket.remoting.message.properties import encode
from store.config.store_config import FlushDiskType
from tests.broker.controller.rig import Group, group
from tests.broker.rig import GROUP, TOPIC, TestClient, bodies_in_order, create
from tests.send_headers import send_header
from tests.store.rig import FaultyDisk
from tests.waiting import until


async def send(client: TestClient, body: bytes, **properties: str) -> ReceivedResponse:
    text = encode({"UNIQ_KEY": "0A000001000000000000000000000001"} | properties)
    return await client.ask(RequestCode.SEND_MESSAGE_V2, send_header(TOPIC, queue_id=0, flag=7, properties=text), body)


async def send_back(client: TestClient) -> ReceivedResponse:
    header = ConsumerSendMsgBackRequestHeader(offset=0, group=GROUP, delay_level=3, origin_topic=TOPIC)
    return await client.ask(RequestCode.CONSUMER_SEND_MSG_BACK, header)


async def end_transaction(client: TestClient) -> ReceivedResponse:
    header = EndTransactionRequestHeader(
        producer_group="P", tran_state_table_offset=0, commit_log_offset=0, commit_or_rollback=8, msg_id="m"
    )
    return await client.ask(RequestCode.END_TRANSACTION, header)


async def pop(client: TestClient) -> ReceivedResponse:
    header = PopMessageRequestHeader(
        consumer_group=GROUP, topic=TOPIC, queue_id=0, max_msg_nums=1, invisible_time=1_000, poll_time=0, born_time=0,
        init_mode=0,
    )  # fmt: skip
    return await client.ask(RequestCode.POP_MESSAGE, header)


async def create_topic(client: TestClient) -> ReceivedResponse:
    return await client.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, create("Other"))


async def create_user(client: TestClient) -> ReceivedResponse:
    return await client.ask(RequestCode.AUTH_CREATE_USER, UserRequestHeader(username="teller"))


WRITES: dict[str, Callable[[TestClient], Awaitable[ReceivedResponse]]] = {
    "send": lambda client: send(client, b"x"),
    "send back": send_back,
    "end of a transaction": end_transaction,
    "pop": pop,
    "topic": create_topic,
    "user": create_user,
}


@pytest.mark.parametrize("write", list(WRITES))
async def test_without_a_lease_writes_are_refused_and_reads_served(tmp_path: Path, write: str) -> None:
    async with group(tmp_path, 1) as it:
        await it.elect(1)
        replica, client = it[1], it[1].client
        await client.send(b"before")
        end = replica.broker.store.wrote_offset
        replica.border.lease.given_up()
        answer = await WRITES[write](client)
        assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE and "send again" in (answer.remark or "")
        counted = values(replica.broker.process.refusals.figures())
        assert counted[f"requestsRefused_{Reason.NO_LEASE.name.lower()}"] == "1"
        assert replica.broker.store.wrote_offset == end
        assert (await client.pull()).code == ResponseCode.SUCCESS
        replica.grant()
        await client.send(b"after")
        await client.close()


async def test_an_operators_change_is_sent_again_until_there_is_a_lease(tmp_path: Path) -> None:
    async with group(tmp_path, 1) as it, AdminClient("127.0.0.1:1") as admin:
        await it.elect(1)
        replica = it[1]
        address, code, header = replica.broker.address, RequestCode.UPDATE_AND_CREATE_TOPIC, create("Other")
        replica.border.lease.given_up()
        with pytest.raises(AdminError, match="no controller has confirmed this master lately"):
            await admin.ask(address, code, header, timeout_s=3.0)
        change = asyncio.create_task(admin.ask(address, code, header, timeout_s=60.0))
        await until(lambda: replica.broker.process.refusals.by_reason[Reason.NO_LEASE] > 1)
        replica.grant()
        await change
        assert replica.broker.topics.get("Other") is not None


async def test_a_lease_ends_with_its_time(tmp_path: Path) -> None:
    async with group(tmp_path, 1) as it:
        await it.elect(1)
        replica, client = it[1], it[1].client
        replica.border.lease.given_up()
        replica.grant(10.0)
        await client.send()
        replica.now_s = 10.0
        assert (await send(client, b"late")).code == ResponseCode.SERVICE_NOT_AVAILABLE
        await client.close()


MODES: dict[str, dict[str, Any]] = {
    "slaves": {"in_sync_replicas": 2, "slave_timeout": 60_000},
    "disk": {"flush_disk_type": FlushDiskType.SYNC_FLUSH},
    "neither": {},
}


async def _appended(it: Group, client: TestClient, body: bytes, **properties: str) -> "asyncio.Task[ReceivedResponse]":
    """Send, and wait until the master has appended the message; its lease ends in that moment."""
    replica = it[1]
    replica.broker.store.master_log().on_append.append(replica.border.lease.given_up)
    end = replica.broker.store.wrote_offset
    task = asyncio.create_task(send(client, body, **properties))
    await until(lambda: replica.broker.store.wrote_offset > end)
    return task


SCHEDULE = Schedule(name="nightly", topic=TOPIC, body=b"go", every_millis=3_600_000)
# After the change they are refused: "exists already", "has no schedule".
CHANGES: dict[str, Callable[[AdminClient, str], Awaitable[None]]] = {
    "trigger": lambda admin, broker: admin.trigger_schedule(broker, TOPIC, "nightly"),
    "set": lambda admin, broker: admin.set_schedule(broker, msgspec.structs.replace(SCHEDULE, name="hourly")),
    "delete": lambda admin, broker: admin.delete_schedule(broker, TOPIC, "nightly"),
}


@pytest.mark.parametrize("change", list(CHANGES))
async def test_a_change_that_was_made_is_not_made_again(tmp_path: Path, change: str) -> None:
    async with group(tmp_path, store=MODES["slaves"]) as it, AdminClient("127.0.0.1:1", timeout_s=60.0) as admin:
        await it.elect(1)
        replica, client = it[1], it[1].client
        broker, refused = replica.broker, replica.broker.process.refusals.by_reason
        await client.ask_well(RequestCode.UPDATE_AND_CREATE_TOPIC, create())
        await until(lambda: broker.replication.replicas.in_sync_slaves())
        await admin.set_schedule(broker.address, SCHEDULE)
        on_append, given_up = broker.store.master_log().on_append, replica.border.lease.given_up
        on_append.append(given_up)
        task = asyncio.create_task(CHANGES[change](admin, broker.address))
        await until(lambda: refused[Reason.NO_LEASE] == 1)
        on_append.remove(given_up)
        replica.grant()
        with pytest.raises(AdminError, match="may have been done"):
            await task
        assert bodies_in_order(broker, TOPIC) == ([b"go"] if change == "trigger" else [])
        names = {"trigger": ["nightly"], "set": ["hourly", "nightly"], "delete": []}[change]
        assert [state.schedule.name for state in await admin.schedules(broker.address)] == names
        await client.close()


@pytest.mark.parametrize("is_hasty", [False, True])
@pytest.mark.parametrize("mode", list(MODES))
async def test_what_was_appended_is_not_acknowledged_after_the_lease(tmp_path: Path, mode: str, is_hasty: bool) -> None:
    async with group(tmp_path, store=MODES[mode]) as it:
        await it.elect(1)
        client = it[1].client
        await client.ask_well(RequestCode.UPDATE_AND_CREATE_TOPIC, create())
        await until(lambda: it[1].broker.replication.replicas.in_sync_slaves())
        properties = {"WAIT": "false"} if is_hasty else {}
        answer = await (await _appended(it, client, b"x", **properties))
        assert (answer.code, answer.remark) != (ResponseCode.SUCCESS, None)
        assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert bodies_in_order(it[1].broker, TOPIC) == [b"x"]
        await client.close()


async def test_a_change_of_the_role_answers_what_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with group(tmp_path, store={"in_sync_replicas": 2, "slave_timeout": 60_000}) as it:
        await it.elect(1)
        client = it[1].client
        await client.ask_well(RequestCode.UPDATE_AND_CREATE_TOPIC, create())
        await until(lambda: it[1].broker.replication.replicas.in_sync_slaves())
        following = it[2].broker.following
        assert following is not None and following.follower.connection is not None
        # The slave lives, and takes nothing.
        monkeypatch.setattr(following.follower.connection.link, "received", lambda data, now: b"")
        task = asyncio.create_task(send(client, b"x"))
        await until(lambda: len(it[1].broker.waits) == 1)
        await it[1].border.switch.rest()
        assert (await task).code == ResponseCode.SERVICE_NOT_AVAILABLE
        await client.close()


async def test_the_last_flush_of_a_replaced_master_acknowledges_nothing(tmp_path: Path) -> None:
    disk, is_replaced = FaultyDisk(), threading.Event()
    async with group(tmp_path, 1, store={"flush_disk_type": FlushDiskType.SYNC_FLUSH}, disk=disk) as it:
        await it.elect(1)
        client = it[1].client
        await client.ask_well(RequestCode.UPDATE_AND_CREATE_TOPIC, create())
        await client.send(b"acknowledged")
        disk.before_sync = lambda path: None if "config" in path.parts else bool(is_replaced.wait(30)) and None
        task = asyncio.create_task(send(client, b"x"))
        await until(lambda: len(it[1].broker.waits) == 1)
        asyncio.get_running_loop().call_later(0.05, is_replaced.set)
        await it[1].border.switch.rest()
        assert (await task).code == ResponseCode.SERVICE_NOT_AVAILABLE
        # It is stored, which is for the next master to decide about.
        assert bodies_in_order(it[1].broker, TOPIC) == [b"acknowledged", b"x"]
        await client.close()
