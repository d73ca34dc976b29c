"""What a running broker exports about messages, requests, groups and connections."""

import asyncio
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from broker.config.metric_switches import MetricSwitches
from broker.server import Broker
from sprocket.common.errors import ConfigError
from sprocket.metrics.declared import Value
from sprocket.metrics.distribution import Distribution
from sprocket.metrics.settings import ExporterType
from sprocket.remoting.bodies.client import ConsumerData, HeartbeatData, SubscriptionData
from sprocket.remoting.bodies.group import SubscriptionGroupConfig
from sprocket.remoting.bodies.stats import BrokerStatsData
from sprocket.remoting.codec.fastjson import dumps, loads
from sprocket.remoting.codec.java_hash import java_hash_code
from sprocket.remoting.codes import RequestCode
from sprocket.remoting.headers.admin import ViewBrokerStatsDataRequestHeader
from sprocket.remoting.headers.client import HeartbeatRequestHeader
from sprocket.remoting.headers.offset import UpdateConsumerOffsetRequestHeader
from sprocket.remoting.headers.pull import PullMessageRequestHeader
from sprocket.remoting.headers.send import ConsumerSendMsgBackRequestHeader
from store.config.store_config import FlushDiskType
from tests.broker.rig import GROUP, TOPIC, TestClient, create, running_broker
from tests.clock import ManualClock

_PROM: dict[str, Any] = {"metrics_exporter_type": ExporterType.PROM, "metrics_prom_exporter_port": 0}
Points = list[tuple[Mapping[str, str], Value]]


async def points(broker: Broker, name: str, **labels: str) -> Points:
    """The series of a metric that have these labels."""
    async for reading in broker.metrics.read():
        if reading.name == name:
            return [point for point in reading.points if labels.items() <= point[0].items()]
    raise AssertionError(f"no metric {name}")


async def value(broker: Broker, name: str, **labels: str) -> Value:
    (point,) = await points(broker, name, **labels)
    return point[1]


async def commit(client: TestClient, queue_id: int, offset: int) -> None:
    header = UpdateConsumerOffsetRequestHeader(
        consumer_group=GROUP, topic=TOPIC, queue_id=queue_id, commit_offset=offset
    )
    await client.ask_well(RequestCode.UPDATE_CONSUMER_OFFSET, header)


