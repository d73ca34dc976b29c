"""`mqadmin` about topics and groups: it changes what a running broker keeps."""

import json
from pathlib import Path
from uuid import uuid4

import pytest

from tests.sprocket_cli.conftest import Cluster
from tests.sprocket_cli.mqadmin.conftest import Admin, address


@pytest.fixture
def name() -> str:
    return f"M{uuid4().hex[:8]}"


def kept_topic(cluster: Cluster, topic: str) -> dict[str, object] | None:
    file = cluster.folder / "store" / "config" / "topics.json"
    return json.loads(file.read_text())["topicConfigTable"].get(topic)  # type: ignore[no-any-return]


def kept_group(cluster: Cluster, group: str) -> dict[str, object] | None:
    file = cluster.folder / "store" / "config" / "subscriptionGroup.json"
    return json.loads(file.read_text())["subscriptionGroupTable"].get(group)  # type: ignore[no-any-return]


def test_a_file_of_topics(admin: Admin, cluster: Cluster, name: str, tmp_path: Path) -> None:
    file = tmp_path / "topics.json"
    one = {"topicName": f"{name}a", "readQueueNums": 3, "writeQueueNums": 3, "attributes": {"+message.type": "FIFO"}}
    file.write_text(json.dumps([one, {"topicName": f"{name}b", "perm": 4}]))
    said = f"submit batch of topic config to {address(cluster)} success, please check the result later."
    assert admin("updateTopicList", "-c", "DefaultCluster", "-f", str(file)) == [said]
    first, second = kept_topic(cluster, f"{name}a"), kept_topic(cluster, f"{name}b")
    assert first is not None
    assert second is not None
    assert (first["readQueueNums"], first["attributes"]) == (3, {"message.type": "FIFO"})
    assert (second["readQueueNums"], second["perm"]) == (16, 4)
    file.write_text("[]")
    assert admin("updateTopicList", "-b", address(cluster), "-f", str(file)) == []


@pytest.mark.parametrize("command", ["updateTopicList", "updateSubGroupList"])
@pytest.mark.parametrize(("content", "reason"), [(None, "does not exists"), ("{}", "is no JSON list of")])
def test_a_file_that_is_no_list(
    admin: Admin, cluster: Cluster, command: str, content: str | None, reason: str, tmp_path: Path
) -> None:
    file = tmp_path / "list.json"
    if content is not None:
        file.write_text(content)
    assert reason in admin(command, "-b", address(cluster), "-f", str(file), fails=True)[-1]


def test_the_permission_of_a_topic_alone(admin: Admin, cluster: Cluster, name: str) -> None:
    broker = address(cluster)
    make = ("updateTopic", "-b", broker, "-t", name, "-r", "2", "-w", "1", "-a", "+message.type=FIFO")
    admin(*make)
    changed = admin("updateTopicPerm", "-b", broker, "-t", name, "-p", "4")
    assert changed[0] == f"update topic perm from 6 to 4 in {broker} success."
    assert changed[1].startswith(f"TopicConfig [topicName={name}, readQueueNums=2, writeQueueNums=1, perm=R--,")
    kept = kept_topic(cluster, name)
    assert kept is not None
    assert (kept["readQueueNums"], kept["writeQueueNums"], kept["perm"]) == (2, 1, 4)
    assert kept["attributes"] == {"message.type": "FIFO"}
    assert admin("updateTopicPerm", "-b", broker, "-t", name, "-p", "4") == ["new perm equals to the old one!"]
    said = f"update topic perm from 4 to 6 in {broker} success."
    assert admin("updateTopicPerm", "-c", "DefaultCluster", "-t", name, "-p", "6") == [said]
    assert "has no topic" in admin("updateTopicPerm", "-b", broker, "-t", f"{name}x", "-p", "6", fails=True)[-1]


