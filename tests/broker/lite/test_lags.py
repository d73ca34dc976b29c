"""Lag of groups in lite topics: what a broker exports, and that no path looks at all lite topics."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

from broker.server import Broker
from sprocket.common.next_turn import at_once
from sprocket.metrics.settings import ExporterType
from sprocket.remoting.bodies.lite import GetBrokerLiteInfoResponseBody, GetLiteGroupInfoResponseBody
from sprocket.remoting.codec.fastjson import loads
from sprocket.remoting.codes import RequestCode
from sprocket.remoting.headers.lite import GetLiteGroupInfoRequestHeader
from sprocket.remoting.message.lite_topics import lite_queue
from store.message_store import MessageStore
from tests.broker.lite.rig import GROUP, PARENT, ack, lite_broker, popped, send_lite, subscribe
from tests.broker.metrics.test_exported_metrics import points
from tests.broker.rig import TestClient

_LABELS = {"consumer_group": GROUP, "topic": PARENT, "is_retry": "false", "is_system": "false"}
_COUNT = 300
_FEW = 40


@contextmanager
def counted_looks() -> Iterator[list[str]]:
    """The light queues whose ends or times somebody asks the store for."""
    looks: list[str] = []
    max_offset, store_time = MessageStore.max_offset, MessageStore.store_time

    def look(store: MessageStore, topic: str, queue_id: int) -> int:
        looks.append(topic)
        return max_offset(store, topic, queue_id)

    def read(store: MessageStore, topic: str, queue_id: int, offset: int) -> int:
        looks.append(topic)
        return store_time(store, topic, queue_id, offset)

    with patch.object(MessageStore, "max_offset", look), patch.object(MessageStore, "store_time", read):
        yield looks


async def _lags(client: TestClient, top_k: int = 2) -> GetLiteGroupInfoResponseBody:
    header = GetLiteGroupInfoRequestHeader(group=GROUP, top_k=top_k)
    response = await client.ask_well(RequestCode.GET_LITE_GROUP_INFO, header)
    return loads(response.body, GetLiteGroupInfoResponseBody)


async def _consumed(client: TestClient, *lites: str) -> None:
    """Give the group an offset in each lite topic."""
    await subscribe(client, "c1", *lites)
    for lite in lites:
        await send_lite(client, lite, b"first")
    while messages := await popped(client, "c1"):
        for message in messages:
            assert (await ack(client, message)).code == 0


async def _exported(broker: Broker, name: str) -> list[tuple[dict[str, str], float]]:
    return [(dict(labels), float(str(value))) for labels, value in await points(broker, name, consumer_group=GROUP)]


async def test_the_lag_of_a_group_is_exported_with_the_switches_of_rocketmq(tmp_path: Path) -> None:
    async with lite_broker(
        tmp_path,
        metrics_exporter_type=ExporterType.PROM,
        metrics_prom_exporter_port=0,
        lite_lag_count_metrics_enable=True,
        lite_lag_latency_metrics_enable=True,
    ) as (broker, client):
        await _consumed(client, "a", "b")
        for lite in ("a", "a", "b"):
            await send_lite(client, lite, b"next")
        for name in ("rocketmq_consumer_lag_messages", "rocketmq_consumer_ready_messages"):
            (labels, count) = (await _exported(broker, name))[0]
            assert labels.items() >= _LABELS.items()
            assert count == 3
        ((_, age_ms),) = await _exported(broker, "rocketmq_consumer_lag_latency")
        assert age_ms >= 0
        await ack(client, (await popped(client, "c1", max_msg_num=1))[0])
        assert [count for _, count in await _exported(broker, "rocketmq_consumer_lag_messages")] == [2]
        broker.offsets.assign(GROUP, lite_queue(PARENT, "b"), 0, 0)  # moved back by an operator
        assert [count for _, count in await _exported(broker, "rocketmq_consumer_lag_messages")] == [3]


async def test_without_the_switches_lite_topics_are_in_no_metric_of_lag(tmp_path: Path) -> None:
    async with lite_broker(
        tmp_path, metrics_exporter_type=ExporterType.PROM, metrics_prom_exporter_port=0
    ) as (broker, client):  # fmt: skip
        await _consumed(client, "a")
        await send_lite(client, "a", b"next")
        with counted_looks() as looks:
            async for reading in broker.metrics.read():
                if "consumer" in reading.name:
                    for labels, _ in reading.points:
                        assert "%LMQ%" not in str(labels), "one series for each lite topic would be too many"
                        assert reading.name.endswith("connections") or labels.get("topic") != PARENT
        assert [queue for queue in looks if "%LMQ%" in queue] == []


async def test_no_path_looks_at_all_lite_topics(tmp_path: Path) -> None:
    async with lite_broker(
        tmp_path,
        metrics_exporter_type=ExporterType.PROM,
        metrics_prom_exporter_port=0,
        lite_lag_count_metrics_enable=True,
        lite_lag_latency_metrics_enable=True,
    ) as (broker, client):
        await _consumed(client, *(f"l{number}" for number in range(_COUNT)))
        assert (await _lags(client)).total_lag_count == 0  # kept from now on
        with counted_looks() as looks:
            await send_lite(client, "l7", b"x")
            await send_lite(client, "l7", b"y")
            await send_lite(client, "l9", b"z")
            lags = await _lags(client)
            assert lags.total_lag_count == 3
            assert [(lag.lite_topic, lag.lag_count) for lag in lags.lag_count_top_k or []] == [("l7", 2), ("l9", 1)]
            assert [lag.lite_topic for lag in lags.lag_timestamp_top_k or []] == ["l7", "l9"]
            assert [count for _, count in await _exported(broker, "rocketmq_consumer_lag_messages")] == [3]
            body = loads((await client.ask_well(RequestCode.GET_BROKER_LITE_INFO)).body, GetBrokerLiteInfoResponseBody)
            assert (body.current_lmq_num, body.order_info_count) == (_COUNT, 0)
            broker.traffic.sample()
            for message in await popped(client, "c1"):
                await ack(client, message)
            assert (await _lags(client)).total_lag_count == 0
        assert len([queue for queue in looks if "%LMQ%" in queue]) < _FEW


async def test_who_asks_while_another_reads_the_lag_or_has_given_up_gets_all_of_it(tmp_path: Path) -> None:
    async with lite_broker(tmp_path) as (broker, client):
        lites = [f"l{number}" for number in range(_COUNT)]
        await _consumed(client, *lites)
        for lite in lites:
            await send_lite(client, lite, b"next")
        lags = broker.pop.lite.lags
        given_up, slow = lags.of_group(PARENT, GROUP), lags.of_group(PARENT, GROUP)
        next(given_up)
        given_up.close()
        next(slow)
        assert at_once(lags.of_group(PARENT, GROUP)).total == _COUNT
        assert at_once(slow).total == _COUNT
        assert (await _lags(client)).total_lag_count == _COUNT
