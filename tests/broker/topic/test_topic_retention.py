"""Retention and back-pressure as clients and operators meet them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from broker.server import Broker
from broker.topic.attributes import RESERVE_TIME, RETENTION_BYTES, altered, bound
from broker.topic.topic_retention import rule_of
from sprocket.common.errors import RequestError
from sprocket.remoting.bodies.stats import KVTable
from sprocket.remoting.bodies.topic import TopicConfig
from sprocket.remoting.codec.fastjson import loads
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.headers.admin import DeleteTopicRequestHeader
from store.retention.topic_retention import TopicRule
from tests.broker.rig import TOPIC, TestClient, broker_config, create, store_config
from tests.clock import ManualClock
from tests.send_headers import send_header
from tests.store.retention.cleaning import FilledDisk
from tests.waiting import until

SEGMENT_BYTES = 16 * 1024
BODY = bytes(5000)


class Served:
    """A broker on a disk as full as the test says, with a clock of its own, and a client."""

    def __init__(self, broker: Broker, disk: FilledDisk, clock: ManualClock) -> None:
        self.broker = broker
        self.disk = disk
        self.clock = clock
        self.client = TestClient(f"127.0.0.1:{broker.port}")

    async def send(self, body: bytes = BODY) -> tuple[int, str]:
        """Code and remark of a send."""
        response = await self.client.ask(RequestCode.SEND_MESSAGE_V2, send_header(TOPIC), body)
        return response.code, response.remark or ""

    async def fill(self, messages: int) -> None:
        for _ in range(messages):
            assert (await self.send())[0] == ResponseCode.SUCCESS

    async def update(self, text: str) -> None:
        await self.client.ask_well(RequestCode.UPDATE_BROKER_CONFIG, None, text.encode())

    async def info(self) -> dict[str, str]:
        response = await self.client.ask_well(RequestCode.GET_BROKER_RUNTIME_INFO)
        return loads(response.body, KVTable).table

    async def after(self, seconds: float, condition: Any) -> None:
        """Let time pass until `condition` holds."""

        def holds() -> bool:
            self.clock.advance(seconds)
            return bool(condition())

        await until(holds)

    def range(self) -> tuple[int, int]:
        return self.broker.store.min_offset(TOPIC, 0), self.broker.store.max_offset(TOPIC, 0)


@asynccontextmanager
async def served(root: Path) -> AsyncIterator[Served]:
    disk, clock = FilledDisk(), ManualClock()
    config = store_config(
        root, mapped_file_size_commit_log=SEGMENT_BYTES, flush_interval_commit_log=5, flush_commit_log_least_pages=0,
        delete_commit_log_files_interval=1, delete_consume_queue_files_interval=1,
        os_page_cache_busy_time_out_mills=1_000,
        delete_when=f"{(hour(clock) + 12) % 24:02}", disk_space_warning_level_ratio=90, clean_file_forcibly_enable=True,
        max_flush_time=10**12,  # the clock jumps by hours while a flush may be running
    )  # fmt: skip
    fatal: list[object] = []
    broker = Broker(broker_config(), config, clock=clock, disk=disk, on_fatal=fatal.append)
    await broker.start()
    one = Served(broker, disk, clock)
    try:
        yield one
    finally:
        await one.client.close()
        await broker.stop()
    assert not fatal


def hour(clock: ManualClock) -> int:
    from datetime import datetime

    return datetime.fromtimestamp(clock.wall_ms() / 1000).hour


async def test_a_full_disk_is_told_with_its_figures_and_heals(tmp_path: Path) -> None:
    async with served(tmp_path) as one:
        await one.update("cleanFileForciblyEnable=false")
        await one.fill(1)
        one.disk.log_used = 0.93
        pressure = one.broker.store.cleaner.pressure
        await one.after(1.0, lambda: pressure.max_unflushed_bytes < 0)
        code, remark = await one.send()
        assert code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert remark == (
            "service not available now: the broker's disk is full: CL 93.0%, CQ 50.0% used, allowed is 90.0%"
            " (diskSpaceWarningLevelRatio); retry after 10000 ms"
        )
        # Reads go on.
        assert (await one.client.pull()).code == ResponseCode.SUCCESS
        assert (await one.info())["putMessageRefused_disk_full"] == "1"
        one.disk.log_used = 0.5
        await one.after(1.0, lambda: pressure.max_unflushed_bytes > 0)
        await one.fill(1)
        assert one.range() == (0, 2)


async def test_what_waits_too_much_is_busy(tmp_path: Path) -> None:
    async with served(tmp_path) as one:
        await one.fill(1)
        one.broker.store.cleaner.pressure.append_was_slow(1.2)
        code, remark = await one.send()
        assert code == ResponseCode.SYSTEM_BUSY
        assert remark.startswith("broker busy: the broker's page cache is busy: a write took 1200 ms, allowed are 1000")
        assert remark.endswith("; retry after 200 ms")
        assert one.range() == (0, 1)
        one.clock.advance(0.2)
        await one.fill(1)
        await one.update("brokerFastFailureEnable=false")
        one.broker.store.cleaner.pressure.append_was_slow(1.2)
        await one.fill(1)


async def test_keys_of_retention_can_be_changed_while_it_runs(tmp_path: Path) -> None:
    async with served(tmp_path) as one:
        await one.fill(9)
        one.clock.advance(5 * 3600)
        await one.fill(1)
        await until(lambda: one.broker.store.flushed_offset == one.broker.store.wrote_offset)
        await one.update(f"fileReservedTime=4\ndeleteWhen={hour(one.clock)}")
        await one.after(1.0, lambda: one.range()[0])
        assert (await one.info())["commitLogMinOffset"] != "0"


@pytest.mark.code(RequestCode.DELETE_EXPIRED_COMMITLOG)
async def test_expired_files_go_when_asked(tmp_path: Path) -> None:
    async with served(tmp_path) as one:
        await one.fill(9)
        one.clock.advance(100 * 3600)
        await one.fill(4)
        await until(lambda: one.broker.store.flushed_offset == one.broker.store.wrote_offset)
        await one.client.ask_well(RequestCode.DELETE_EXPIRED_COMMITLOG)
        # Messages 6 to 8 are of that age too, but their segment counts as young as the message after it.
        await one.after(1.0, lambda: one.range()[0] == 6)


@pytest.mark.code(RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE)
async def test_expired_queues_go_when_asked_but_not_those_of_the_system(tmp_path: Path) -> None:
    async with served(tmp_path) as one:
        await one.client.send(BODY, topic="Old")
        await one.client.send(BODY, DELAY="18")
        await one.fill(9)
        await until(lambda: one.broker.store.flushed_offset == one.broker.store.wrote_offset)
        one.disk.log_used = 0.86
        await one.after(1.0, lambda: one.range()[0] and one.broker.store.min_offset("Old", 0))
        one.disk.log_used = 0.5
        assert ("Old", 0) in one.broker.store.queues()
        await one.client.ask_well(RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE)
        queues = one.broker.store.queues()
        assert ("Old", 0) not in queues
        assert {("SCHEDULE_TOPIC_XXXX", 17), (TOPIC, 0)} <= set(queues)


async def test_an_attribute_of_the_topic_bounds_its_bytes(tmp_path: Path) -> None:
    async with served(tmp_path) as one:
        await one.client.ask_well(RequestCode.UPDATE_AND_CREATE_TOPIC, create(attributes="+retention.bytes=11000"))
        await one.fill(4)
        await one.after(10.0, lambda: one.range() == (2, 4))
        response = await one.client.pull(offset=0)
        assert response.code == ResponseCode.PULL_OFFSET_MOVED
        # It holds from the moment in which it is set.
        await one.client.ask_well(RequestCode.UPDATE_AND_CREATE_TOPIC, create(attributes="+retention.bytes=100"))
        assert one.range() == (3, 4)
        await one.client.ask_well(RequestCode.UPDATE_AND_CREATE_TOPIC, create(attributes="-retention.bytes"))
        await one.fill(4)
        one.clock.advance(60)
        assert one.range() == (3, 8)


async def test_rules_hold_after_a_restart_before_anybody_reads(tmp_path: Path) -> None:
    async with served(tmp_path) as one:
        await one.client.ask_well(RequestCode.UPDATE_AND_CREATE_TOPIC, create(attributes="+retention.bytes=6000"))
        await one.fill(3)
    async with served(tmp_path) as one:
        assert one.range() == (2, 3)
        await one.client.ask_well(RequestCode.DELETE_TOPIC_IN_BROKER, DeleteTopicRequestHeader(topic=TOPIC))
        await one.fill(3)
        one.clock.advance(60)
        assert one.range() == (0, 3)


async def test_the_time_of_a_topic_is_in_hours(tmp_path: Path) -> None:
    async with served(tmp_path) as one:
        await one.client.ask_well(RequestCode.UPDATE_AND_CREATE_TOPIC, create(attributes="+reserve.time=2"))
        await one.fill(2)
        one.clock.advance(3600)
        await one.fill(1)
        await one.after(0.9, lambda: True)
        assert one.range() == (0, 3)
        one.clock.advance(3601)
        await one.after(10.0, lambda: one.range() == (2, 3))


@pytest.mark.parametrize("value", ["", "x", "-2", "1.5", "1e3", "9223372036854775808", "9" * 30, "٣"])
@pytest.mark.parametrize("name", [RESERVE_TIME, RETENTION_BYTES])
def test_values_that_are_no_bound_are_refused(name: str, value: str) -> None:
    with pytest.raises(RequestError, match="allowed is a number of") as refused:
        altered(None, {f"+{name}": value})
    assert refused.value.code == ResponseCode.SYSTEM_ERROR


def test_what_bounds_nothing_is_no_rule() -> None:
    assert [bound({"a": text}, "a") for text in ("-1", "0", "1", "x")] == [None, None, 1, None]
    assert bound(None, "a") is None
    config = TopicConfig("T", 1, 1, 6, attributes={RESERVE_TIME: "-1", RETENTION_BYTES: "-1"})
    assert rule_of(config) is None
    config.attributes = {RESERVE_TIME: "3", RETENTION_BYTES: "7"}
    assert rule_of(config) == TopicRule(3 * 3_600_000, 7)