def test_where_a_topic_is_and_who_would_read_it(admin: Admin, cluster: Cluster, name: str) -> None:
    admin("updateTopic", "-b", address(cluster), "-t", name, "-r", "3", "-w", "3")
    assert admin("topicClusterList", "-t", name) == ["DefaultCluster"]
    assert admin("topicClusterList", "-t", name, "--json") == ['["DefaultCluster"]']
    (line,) = admin("allocateMQ", "-t", name, "-i", "10.0.0.1,10.0.0.2")
    shares = json.loads(line)["result"]
    assert [each["queueId"] for each in shares["10.0.0.1"]] == [0, 1]
    assert shares["10.0.0.2"] == [{"brokerName": "broker-a", "queueId": 2, "topic": name}]


def test_a_group_from_its_creation_to_its_end(admin: Admin, cluster: Cluster, name: str) -> None:
    broker = address(cluster)
    policy = '{"type":"EXPONENTIAL","exponentialRetryPolicy":{"initial":5000,"max":7200000,"multiplier":2}}'
    said = admin("updateSubGroup", "-b", broker, "-g", name, "-r", "3", "-q", "2", "-o", "true", "-p", policy)
    assert said[0] == f"create subscription group to {broker} success."
    assert said[1].startswith(
        f"SubscriptionGroupConfig{{groupName={name}, consumeEnable=true, consumeFromMinEnable=false, "
        "consumeBroadcastEnable=false, consumeMessageOrderly=true, retryQueueNums=2, retryMaxTimes=3, "
        "groupRetryPolicy=GroupRetryPolicy{type=EXPONENTIAL, exponentialRetryPolicy=ExponentialRetryPolicy{initial=5000"
    )
    assert said[1].endswith("consumeTimeoutMinute=15, subscriptionDataSet=null, attributes={}}")
    kept = kept_group(cluster, name)
    assert kept is not None
    assert (kept["retryMaxTimes"], kept["consumeMessageOrderly"]) == (3, True)
    shown = admin("getConsumerConfig", "-g", name)
    assert shown[0] == f"{'=' * 29}DefaultCluster:broker-a{'=' * 29}"
    assert f"{'retryMaxTimes':<40}=  3" in shown
    assert f"{'subscriptionDataSet':<40}=  " in shown
    (row,) = json.loads("".join(admin("getConsumerConfig", "-g", name, "--json")))
    assert (row["cluster"], row["groupName"], row["retryQueueNums"]) == ("DefaultCluster", name, 2)
    assert admin("getConsumerConfig", "-g", f"{name}x") == []
    admin("updateTopic", "-b", broker, "-t", f"%RETRY%{name}", "-r", "1", "-w", "1")
    assert admin("deleteSubGroup", "-c", "DefaultCluster", "-g", name, "-r", "true") == [
        f"delete subscription group [{name}] from broker [{broker}] in cluster [DefaultCluster] success."
    ]
    assert kept_group(cluster, name) is None
    assert kept_topic(cluster, f"%RETRY%{name}") is None


def test_a_file_of_groups(admin: Admin, cluster: Cluster, name: str, tmp_path: Path) -> None:
    file = tmp_path / "groups.json"
    file.write_text(json.dumps([{"groupName": f"{name}a"}, {"groupName": f"{name}b", "consumeEnable": False}]))
    for target, kind in (
        (("-b", address(cluster)), "group"),
        (("-c", "DefaultCluster"), "subscription group"),
    ):
        said = f"submit batch of {kind} config to {address(cluster)} success, please check the result later."
        assert admin("updateSubGroupList", *target, "-f", str(file)) == [said]
    second = kept_group(cluster, f"{name}b")
    assert kept_group(cluster, f"{name}a") is not None
    assert second is not None
    assert second["consumeEnable"] is False
    said = f"delete subscription group [{name}a] from broker [{address(cluster)}] success."
    assert admin("deleteSubGroup", "-b", address(cluster), "-g", f"{name}a") == [said]
    assert kept_group(cluster, f"{name}a") is None


def test_a_retry_policy_that_is_no_json(admin: Admin, cluster: Cluster, name: str) -> None:
    said = admin("updateSubGroup", "-b", address(cluster), "-g", name, "-p", "often", fails=True)
    assert "allowed is JSON such as" in said[-1]
    assert kept_group(cluster, name) is None
