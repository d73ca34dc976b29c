"""Each refused request of a running broker is counted under its reason, and operators see the counts."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from broker.config.broker_config import BrokerRole
from broker.server import Broker
from sprocket.common.errors import DiskFull, NoDescriptor, StoreBusy, StoreError
from sprocket.common.refusal_reasons import Reason
from sprocket.remoting.bodies.group import SubscriptionGroupConfig
from sprocket.remoting.bodies.stats import KVTable
from sprocket.remoting.client import RemotingClient
from sprocket.remoting.codec.fastjson import dumps, loads
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.credentials import Credentials
from sprocket.remoting.headers.client import GetConsumerConnectionListRequestHeader
from sprocket.remoting.headers.pop import PopMessageRequestHeader
from sprocket.remoting.headers.send import (
    ConsumerSendMsgBackRequestHeader,
    EndTransactionRequestHeader,
    RecallMessageRequestHeader,
)
from tests.broker.rig import GROUP, TOPIC, TestClient, create, running_broker
from tests.clock import ManualClock

Ask = Callable[[Broker, TestClient], Awaitable[object]]
NOW_MS = 1_700_000_000_000


@dataclass(frozen=True)
class Case:
    """A request, by `ask`, that a broker with `changes` refuses for `reason`."""

    reason: Reason
    ask: Ask
    changes: Mapping[str, Any] = field(default_factory=dict)
    store: Mapping[str, Any] = field(default_factory=dict)


async def send(_: Broker, client: TestClient, body: bytes = b"x", topic: str = TOPIC, queue_id: int = 0) -> None:
    with pytest.raises(AssertionError):
        await client.send(body, topic, queue_id)


def sending(**arguments: Any) -> Ask:
    return lambda broker, client: send(broker, client, **arguments)


async def pull(_: Broker, client: TestClient) -> None:
    assert (await client.pull(sys_flag=4)).code != ResponseCode.SUCCESS


async def pull_as_member(_: Broker, client: TestClient) -> None:
    assert (await client.pull(sys_flag=0)).code != ResponseCode.SUCCESS


def asking(code: RequestCode | int, header: Any = None, body: bytes = b"") -> Ask:
    async def ask(_: Broker, client: TestClient) -> None:
        assert (await client.ask(code, header, body)).code != ResponseCode.SUCCESS

    return ask


def with_topic(perm: int, then: Ask) -> Ask:
    async def ask(broker: Broker, client: TestClient) -> None:
        await client.ask_well(RequestCode.UPDATE_AND_CREATE_TOPIC, create(perm=perm))
        await then(broker, client)

    return ask


def with_group(then: Ask, **config: Any) -> Ask:
    async def ask(broker: Broker, client: TestClient) -> None:
        body = dumps(SubscriptionGroupConfig(GROUP, **config))
        await client.ask_well(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=body)
        await then(broker, client)

    return ask


async def broadcast(broker: Broker, client: TestClient) -> None:
    await client.heartbeat("c1", TOPIC, model="BROADCASTING")
    await pull_as_member(broker, client)


def when_store(error: StoreError) -> Ask:
    """A send while the store refuses with `error`."""

    async def ask(broker: Broker, client: TestClient) -> None:
        def refuse(messages: object) -> object:
            raise error

        broker.store.append = refuse  # type: ignore[method-assign, assignment]
        await send(broker, client)

    return ask


async def slow_write(broker: Broker, client: TestClient) -> None:
    broker.store.cleaner.pressure.append_was_slow(3_600.0)
    await send(broker, client)


async def lost_replicas(broker: Broker, client: TestClient) -> None:
    broker.store.cleaner.pressure.replicas_changed(is_refusing=True)
    await send(broker, client)


async def hidden_log(broker: Broker, client: TestClient) -> None:
    broker.role.recover(True, hides_log=True)
    await pull(broker, client)
    broker.role.recover(False)


async def broken_handler(broker: Broker, client: TestClient) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("a bug")

    broker.pulls.planner.plan = broken  # type: ignore[method-assign, assignment]
    await pull(broker, client)


BACK = ConsumerSendMsgBackRequestHeader(offset=999_999, group=GROUP, delay_level=0)
END = EndTransactionRequestHeader(
    producer_group="PG", tran_state_table_offset=0, commit_log_offset=0, commit_or_rollback=8, msg_id="0"
)
POP = PopMessageRequestHeader(
    consumer_group=GROUP, topic=TOPIC, queue_id=0, max_msg_nums=1, invisible_time=1000, poll_time=0, born_time=1,
    init_mode=0,
)  # fmt: skip
POP_NOW = structs.replace(POP, born_time=NOW_MS)
RECALL = RecallMessageRequestHeader(producer_group="PG", topic=TOPIC, recall_handle="x")
SLAVE = {"broker_id": 1, "broker_role": BrokerRole.SLAVE}
LATER = {"start_accept_send_request_time_stamp": NOW_MS + 1_000}
send_back = asking(RequestCode.CONSUMER_SEND_MSG_BACK, BACK)
CASES = [
    Case(Reason.CODE_NOT_SUPPORTED, asking(7777)),
    Case(Reason.INVALID_HEADER, asking(RequestCode.PULL_MESSAGE)),
    Case(Reason.SLAVE, send, SLAVE),
    Case(Reason.SLAVE, asking(RequestCode.END_TRANSACTION, END), SLAVE),
    Case(Reason.SLAVE, asking(RequestCode.UPDATE_AND_CREATE_TOPIC, create()), SLAVE),
    Case(Reason.SLAVE, pull, SLAVE | {"slave_read_enable": False}),
    Case(Reason.MASTER_WAITS, hidden_log, {"broker_role": BrokerRole.SYNC_MASTER}),
    Case(Reason.NOT_READY, send, LATER),
    Case(Reason.TURNED_OFF, asking(RequestCode.RECALL_MESSAGE, RECALL)),
    Case(Reason.TURNED_OFF, asking(RequestCode.POP_MESSAGE, POP_NOW), store={"timer_wheel_enable": False}),
    Case(Reason.DISK_FULL, when_store(DiskFull("full"))),
    Case(Reason.NO_DESCRIPTOR, when_store(NoDescriptor("none left"))),
    Case(Reason.PAGE_CACHE_BUSY, slow_write),
    Case(Reason.FLUSH_BEHIND, when_store(StoreBusy("behind", Reason.FLUSH_BEHIND))),
    Case(Reason.REPLICAS_NOT_ENOUGH, lost_replicas),
    Case(Reason.TOPIC_NOT_EXIST, send, {"auto_create_topic_enable": False}),
    Case(Reason.TOPIC_NOT_EXIST, pull),
    Case(Reason.TOPIC_NOT_WRITABLE, with_topic(4, send)),
    Case(Reason.TOPIC_NOT_READABLE, with_topic(2, pull)),
    Case(Reason.SYSTEM_TOPIC, sending(topic="SCHEDULE_TOPIC_XXXX")),
    Case(Reason.QUEUE_NOT_EXIST, with_topic(6, sending(queue_id=99))),
    Case(Reason.BROKER_NOT_WRITABLE, with_group(send_back), {"broker_permission": 4}),
    Case(Reason.BROKER_NOT_READABLE, pull, {"broker_permission": 2}),
    Case(Reason.GROUP_NOT_EXIST, pull, {"auto_create_subscription_group": False}),
    Case(Reason.GROUP_DISABLED, with_topic(6, with_group(pull, consume_enable=False))),
    Case(Reason.GROUP_FORBIDDEN, with_topic(6, with_group(broadcast, consume_broadcast_enable=False))),
    Case(Reason.SUBSCRIPTION, with_topic(6, pull_as_member)),
    Case(
        Reason.CLIENT_NOT_ONLINE,
        asking(
            RequestCode.GET_CONSUMER_CONNECTION_LIST, GetConsumerConnectionListRequestHeader(consumer_group="nobody")
        ),
    ),
    Case(Reason.MESSAGE_TOO_LARGE, sending(body=bytes(2_000)), store={"max_message_size": 1_000}),
    Case(Reason.MESSAGE_ILLEGAL, sending(body=b"")),
    Case(Reason.TRANSACTION_ENDED, asking(RequestCode.END_TRANSACTION, END)),
    Case(Reason.TOO_LATE, asking(RequestCode.POP_MESSAGE, POP)),
    Case(Reason.INVALID_BODY, asking(RequestCode.HEART_BEAT, body=b"{")),
    Case(Reason.INVALID_PARAMETER, asking(RequestCode.UPDATE_AND_CREATE_TOPIC, create("a/b"))),
    Case(Reason.NOT_FOUND, with_group(send_back)),
    Case(Reason.BUG, broken_handler),
]  # fmt: skip


async def counts(client: TestClient) -> dict[str, str]:
    info = loads((await client.ask_well(RequestCode.GET_BROKER_RUNTIME_INFO)).body, KVTable).table
    return {name: value for name, value in info.items() if name.startswith("requestsRefused")}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.reason.name)
async def test_a_refused_request_is_counted_once(tmp_path: Path, case: Case) -> None:
    async with running_broker(tmp_path, clock=ManualClock(NOW_MS), store=dict(case.store), **case.changes) as (
        broker,
        client,
    ):
        assert await counts(client) == {"requestsRefused": "0"}
        await case.ask(broker, client)
        found = await counts(client)
    assert (found["requestsRefused"], found.get(f"requestsRefused_{case.reason.name.lower()}")) == ("1", "1"), found
    assert [count for name, count in found.items() if name.startswith("requestsRefusedOf_")] == ["1"]


async def test_what_is_served_is_not_counted(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as (_, client):
        await client.send()
        assert (await client.pull()).code == ResponseCode.SUCCESS
        assert (await client.pull(offset=1)).code == ResponseCode.PULL_NOT_FOUND
        assert await counts(client) == {"requestsRefused": "0"}


async def test_access_control_counts_by_what_was_wrong(tmp_path: Path) -> None:
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "plain_acl.yml").write_text(
        "accounts:\n"
        "  - {accessKey: Administrator, secretKey: secret-of-admin, admin: true}\n"
        "  - {accessKey: SomeReader, secretKey: secret-of-reader, defaultTopicPerm: SUB, defaultGroupPerm: SUB}\n"
    )
    limits = {"auth_failures_per_second": 1, "auth_failures_burst": 2}
    changes: dict[str, Any] = {"acl_enable": True, "rocketmq_home": str(tmp_path), **limits}
    async with running_broker(tmp_path, clock=ManualClock(NOW_MS), **changes) as (broker, _):
        wrong = Credentials("Administrator", "secret-of-nobody")
        for credentials in (Credentials("SomeReader", "secret-of-reader"), wrong, wrong, wrong):
            client = RemotingClient(credentials=credentials)
            assert (await client.invoke(broker.address, RequestCode.GET_BROKER_CONFIG)).code != ResponseCode.SUCCESS
            await client.close()
        assert broker.routes.refusals.by_reason == {
            Reason.ACCESS_DENIED: 1,
            Reason.WRONG_SIGNATURE: 2,
            Reason.LOCKED_OUT: 1,
        }
