"""SYNC_MASTER with slaves that the test drives: nothing is acknowledged, and nothing is seen, that they do not have."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from broker.config.broker_config import BrokerConfig, BrokerRole
from broker.config.live_config import LiveConfig
from broker.replication.replication import replica_rules
from broker.server import Broker
from sprocket.remoting.bodies.stats import HARuntimeInfo, KVTable
from sprocket.remoting.codec.fastjson import loads
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.command import ReceivedResponse
from sprocket.remoting.headers.admin import QueryMessageRequestHeader, ViewMessageRequestHeader
from sprocket.remoting.headers.pull import PullMessageRequestHeader
from sprocket.remoting.headers.send import (
    ConsumerSendMsgBackRequestHeader,
    EndTransactionRequestHeader,
    SendMessageResponseHeader,
)
from sprocket.remoting.message.properties import encode
from store.config.store_config import FlushDiskType, StoreConfig
from store.flush.confirmation import NO_LIMIT
from tests.broker.fake_slave import fake_slave
from tests.broker.pop.rig import pop
from tests.broker.rig import TOPIC, TestClient, create, running_broker
from tests.send_headers import send_header
from tests.waiting import until

OK, NOT_AVAILABLE, SLAVE_TIMEOUT, DISK_TIMEOUT, REFUSED = (
    int(ResponseCode.SUCCESS),
    int(ResponseCode.SLAVE_NOT_AVAILABLE),
    int(ResponseCode.FLUSH_SLAVE_TIMEOUT),
    int(ResponseCode.FLUSH_DISK_TIMEOUT),
    int(ResponseCode.SYSTEM_ERROR),
)


@dataclass
class Master:
    """A broker, its client, and the sends that were begun."""

    broker: Broker
    client: TestClient
    sends: list["asyncio.Task[ReceivedResponse]"] = field(default_factory=list)

    @property
    def port(self) -> int:
        return self.broker.config.broker.ha_listen_port

    @property
    def end(self) -> int:
        return self.broker.store.wrote_offset

    @property
    def codes(self) -> list[int | None]:
        """What each send was answered; None for one that waits."""
        return [task.result().code if task.done() else None for task in self.sends]

    def begin(self, code: int, header: Any, body: bytes = b"") -> "asyncio.Task[ReceivedResponse]":
        self.sends.append(asyncio.create_task(self.client.ask(code, header, body)))
        return self.sends[-1]

    async def send(self, body: bytes = b"body", *, batch: bool = False, **properties: str) -> None:
        """Begin to send a message, and wait until it is in the log, or answered."""
        before = self.end
        text = encode({"UNIQ_KEY": f"0A{len(self.sends):030X}"} | properties)
        header = send_header(TOPIC, batch=batch, properties=text)
        task = self.begin(RequestCode.SEND_MESSAGE_V2, header, body)
        await until(lambda: self.end > before or task.done())

    async def answered(self, *codes: int) -> None:
        """All sends are answered, so."""
        await until(lambda: None not in self.codes)
        assert self.codes == list(codes)

    async def unanswered(self, *codes: int | None) -> None:
        """After a while the sends are answered so far as `codes` say."""
        for _ in range(10):
            await asyncio.sleep(0.005)
        assert self.codes == list(codes)

    async def in_sync(self, count: int) -> None:
        """So many slaves are in sync."""
        await until(lambda: len(self.broker.replication.replicas.in_sync_slaves()) == count)

    async def seen(self) -> int:
        """Messages that consumers see, by whatever way they look."""
        response = await self.client.pull()
        count = self.broker.store.max_offset(TOPIC, 0)
        assert (response.code == OK) == (count > 0)
        assert self.broker.store.entry(TOPIC, 0, count) is None
        return count


@asynccontextmanager
async def master(root: Path, *, broker: dict[str, Any] | None = None, **store: Any) -> AsyncIterator[Master]:
    settings = {"broker_role": BrokerRole.SYNC_MASTER} | (broker or {})
    # An empty store that does not wait: the slaves of these tests report later.
    store = {"ha_tail_recovery_wait": 0} | store
    async with running_broker(root, store=store, **settings) as (running, client):
        await client.ask_well(RequestCode.UPDATE_AND_CREATE_TOPIC, create())
        it = Master(running, client)
        yield it
        for task in it.sends:
            task.cancel()
        await asyncio.gather(*it.sends, return_exceptions=True)


async def test_a_send_is_acknowledged_when_the_slave_has_it_and_not_before(tmp_path: Path) -> None:
    async with master(tmp_path) as it, fake_slave(it.port) as slave:
        await it.in_sync(1)
        await it.send()
        first_end = it.end
        await it.send()
        await until(lambda: slave.received_offset == it.end)
        await it.unanswered(None, None)
        assert await it.seen() == 0
        slave.report(first_end - 1)
        await it.unanswered(None, None)
        slave.report(first_end)
        await until(lambda: it.codes == [OK, None])
        assert await it.seen() == 1
        slave.report()
        await it.answered(OK, OK)
        assert await it.seen() == 2
        assert it.sends[1].result().header(SendMessageResponseHeader).queue_offset == 1


async def test_a_connection_that_ends_after_the_role_does_not_reach_the_log(tmp_path: Path) -> None:
    """The log goes to the next role, which would hide what it holds if slaves counted still."""
    async with master(tmp_path, min_in_sync_replicas=2) as it, fake_slave(it.port) as slave:
        await it.in_sync(1)
        slave.is_eager = True
        await it.send()
        await it.answered(OK)
        replication, confirmation = it.broker.replication, it.broker.store.confirmation
        assert confirmation.is_limited
        replication.stop()
        confirmation.replicated(NO_LIMIT, NO_LIMIT, is_enough=False)  # as the end of the role leaves it
        await until(lambda: not replication.listener.connections)
        assert not confirmation.is_limited


async def test_a_healthy_start_logs_no_warning_and_a_lost_slave_does(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")

    def levels(event: str) -> list[str]:
        return [record.levelname for record in caplog.records if record.getMessage().startswith(f"event={event} ")]

    async with master(tmp_path) as it:
        async with fake_slave(it.port):
            await it.in_sync(1)
            await until(lambda: levels("replicas_counted") == ["INFO", "INFO"])
        await until(lambda: levels("replicas_counted") == ["INFO", "INFO", "WARNING"])


async def test_a_slave_that_never_comes_is_missed_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with master(tmp_path) as it:
        for seconds in range(0, 300, 10):
            it.broker.replication._warn_of_missing_slaves(float(seconds))
    missing = [text for text in caplog.messages if text.startswith("event=replicas_missing ")]
    assert missing == ["event=replicas_missing in_sync=1 required=2 refuses=False for_s=30"]


async def test_without_a_slave_it_is_said_at_once(tmp_path: Path) -> None:
    async with master(tmp_path, slave_timeout=60_000) as it:
        await it.send()
        await it.answered(NOT_AVAILABLE)
        assert await it.seen() == 1


async def test_an_async_master_waits_for_nobody(tmp_path: Path) -> None:
    role = {"broker_role": BrokerRole.ASYNC_MASTER}
    async with master(tmp_path, broker=role) as it, fake_slave(it.port):
        await it.in_sync(1)
        await it.send()
        await it.answered(OK)
        assert await it.seen() == 1


async def test_a_slave_that_is_late_is_said_so_and_what_it_lacks_is_not_seen(tmp_path: Path) -> None:
    async with master(tmp_path, slave_timeout=50) as it, fake_slave(it.port) as slave:
        await it.in_sync(1)
        await it.send()
        await it.answered(SLAVE_TIMEOUT)
        assert await it.seen() == 0
        await until(lambda: slave.received_offset == it.end)
        slave.report()
        await until(lambda: it.broker.store.max_offset(TOPIC, 0) == 1)


async def test_with_sync_flush_both_have_to_have_it(tmp_path: Path) -> None:
    flush = FlushDiskType.SYNC_FLUSH
    async with master(tmp_path, flush_disk_type=flush) as it, fake_slave(it.port) as slave:
        await it.in_sync(1)
        await it.send()
        await until(lambda: it.broker.store.flushed_offset == it.end == slave.received_offset)
        await it.unanswered(None)
        assert await it.seen() == 0
        slave.report()
        await it.answered(OK)


async def test_a_slave_that_disappears_acknowledges_nothing(tmp_path: Path) -> None:
    async with master(tmp_path) as it:
        async with fake_slave(it.port) as slave:
            await it.in_sync(1)
            await it.send()
            await until(lambda: slave.received_offset == it.end)
        await it.answered(NOT_AVAILABLE)
        assert await it.seen() == 1
        # It reconnects with what it has, and counts again.
        async with fake_slave(it.port, log_end=slave.received_offset) as again:
            await it.in_sync(1)
            again.is_eager = True
            await it.send()
            await it.answered(NOT_AVAILABLE, OK)


async def test_a_report_of_what_was_not_sent_acknowledges_nothing(tmp_path: Path) -> None:
    async with master(tmp_path) as it:
        # Offsets after the end, and other bytes.
        for number, beyond in enumerate((1, 1000, 1 << 40, (1 << 63) - 1, -1, -(1 << 63))):
            async with fake_slave(it.port, log_end=it.end) as slave:
                await it.in_sync(1)
                await it.send()
                await until(lambda slave=slave: slave.received_offset == it.end)  # type: ignore[misc]
                slave.report(it.end + beyond if 0 < beyond < 1 << 60 else beyond)
                await until(lambda slave=slave: slave.is_closed)  # type: ignore[misc]
                await it.answered(*[NOT_AVAILABLE] * (number + 1))
            await it.in_sync(0)


async def test_a_report_of_what_is_still_to_be_sent_acknowledges_nothing(tmp_path: Path) -> None:
    limit: dict[str, Any] = {"ha_flow_control_enable": True, "max_ha_transfer_byte_in_second": 1024}
    async with master(tmp_path, **limit) as it, fake_slave(it.port) as slave:
        await it.in_sync(1)
        await it.send(bytes(5000))
        await until(lambda: slave.received_offset > 0)
        assert slave.received_offset < it.end
        slave.report(it.end)
        await until(lambda: slave.is_closed)
        await it.answered(NOT_AVAILABLE)


async def test_a_log_that_this_master_never_sent_is_no_copy(tmp_path: Path) -> None:
    """The tail of an old master, or of one that lost its own: other bytes at offsets that are written again."""
    async with master(tmp_path) as it:
        await it.send()
        ends = [it.end]
        await it.send()
        ends.append(it.end)
        for end in ends:
            async with fake_slave(it.port, log_end=end) as stranger:
                await until(lambda: stranger.is_closed)
        assert it.broker.replication.replicas.offsets() == []
        async with fake_slave(it.port) as slave:
            await until(lambda: slave.received_offset == it.end)
        async with fake_slave(it.port, log_end=ends[0]):
            await until(lambda: it.broker.replication.replicas.offsets() == [ends[0]])


async def test_random_bytes_acknowledge_nothing(tmp_path: Path) -> None:
    choose = random.Random(6)
    async with master(tmp_path) as it, fake_slave(it.port, address="127.0.0.2"):
        await it.in_sync(1)
        await it.send()
        for _ in range(40):
            async with fake_slave(it.port, log_end=None) as stranger:
                stranger.write(choose.randbytes(choose.randrange(1, 100)))
                await asyncio.sleep(0.002)
        await it.unanswered(None)
        assert await it.seen() == 0


async def test_one_slave_counts_once_however_often_it_is_connected(tmp_path: Path) -> None:
    async with (
        master(tmp_path, in_sync_replicas=3) as it,
        fake_slave(it.port) as slave,
        fake_slave(it.port) as same,
        fake_slave(it.port, address="127.0.0.2") as other,
    ):
        await it.in_sync(2)
        await it.send()
        for one in (slave, same):
            await until(lambda one=one: one.received_offset == it.end)  # type: ignore[misc]
            one.report()
        await it.unanswered(None)
        assert await it.seen() == 0
        other.report()
        await it.answered(OK)
        await same.close()
        await it.send()
        await until(lambda: slave.received_offset == other.received_offset == it.end)
        slave.report()
        other.report()
        await it.answered(OK, OK)


async def test_fewer_slaves_than_wanted_are_said_at_once_and_seen_when_those_have_it(tmp_path: Path) -> None:
    async with master(tmp_path, in_sync_replicas=3) as it, fake_slave(it.port) as slave:
        await it.in_sync(1)
        await it.send()
        await it.answered(NOT_AVAILABLE)
        assert await it.seen() == 0
        slave.report()
        await until(lambda: it.broker.store.max_offset(TOPIC, 0) == 1)


async def test_as_many_as_are_in_sync_may_be_enough(tmp_path: Path) -> None:
    auto: dict[str, Any] = {"in_sync_replicas": 3, "enable_auto_in_sync_replicas": True}
    async with master(tmp_path, **auto) as it:
        await it.send()
        await it.answered(OK)
        async with fake_slave(it.port) as slave:
            await until(lambda: slave.received_offset == it.end)
            slave.report()
            await it.in_sync(1)
            await it.send()
            await it.unanswered(OK, None)
            slave.report()
            await it.answered(OK, OK)


async def test_a_slave_that_stands_still_leaves_the_set_and_comes_back(tmp_path: Path) -> None:
    times: dict[str, Any] = {"ha_max_time_slave_not_catchup": 2_000, "slave_timeout": 60_000}
    async with master(tmp_path, **times) as it, fake_slave(it.port) as slave:
        await it.in_sync(1)
        slave.may_read.clear()
        await it.send()
        await it.unanswered(None)
        await it.answered(NOT_AVAILABLE)
        await it.send()
        await it.answered(NOT_AVAILABLE, NOT_AVAILABLE)
        assert await it.seen() == 2
        slave.is_eager = True
        slave.may_read.set()
        await it.in_sync(1)
        await it.send()
        await it.answered(NOT_AVAILABLE, NOT_AVAILABLE, OK)


async def test_a_held_pull_is_woken_when_the_message_is_confirmed(tmp_path: Path) -> None:
    async with master(tmp_path) as it, fake_slave(it.port) as slave:
        await it.in_sync(1)
        header = PullMessageRequestHeader(
            consumer_group="CG", topic=TOPIC, queue_id=0, queue_offset=0, max_msg_nums=32, sys_flag=6,
            commit_offset=0, suspend_timeout_millis=15_000, subscription="*", sub_version=0, expression_type="TAG",
        )  # fmt: skip
        pull = asyncio.create_task(it.client.ask(RequestCode.PULL_MESSAGE, header))
        popping = asyncio.create_task(pop(it.client, poll_time=15_000, queue_id=0))
        await it.send(b"once")
        await until(lambda: slave.received_offset == it.end)
        await it.unanswered(None)
        assert not pull.done() and not popping.done()
        slave.is_eager = True
        slave.report()
        assert b"once" in (await pull).body
        assert b"once" in (await popping).body
        await it.answered(OK)


async def test_nobody_finds_by_key_or_id_what_no_slave_has(tmp_path: Path) -> None:
    query = QueryMessageRequestHeader(topic=TOPIC, key="k", max_num=32, begin_timestamp=0, end_timestamp=(1 << 63) - 1)
    by_id = ViewMessageRequestHeader(offset=0)
    async with master(tmp_path) as it, fake_slave(it.port) as slave:
        await it.in_sync(1)
        await it.send(KEYS="k")
        assert (await it.client.ask(RequestCode.QUERY_MESSAGE, query)).code == ResponseCode.QUERY_NOT_FOUND
        assert (await it.client.ask(RequestCode.VIEW_MESSAGE_BY_ID, by_id)).code == ResponseCode.SYSTEM_ERROR
        assert (await pop(it.client, queue_id=0)).code != OK
        await until(lambda: slave.received_offset == it.end)
        slave.report()
        await it.answered(OK)
        assert (await it.client.ask(RequestCode.QUERY_MESSAGE, query)).code == OK
        assert (await it.client.ask(RequestCode.VIEW_MESSAGE_BY_ID, by_id)).code == OK


@pytest.mark.code(RequestCode.END_TRANSACTION)
async def test_every_kind_of_send_waits_and_says_what_is_missing(tmp_path: Path) -> None:
    async with master(tmp_path) as it:
        batch = (23).to_bytes(4, "big") + bytes(12) + (1).to_bytes(4, "big") + b"x" + bytes(2)
        async with fake_slave(it.port) as slave:
            await it.in_sync(1)
            await it.send(batch, batch=True)
            await it.send(TRAN_MSG="true", PGROUP="PG")
            await it.send(TIMER_DELAY_MS="5000")
            await it.send(WAIT="false")
            await it.unanswered(None, None, None, OK)
            await until(lambda: slave.received_offset == it.end)
            slave.report()
            await it.answered(OK, OK, OK, OK)
            half = it.sends[1].result().header(SendMessageResponseHeader)
            send_back = ConsumerSendMsgBackRequestHeader(offset=0, group="CG", delay_level=1)
            it.begin(RequestCode.CONSUMER_SEND_MSG_BACK, send_back)
            it.begin(RequestCode.END_TRANSACTION, end_of(half))
            await it.unanswered(OK, OK, OK, OK, None, None)
            await until(lambda: slave.received_offset == it.end)
            slave.report()
            await it.answered(*[OK] * 6)
        await it.in_sync(0)
        it.sends.clear()
        await it.send(batch, batch=True)
        await it.send(TRAN_MSG="true", PGROUP="PG")
        await it.answered(NOT_AVAILABLE, NOT_AVAILABLE)
        # A client could not send it again without harm, so the response says that it is stored.
        half = it.sends[1].result().header(SendMessageResponseHeader)
        assert (await it.begin(RequestCode.END_TRANSACTION, end_of(half))).code == OK
        assert (await it.begin(RequestCode.CONSUMER_SEND_MSG_BACK, send_back)).code == OK


def end_of(half: SendMessageResponseHeader) -> EndTransactionRequestHeader:
    return EndTransactionRequestHeader(
        topic=TOPIC, producer_group="PG", tran_state_table_offset=half.queue_offset,
        commit_log_offset=int(half.msg_id[-16:], 16), commit_or_rollback=8, msg_id="ID",
    )  # fmt: skip


async def test_below_the_least_number_nothing_is_taken(tmp_path: Path) -> None:
    async with master(tmp_path, min_in_sync_replicas=2) as it:
        batch = (23).to_bytes(4, "big") + bytes(12) + (1).to_bytes(4, "big") + b"x" + bytes(2)

        async def refused(task: "asyncio.Task[ReceivedResponse]") -> None:
            response = await task
            assert (response.code, response.remark) == (REFUSED, "in-sync replicas not enough")

        kinds: list[dict[str, Any]] = [
            {},
            {"TRAN_MSG": "true", "PGROUP": "PG"},
            {"TIMER_DELAY_MS": "5000"},
            {"DELAY": "1"},
        ]
        for properties in kinds:
            await it.send(**properties)
            await refused(it.sends[-1])
        await it.send(batch, batch=True)
        await refused(it.sends[-1])
        assert it.end == 0
        async with fake_slave(it.port) as slave:
            slave.is_eager = True
            await it.in_sync(1)
            await it.send()
            await it.send(TRAN_MSG="true", PGROUP="PG")
            await until(lambda: None not in it.codes)
            assert it.codes[-2:] == [OK, OK]
            half = it.sends[-1].result().header(SendMessageResponseHeader)
            slave.is_eager = False
            await it.send()
        end = it.end
        await until(lambda: None not in it.codes)
        # Stored, but no slave has it: it is not seen.
        assert (it.codes[-1], await it.seen()) == (NOT_AVAILABLE, 1)
        await refused(it.begin(RequestCode.END_TRANSACTION, end_of(half)))
        await refused(
            it.begin(
                RequestCode.CONSUMER_SEND_MSG_BACK,
                ConsumerSendMsgBackRequestHeader(offset=0, group="CG", delay_level=1),
            )
        )
        assert it.end == end
        async with fake_slave(it.port, log_end=slave.received_offset) as again:
            again.is_eager = True
            await until(lambda: it.broker.store.max_offset(TOPIC, 0) == 2)
            assert (await it.begin(RequestCode.END_TRANSACTION, end_of(half))).code == OK


@pytest.mark.parametrize(
    ("is_acting_enabled", "is_auto", "expected"), [(False, False, 2), (True, False, 3), (True, True, 2)]
)
def test_where_a_slave_may_act_fewer_than_wanted_refuse(is_acting_enabled: bool, is_auto: bool, expected: int) -> None:
    config = StoreConfig(in_sync_replicas=3, min_in_sync_replicas=2, enable_auto_in_sync_replicas=is_auto)
    broker = BrokerConfig(enable_slave_acting_master=is_acting_enabled)
    assert replica_rules(LiveConfig(broker, config)).min_in_sync_replicas == expected


async def test_one_report_answers_all_that_it_covers_and_nothing_else(tmp_path: Path) -> None:
    async with master(tmp_path) as it, fake_slave(it.port) as slave:
        await it.in_sync(1)
        ends = []
        for number in range(40):
            await it.send(b"%d" % number)
            ends.append(it.end)
        await until(lambda: slave.received_offset == it.end)
        slave.report(ends[24] + 3)
        await until(lambda: it.codes[24] is not None)
        await it.unanswered(*[OK] * 25, *[None] * 15)
        assert await it.seen() == 25
        # A report that says less than one before takes nothing back.
        slave.report(ends[3])
        slave.report(ends[30])
        await until(lambda: it.codes[30] is not None)
        assert await it.seen() == 31


async def test_operators_see_how_far_slaves_are(tmp_path: Path) -> None:
    async with master(tmp_path) as it, fake_slave(it.port) as slave:
        await it.in_sync(1)
        await it.send()
        await until(lambda: slave.received_offset == it.end)
        await asyncio.sleep(0.01)
        status = await it.client.ask_well(RequestCode.GET_BROKER_HA_STATUS)
        info = loads(status.body, HARuntimeInfo)
        (one,) = info.ha_connection_info
        assert (info.in_sync_slave_nums, info.master_commit_log_max_offset) == (1, it.end)
        assert (one.slave_ack_offset, one.diff, one.in_sync, one.transfer_from_where) == (0, it.end, True, it.end)
        assert 0 < one.behind_millis < 60_000
        table = loads((await it.client.ask_well(RequestCode.GET_BROKER_RUNTIME_INFO)).body, KVTable).table
        assert (table["haInSyncReplicas"], table["haRequiredReplicas"], table["haSlaveLagBytes"]) == (
            "2",
            "2",
            str(it.end),
        )
        assert (table["confirmOffset"], table["haSentBytes"]) == ("0", str(it.end))
        slave.report()
        await it.answered(OK)
        status = await it.client.ask_well(RequestCode.GET_BROKER_HA_STATUS)
        (one,) = loads(status.body, HARuntimeInfo).ha_connection_info
        assert (one.diff, one.behind_millis) == (0, 0)
        table = loads((await it.client.ask_well(RequestCode.GET_BROKER_RUNTIME_INFO)).body, KVTable).table
        assert (table["haSlaveLagBytes"], table["haSlaveLagMillis"], table["confirmOffset"]) == ("0", "0", str(it.end))


async def send_status(it: Master) -> str:
    """Return what the broker says that a send gets now; its metric must say the same."""
    table = loads((await it.client.ask_well(RequestCode.GET_BROKER_RUNTIME_INFO)).body, KVTable).table
    metrics = {one.name: one for one in it.broker.replication.exported_metrics()}
    assert metrics["sprocket_sends_confirmed"].read() == [((), int(table["sendStatus"] == "confirmed"))]
    assert metrics["sprocket_replicas_in_sync"].read() == [((), int(table["haInSyncReplicas"]))]
    return table["sendStatus"]


@pytest.mark.parametrize(("least", "alone"), [(1, "one_copy"), (2, "replicas_not_enough")])
async def test_operators_see_whether_sends_are_confirmed(tmp_path: Path, least: int, alone: str) -> None:
    async with master(tmp_path, min_in_sync_replicas=least) as it:
        assert await send_status(it) == alone
        async with fake_slave(it.port):
            await it.in_sync(1)
            assert await send_status(it) == "confirmed"
        await it.in_sync(0)
        assert await send_status(it) == alone
