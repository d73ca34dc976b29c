"""Layouts that scripts of operators read: literal lines, as RocketMQ's commands print them."""

import pytest

from sprocket.remoting.bodies.client import MessageQueue
from sprocket.remoting.bodies.route import BrokerData, QueueData, TopicRouteData
from sprocket.remoting.bodies.stats import ConsumeStats, OffsetWrapper
from sprocket.remoting.bodies.topic import TopicConfig
from sprocket.remoting.version_names import version_text
from sprocket_cli.client_session import WrongUsage
from sprocket_cli.columns import fitted, millis_text, perm_text
from sprocket_cli.mqadmin.broker import Member, cluster_lines, more_lines
from sprocket_cli.mqadmin.consumer.consumer import progress_lines, queue_progress
from sprocket_cli.mqadmin.java_form import java_form
from sprocket_cli.mqadmin.topic import parse_attributes, route_lines, topic_config_text

RUNTIME = {
    "brokerActive": "true",
    "putTps": "12.345 10.0 9.0",
    "getTransferredTps": "0.0",
    "sendThreadPoolQueueSize": "3",
    "pullThreadPoolQueueSize": "0",
    "sendThreadPoolQueueHeadWaitTimeMills": "5",
    "pullThreadPoolQueueHeadWaitTimeMills": "0",
    "pageCacheLockTimeMills": "0",
    "earliestMessageTimeStamp": "1000",
    "commitLogDiskRatio": "0.25",
    "brokerVersionDesc": "V5_3_3",
    "msgPutTotalTodayNow": "30",
    "msgPutTotalTodayMorning": "10",
    "msgPutTotalYesterdayMorning": "4",
    "msgGetTotalTodayNow": "7",
    "msgGetTotalTodayMorning": "2",
    "msgGetTotalYesterdayMorning": "1",
}


def test_cluster_list_line() -> None:
    line = cluster_lines([Member("DefaultCluster", "broker-a", 0, "10.0.0.1:10911", RUNTIME)], 7_201_000)[1]
    # Printed by Java with the format strings of `ClusterListSubCommand`.
    assert line == (
        "DefaultCluster          broker-a                0     10.0.0.1:10911         V5_3_3         "
        "       12.35(3,5ms)               0.00(0,0ms|N,Nms)  0-0(0.0w, 0.0, 0.0)               0"
        "  2.00          0.2500          true"
    )


def test_broker_that_does_not_answer_still_has_a_line() -> None:
    line = cluster_lines([Member("c", "b", 0, "10.0.0.1:10911", {})], 0)[1]
    assert line.split()[:4] == ["c", "b", "0", "10.0.0.1:10911"]
    assert line.endswith("false")


def test_cluster_list_more_counts_yesterday_and_today() -> None:
    line = more_lines([Member("c", "b", 0, "a", RUNTIME)])[1]
    assert line.split() == ["c", "b", "6", "1", "20", "5"]


def test_topic_route_list() -> None:
    route = TopicRouteData(
        queue_datas=[QueueData("broker-b", 4, 4, 6), QueueData("broker-a", 8, 8, 6)],
        broker_datas=[
            BrokerData("C", "broker-b", {0: "2:1"}),
            BrokerData("C", "broker-a", {1: "1:2", 0: "1:1"}),
        ],
    )
    lines = route_lines(route)
    assert [line.split() for line in lines[1:3]] == [
        ["C", "broker-a", "{0=1:1,", "1=1:2}", "8", "8", "6"],
        ["C", "broker-b", "{0=2:1}", "4", "4", "6"],
    ]
    assert lines[3] == "-" * 158
    assert lines[4].split() == ["Total:", "2", "12", "12"]


def test_consumer_progress() -> None:
    stats = ConsumeStats({MessageQueue("T", "broker-a", 1): OffsetWrapper(10, 4, 6, 0)}, 1.5)
    lines = progress_lines(queue_progress(stats), stats.consume_tps)
    head = "#Topic #Broker Name #QID #Broker Offset #Consumer Offset #Diff #Inflight #LastTime"
    assert lines[0].split() == head.split()
    assert lines[1].split() == ["T", "broker-a", "1", "10", "4", "6", "2", "N/A"]
    assert lines[2:] == ["", "Consume TPS: 1.50", "Consume Diff Total: 6", "Consume Inflight Total: 2"]


def test_consumer_progress_with_the_holder_of_each_queue() -> None:
    offsets = OffsetWrapper(10, 4, 6, 0)
    stats = ConsumeStats({MessageQueue("T", "b", 0): offsets, MessageQueue("T", "b", 1): offsets})
    lines = progress_lines(queue_progress(stats), 0.0, {("T", "b", 1): "10.0.0.9"})
    assert [line.split()[5] for line in lines[1:3]] == ["N/A", "10.0.0.9"]


def test_topic_config_prints_as_java_does() -> None:
    assert topic_config_text(TopicConfig("T", 8, 8, attributes={"+a": "b"})) == (
        "TopicConfig [topicName=T, readQueueNums=8, writeQueueNums=8, perm=RW-, topicFilterType=SINGLE_TAG, "
        "topicSysFlag=0, order=false, attributes={+a=b}]"
    )


def test_attribute_changes() -> None:
    assert parse_attributes("+a=b,-c") == {"+a": "b", "-c": ""}


@pytest.mark.parametrize("text", ["a=b", "c", "+a=1,+a=2"])
def test_attribute_change_without_its_sign_is_refused(text: str) -> None:
    with pytest.raises(WrongUsage):
        parse_attributes(text)


@pytest.mark.parametrize(
    ("version", "name"),
    [
        (213, "V4_0_0"),
        (409, "V4_9_8"),
        (413, "V5_0_0"),
        (478, "V5_3_3_SNAPSHOT"),
        (479, "V5_3_3"),
        (515, "V5_5_1"),
        (7, "7"),
    ],
)
def test_version_of_a_client(version: int, name: str) -> None:
    assert version_text(version) == name


def test_fitted_columns_put_numbers_to_the_right() -> None:
    assert fitted(("name", "n"), [("a", 5), ("bcdef", 100)]) == ["name     n", "a        5", "bcdef  100"]
    assert fitted(("name", "n"), []) == ["name  n"]


def test_small_pieces() -> None:
    assert java_form({0: "a"}) == "{0=a}"
    assert [perm_text(perm) for perm in (6, 4, 2, 7)] == ["RW-", "R--", "-W-", "RWX"]
    assert millis_text(1_700_000_000_123).endswith(":20,123")
