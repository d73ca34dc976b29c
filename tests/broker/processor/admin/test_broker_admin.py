from pathlib import Path

import pytest

from broker.server import Broker
from sprocket.engine.choice import engine_of
from sprocket.remoting.bodies.stats import BrokerStatsData, HARuntimeInfo, KVTable
from sprocket.remoting.codec.fastjson import loads
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.headers.admin import ViewBrokerStatsDataRequestHeader, ViewMessageRequestHeader
from tests.broker.rig import GROUP, TOPIC, TestClient, running_broker, stored
from tests.clock import ManualClock

Pair = tuple[Broker, TestClient]


@pytest.mark.code(RequestCode.UPDATE_BROKER_CONFIG, RequestCode.GET_BROKER_CONFIG)
async def test_configuration_is_read_and_updated(pair: Pair) -> None:
    broker, client = pair
    response = await client.ask_well(RequestCode.GET_BROKER_CONFIG)
    lines = response.body.decode().splitlines()
    assert "brokerName=broker-a" in lines
    assert "autoCreateTopicEnable=true" in lines
    await client.ask_well(
        RequestCode.UPDATE_BROKER_CONFIG, body=b"autoCreateTopicEnable=false\ndefaultTopicQueueNums=2\n"
    )
    assert not broker.config.broker.auto_create_topic_enable
    assert broker.config.broker.default_topic_queue_nums == 2


@pytest.mark.parametrize(
    "text",
    [
        "storePathRootDir=/tmp/elsewhere",
        "brokerName=other",
        "listenPort=1",
        "rocketmqHome=/tmp",
        "noSuchKey=1",
        "autoCreateTopicEnable=perhaps",
        "brokerPermission=99",
        "brokerPermission=1",
    ],
)
async def test_refused_updates_change_nothing(pair: Pair, text: str) -> None:
    broker, client = pair
    before = broker.config.broker
    body = f"traceOn=false\n{text}\n".encode()
    response = await client.ask(RequestCode.UPDATE_BROKER_CONFIG, body=body)
    assert response.code == ResponseCode.NO_PERMISSION
    assert text.partition("=")[0] in (response.remark or "")
    assert broker.config.broker == before


@pytest.mark.code(RequestCode.GET_BROKER_RUNTIME_INFO)
async def test_runtime_info(pair: Pair) -> None:
    _, client = pair
    for _ in range(4):
        await client.send()
    await client.send(DELAY="18")
    response = await client.ask_well(RequestCode.GET_BROKER_RUNTIME_INFO)
    info = loads(response.body, KVTable).table
    assert info["brokerVersionDesc"] == "V5_5_1"
    assert info["sprocketEngine"] == engine_of("broker").name
    assert info["msgPutTotalTodayNow"] == "5"
    assert info["putMessageTimesTotal"] == "5"
    assert int(info["commitLogMaxOffset"]) > 0
    assert len(info["putTps"].split()) == 3
    assert info["commitLogDirCapacity"].startswith("Total : ")


async def test_monitors_find_every_figure_that_they_parse(pair: Pair) -> None:
    """rocketmq-exporter 0.0.3 drops all figures of a broker when one of these is no number or is not there."""
    response = await pair[1].ask_well(RequestCode.GET_BROKER_RUNTIME_INFO)
    info = loads(response.body, KVTable).table
    classes = ("send", "pull", "litePull", "query", "ack")
    figures = [
        f"{traffic}ThreadPoolQueue{of}" for traffic in classes for of in ("Size", "Capacity", "HeadWaitTimeMills")
    ]
    figures += ["EndTransactionQueueSize", "EndTransactionThreadPoolQueueCapacity"]
    figures += [
        f"msg{of}Total{day}" for of in ("Put", "Get") for day in ("TodayNow", "TodayMorning", "YesterdayMorning")
    ]
    figures += ["bootTimestamp", "commitLogMinOffset", "commitLogMaxOffset", "dispatchMaxBuffer", "dispatchBehindBytes"]
    figures += ["pageCacheLockTimeMills", "getMessageEntireTimeMax", "putMessageEntireTimeMax", "putMessageTimesTotal"]
    figures += ["putMessageFailedTimes", "putMessageSizeTotal", "earliestMessageTimeStamp", "brokerVersion"]
    figures += ["startAcceptSendRequestTimeStamp", "remainTransientStoreBufferNumbs"]
    figures += ["timerReadBehind", "timerOffsetBehind", "timerCongestNum"]
    assert {name: info.get(name) for name in figures} == {name: str(int(info.get(name, "0"))) for name in figures}
    for name in (
        "putMessageAverageSize",
        "commitLogDiskRatio",
        "consumeQueueDiskRatio",
        "putLatency99",
        "putLatency999",
    ):
        float(info[name])
    for name in ("putTps", "getFoundTps", "getMissTps", "getTotalTps", "getTransferredTps", "getTransferedTps"):
        assert len([float(rate) for rate in info[name].split(" ")]) == 3
    assert float(info["remainHowManyDataToFlush"].split(" ")[0]) >= 0
    assert info["runtime"].startswith("[ 0 days, ")