async def test_messages_in_by_type(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as (broker, client):
        await client.ask_well(RequestCode.UPDATE_AND_CREATE_TOPIC, create())
        for _ in range(3):
            await client.send()
        await client.send(__SHARDINGKEY="one")
        await client.send(DELAY="1")
        await client.send(b"x" * 5000)
        counts = {
            (labels["topic"], labels["message_type"]): number
            for labels, number in await points(broker, "rocketmq_messages_in_total")
        }
        assert counts == {(TOPIC, "normal"): 4, (TOPIC, "fifo"): 1, ("SCHEDULE_TOPIC_XXXX", "delay"): 1}
        sizes = await value(broker, "rocketmq_message_size", topic=TOPIC, message_type="normal")
        assert isinstance(sizes, Distribution)
        assert sizes.counts[:3] == [3, 0, 1]
        total = await value(broker, "rocketmq_throughput_in_total", topic=TOPIC, message_type="normal")
        records = sum(
            entry[1] for at in range(5) if (entry := broker.store.entry(TOPIC, 0, at)) is not None and at != 3
        )
        assert total == sizes.total == records


async def test_messages_out_and_statistics_by_remoting(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as (broker, client):
        await client.ask_well(RequestCode.UPDATE_AND_CREATE_TOPIC, create())
        broker.traffic.sample()
        for _ in range(3):
            await client.send()
        await client.pull()
        broker.traffic.sample()
        labels = {"topic": TOPIC, "consumer_group": GROUP, "is_system": "false"}
        assert await value(broker, "rocketmq_messages_out_total", **labels) == 3
        size = await value(broker, "rocketmq_throughput_out_total", **labels)
        for name, key in (("TOPIC_PUT_SIZE", TOPIC), ("GROUP_GET_SIZE", f"{TOPIC}@{GROUP}")):
            header = ViewBrokerStatsDataRequestHeader(stats_name=name, stats_key=key)
            response = await client.ask_well(RequestCode.VIEW_BROKER_STATS_DATA, header)
            stats = loads(response.body, BrokerStatsData)
            assert stats.stats_minute.sum == size, name


async def test_dead_letters(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as (broker, client):
        await client.ask_well(RequestCode.UPDATE_AND_CREATE_TOPIC, create())
        broker.groups.update([SubscriptionGroupConfig(GROUP)])
        await client.send()
        for level in (1, -1):
            header = ConsumerSendMsgBackRequestHeader(offset=0, group=GROUP, delay_level=level, origin_topic=TOPIC)
            await client.ask_well(RequestCode.CONSUMER_SEND_MSG_BACK, header)
        assert await value(broker, "rocketmq_send_to_dlq_messages_total", topic=TOPIC, consumer_group=GROUP) == 1
        broker.traffic.sample()
        assert broker.flow.returned_by_key() == {f"{TOPIC}@{GROUP}": 2}


async def test_latency_of_requests(tmp_path: Path) -> None:
    async with running_broker(tmp_path, **_PROM) as (broker, client):
        await client.send()
        await client.pull()
        await client.pull("Unknown")
        wait = await client.remoting.invoke(client.address, RequestCode.PULL_MESSAGE, held_pull(offset=1), timeout_s=60)
        assert wait.code == 19
        found = {
            (labels["request_code"], labels["response_code"], labels["is_long_polling"]): number
            for labels, number in await points(broker, "rocketmq_rpc_latency", result="success")
        }
    assert {key: number.count for key, number in found.items() if isinstance(number, Distribution)} == {
        ("send_message_v2", "success", "false"): 1,
        ("pull_message", "success", "false"): 1,
        ("pull_message", "topic_not_exist", "false"): 1,
        ("pull_message", "pull_not_found", "true"): 1,
    }
    held = found["pull_message", "pull_not_found", "true"]
    assert isinstance(held, Distribution)
    assert held.total >= 150


def held_pull(offset: int) -> PullMessageRequestHeader:
    return PullMessageRequestHeader(
        consumer_group=GROUP, topic=TOPIC, queue_id=0, queue_offset=offset, max_msg_nums=32, sys_flag=6,
        commit_offset=0, suspend_timeout_millis=200, subscription="*", sub_version=0, expression_type="TAG",
    )  # fmt: skip


async def test_latency_of_sends_that_wait_for_the_disk(tmp_path: Path) -> None:
    store = {"flush_disk_type": FlushDiskType.SYNC_FLUSH}
    async with running_broker(tmp_path, store=store, **_PROM) as (broker, client):
        await client.send()
        waited = await value(broker, "sprocket_send_wait", stage="flush")
        latency = await value(broker, "rocketmq_rpc_latency", request_code="send_message_v2")
        assert await points(broker, "sprocket_send_wait", stage="slave") == []
    assert isinstance(waited, Distribution)
    assert isinstance(latency, Distribution)
    assert waited.count == latency.count == 1
    assert 0 < waited.total <= latency.total


async def test_latencies_are_not_measured_without_an_exporter(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as (broker, client):
        await client.send()
        assert await points(broker, "rocketmq_rpc_latency") == []


async def test_lag_of_a_connected_group(tmp_path: Path) -> None:
    clock = ManualClock()
    async with running_broker(tmp_path, clock=clock) as (broker, client):
        await client.ask_well(RequestCode.UPDATE_AND_CREATE_TOPIC, create())
        broker.groups.update([SubscriptionGroupConfig(GROUP)])
        await client.heartbeat("c1", TOPIC)
        for queue_id in (0, 0, 0, 1):
            await client.send(queue_id=queue_id)
            clock.advance(1)
        await commit(client, 0, 1)
        await commit(client, 1, 0)
        await client.pull(queue_id=0, offset=1, sys_flag=4)  # its two messages are in flight
        labels = {"consumer_group": GROUP, "topic": TOPIC}
        assert await value(broker, "rocketmq_consumer_lag_messages", **labels, is_retry="false") == 3
        assert await value(broker, "rocketmq_consumer_lag_latency", **labels) == 3000
        assert await value(broker, "rocketmq_consumer_inflight_messages", **labels) == 2
        assert await value(broker, "rocketmq_consumer_ready_messages", **labels) == 1
        assert await value(broker, "rocketmq_consumer_queueing_latency", **labels) == 1000
        queues = await points(broker, "sprocket_consumer_queue_lag_messages", **labels)
        assert [(point["queue_id"], lag) for point, lag in queues] == [("0", 2), ("1", 1)]
        assert await value(broker, "sprocket_consumer_lag_skew", **labels) == pytest.approx(4 / 3)


async def test_group_that_has_left_and_no_longer_moves(tmp_path: Path) -> None:
    clock = ManualClock()
    async with running_broker(tmp_path, clock=clock) as (broker, client):
        await client.ask_well(RequestCode.UPDATE_AND_CREATE_TOPIC, create())
        broker.groups.update([SubscriptionGroupConfig(GROUP)])
        await client.send()
        await commit(client, 0, 0)
        labels = {"consumer_group": GROUP, "topic": TOPIC}
        assert await value(broker, "sprocket_consumer_stalled_time", **labels) == 0
        clock.advance(60)
        assert await points(broker, "rocketmq_consumer_lag_messages") == [], "RocketMQ shows connected groups only"
        assert await value(broker, "sprocket_consumer_group_connected", **labels) == 0
        assert await value(broker, "sprocket_consumer_stalled_time", **labels) == 60_000
        assert await value(broker, "sprocket_consumer_oldest_unacknowledged_age", **labels) == 60_000
        await commit(client, 0, 1)
        assert await value(broker, "sprocket_consumer_stalled_time", **labels) == 0
        assert await value(broker, "sprocket_consumer_oldest_unacknowledged_age", **labels) == 0


@pytest.mark.parametrize(("estimates", "scan", "lag"), [(True, 20_000, 5), (False, 20_000, 20), (True, 4, 5)])
async def test_lag_of_a_group_that_wants_one_tag(tmp_path: Path, estimates: bool, scan: int, lag: int) -> None:
    store = {"max_consume_queue_scan": scan}
    async with running_broker(tmp_path, store=store, estimate_accumulation=estimates) as (broker, client):
        await client.ask_well(RequestCode.UPDATE_AND_CREATE_TOPIC, create())
        broker.groups.update([SubscriptionGroupConfig(GROUP)])
        tag = SubscriptionData(
            TOPIC, sub_string="TagA", tags_set=["TagA"], code_set=[java_hash_code("TagA")], sub_version=1
        )
        body = HeartbeatData("c1", [], [ConsumerData(GROUP, subscription_data_set=[tag])])
        await client.ask_well(RequestCode.HEART_BEAT, HeartbeatRequestHeader(), dumps(body))
        for number in range(20):
            await client.send(TAGS="TagA" if number % 4 == 0 else "TagB")
        await commit(client, 0, 0)
        assert await value(broker, "rocketmq_consumer_lag_messages", consumer_group=GROUP) == lag


async def test_connections(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as (broker, client):
        await client.heartbeat("c1", TOPIC, producer_group="PG")
        labels = {"language": "python", "version": "v5_5_1"}
        assert await value(broker, "rocketmq_producer_connections", **labels) == 1
        assert await value(broker, "rocketmq_consumer_connections", consumer_group=GROUP, **labels) == 1


async def test_times_of_creations(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as (broker, client):
        await client.ask_well(RequestCode.UPDATE_AND_CREATE_TOPIC, create())
        await client.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, create("not/allowed"))
        for status in ("success", "failure"):
            times = await value(broker, "rocketmq_topic_create_execution_time", invocation_status=status)
            assert isinstance(times, Distribution)
            assert times.count == 1


async def test_page_of_a_broker(tmp_path: Path) -> None:
    async with running_broker(tmp_path, metrics_label="zone:a", **_PROM) as (broker, client):
        await client.send()
        page = await broker.export.page()
        assert b'rocketmq_messages_in_total{cluster="DefaultCluster",is_system="false",message_type="normal",' in page
        assert b'zone="a"' in page
        port = broker.export.port
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", port)


async def test_taken_port_stops_the_start(tmp_path: Path) -> None:
    async with running_broker(tmp_path / "a", **_PROM) as (broker, _):
        with pytest.raises(ConfigError, match="metricsPromExporterPort"):
            async with running_broker(tmp_path / "b", **_PROM | {"metrics_prom_exporter_port": broker.export.port}):
                pass


@pytest.mark.parametrize("switch", [field.name for field in fields(MetricSwitches)])
async def test_a_switch_leaves_its_group_of_metrics_out(tmp_path: Path, switch: str) -> None:
    async with running_broker(tmp_path / "on", store={"enable_lmq": True}, **_PROM) as (broker, _):
        everything = [reading.name async for reading in broker.metrics.read()]
    async with running_broker(tmp_path / "off", store={"enable_lmq": True}, **_PROM, **{switch: False}) as (broker, _):
        left = [reading.name async for reading in broker.metrics.read()]
    gone = set(everything) - set(left)
    assert left == [name for name in everything if name not in gone]
    assert gone
    assert all(not MetricSwitches(**{switch: False}).exports(name) for name in gone)
