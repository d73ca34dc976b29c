"""A slave writes nothing of its own: not to its log, not to the tables that are its master's."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from broker.config.broker_config import BrokerRole
from broker.server import Broker
from sprocket.remoting.bodies.group import SubscriptionGroupConfig
from sprocket.remoting.codec.fastjson import dumps
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.headers.admin import DeleteTopicRequestHeader
from sprocket.remoting.headers.base import Header
from sprocket.remoting.headers.pop import AckMessageRequestHeader, PopMessageRequestHeader
from sprocket.remoting.headers.send import (
    ConsumerSendMsgBackRequestHeader,
    EndTransactionRequestHeader,
    RecallMessageRequestHeader,
)
from tests.broker.rig import GROUP, TOPIC, TestClient, create, running_broker

SLAVE = {"broker_id": 1, "broker_role": BrokerRole.SLAVE}


def tables(broker: Broker) -> tuple[object, ...]:
    """What must stay as it was."""
    return (
        dict(broker.topics.by_name), broker.topics.data_version, dict(broker.groups.by_name),
        broker.groups.data_version, broker.store.wrote_offset,
    )  # fmt: skip


def pop_header() -> PopMessageRequestHeader:
    return PopMessageRequestHeader(
        consumer_group=GROUP, topic=TOPIC, queue_id=0, max_msg_nums=1, invisible_time=1000, poll_time=0, born_time=1,
        init_mode=0,
    )  # fmt: skip


REFUSED: list[tuple[RequestCode, Header | None, bytes, ResponseCode, str | None]] = [
    (
        RequestCode.CONSUMER_SEND_MSG_BACK, ConsumerSendMsgBackRequestHeader(offset=0, group=GROUP, delay_level=0),
        b"", ResponseCode.SYSTEM_BUSY, "[REJECTREQUEST]system busy, start flow control for a while",
    ),
    (
        RequestCode.END_TRANSACTION,
        EndTransactionRequestHeader(
            producer_group="PG", tran_state_table_offset=0, commit_log_offset=0, commit_or_rollback=8,
            msg_id="0",
        ),
        b"", ResponseCode.SLAVE_NOT_AVAILABLE, None,
    ),
    (
        RequestCode.RECALL_MESSAGE, RecallMessageRequestHeader(producer_group="PG", topic=TOPIC, recall_handle="x"),
        b"", ResponseCode.SLAVE_NOT_AVAILABLE, "recall failed, broker service not available",
    ),
    (
        RequestCode.UPDATE_AND_CREATE_TOPIC, create("New"), b"", ResponseCode.SYSTEM_ERROR,
        "Can't modify topic or subscription group from slave broker, please execute it from master broker.",
    ),
    (
        RequestCode.DELETE_TOPIC_IN_BROKER, DeleteTopicRequestHeader(topic="BenchmarkTest"), b"",
        ResponseCode.SYSTEM_ERROR,
        "Can't modify topic or subscription group from slave broker, please execute it from master broker.",
    ),
    (
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, dumps(SubscriptionGroupConfig(GROUP)),
        ResponseCode.SYSTEM_ERROR,
        "Can't modify topic or subscription group from slave broker, please execute it from master broker.",
    ),
    (
        RequestCode.POP_MESSAGE, pop_header(), b"", ResponseCode.SERVICE_NOT_AVAILABLE,
        "a slave serves no pops: pop from its master",
    ),
    (
        RequestCode.ACK_MESSAGE,
        AckMessageRequestHeader(consumer_group=GROUP, topic=TOPIC, queue_id=0, extra_info="0 0 0 0 0 b 0 0", offset=0),
        b"", ResponseCode.SERVICE_NOT_AVAILABLE, "a slave serves no pops: pop from its master",
    ),
]  # fmt: skip


@pytest.fixture
async def slave(tmp_path: Path) -> Any:
    async with running_broker(tmp_path, **SLAVE) as both:
        yield both


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: case[0].name)
async def test_a_slave_refuses_what_would_change_it(
    slave: tuple[Broker, TestClient],
    case: tuple[RequestCode, Header | None, bytes, ResponseCode, str | None],
) -> None:
    broker, client = slave
    before = tables(broker)
    code, header, body, expected, remark = case
    response = await client.ask(code, header, body)
    assert (response.code, response.remark) == (expected, remark)
    assert tables(broker) == before


async def test_a_slave_takes_no_message_and_makes_no_topic_for_it(slave: tuple[Broker, TestClient]) -> None:
    broker, client = slave
    before = tables(broker)
    with pytest.raises(AssertionError, match="REJECTREQUEST"):
        await client.send()
    assert tables(broker) == before


async def test_clients_of_a_slave_are_known_and_leave_no_trace_in_its_tables(
    slave: tuple[Broker, TestClient],
) -> None:
    """A heartbeat makes no retry topic, a pull no group; offsets are taken, as RocketMQ's slave takes them."""
    broker, client = slave
    before = tables(broker)
    await client.heartbeat("C1", TOPIC, producer_group="PG")
    await client.pull()
    assert broker.consumers.find_subscription(GROUP, TOPIC) is not None
    broker.topics.update_order(["BenchmarkTest"])
    assert tables(broker) == before


async def test_a_slave_that_stops_and_starts_leaves_its_log_as_it_was(tmp_path: Path) -> None:
    """Master, then slave in one directory: the slave's start, stop and due work append nothing."""
    store = {"timer_flush_interval_ms": 20, "flush_commit_log_least_pages": 0}
    async with running_broker(tmp_path, store=store) as (master, client):
        await client.ask_well(RequestCode.UPDATE_AND_CREATE_TOPIC, create())
        await client.send(b"at once")
        await client.send(b"soon", DELAY="1")
        await client.send(b"later", TIMER_DELAY_MS="500")
        await client.send(b"half", TRAN_MSG="true")
        end_offset = master.store.wrote_offset
    async with running_broker(tmp_path, store=store, transaction_check_interval=50, **SLAVE) as (slave, client):
        await client.heartbeat("C1", TOPIC, producer_group="PG")
        await asyncio.sleep(1.5)  # until all is due
        assert slave.store.wrote_offset == end_offset
    async with running_broker(tmp_path, store=store, **SLAVE) as (slave, _):
        assert slave.store.wrote_offset == end_offset