async def test_message_by_its_place_in_the_log(pair: Pair) -> None:
    broker, client = pair
    await client.send(b"payload")
    record = stored(broker, TOPIC, 0, 0)
    header = ViewMessageRequestHeader(offset=record.physical_offset)
    response = await client.ask_well(RequestCode.VIEW_MESSAGE_BY_ID, header)
    assert b"payload" in response.body
    assert len(response.body) == record.size_bytes
    response = await client.ask(RequestCode.VIEW_MESSAGE_BY_ID, ViewMessageRequestHeader(offset=1 << 40))
    assert response.code == ResponseCode.SYSTEM_ERROR


async def test_master_without_slaves(pair: Pair) -> None:
    broker, client = pair
    await client.send()
    response = await client.ask_well(RequestCode.GET_BROKER_HA_STATUS)
    info = loads(response.body, HARuntimeInfo)
    assert (info.master, info.in_sync_slave_nums) == (True, 0)
    assert info.master_commit_log_max_offset == broker.store.wrote_offset


async def test_statistics_that_are_not_kept_are_not_made_up(pair: Pair) -> None:
    _, client = pair
    header = ViewBrokerStatsDataRequestHeader(stats_name="TOPIC_PUT_NUMS", stats_key=TOPIC)
    response = await client.ask(RequestCode.VIEW_BROKER_STATS_DATA, header)
    assert response.code == ResponseCode.SYSTEM_ERROR
    assert response.remark == "The stats <TOPIC_PUT_NUMS> <Orders> not exist"


@pytest.mark.code(RequestCode.VIEW_BROKER_STATS_DATA)
async def test_what_a_topic_took_and_a_group_consumed(tmp_path: Path) -> None:
    clock = ManualClock()
    async with running_broker(tmp_path, clock=clock) as (broker, client):
        broker.traffic.sample()
        for count in (2, 3):
            for _ in range(count):
                await client.send()
            broker.offsets.commit(GROUP, TOPIC, 0, 2 * count - 4)
            clock.advance(10)
            broker.traffic.sample()
        for name, key, grown in (("TOPIC_PUT_NUMS", TOPIC, 5), ("GROUP_GET_NUMS", f"{TOPIC}@{GROUP}", 2)):
            header = ViewBrokerStatsDataRequestHeader(stats_name=name, stats_key=key)
            response = await client.ask_well(RequestCode.VIEW_BROKER_STATS_DATA, header)
            minute = loads(response.body, BrokerStatsData).stats_minute
            assert (minute.sum, minute.tps) == (grown, grown / 20)


async def test_what_a_whole_broker_took_and_gave(tmp_path: Path) -> None:
    clock = ManualClock()
    async with running_broker(tmp_path, clock=clock) as (broker, client):
        broker.traffic.sample()
        for _ in range(3):
            await client.send()
        assert (await client.pull()).code == ResponseCode.SUCCESS
        clock.advance(10)
        broker.traffic.sample()
        for name, grown in (("BROKER_PUT_NUMS", 3), ("BROKER_GET_NUMS", 3)):
            header = ViewBrokerStatsDataRequestHeader(
                stats_name=name, stats_key=broker.config.broker.broker_cluster_name
            )
            response = await client.ask_well(RequestCode.VIEW_BROKER_STATS_DATA, header)
            minute = loads(response.body, BrokerStatsData).stats_minute
            assert (minute.sum, minute.tps) == (grown, grown / 10)
