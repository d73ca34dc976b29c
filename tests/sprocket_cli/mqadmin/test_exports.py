"""`mqadmin` that writes topics, groups, configurations and figures of a running cluster to files."""

import json
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from tests.sprocket_cli.conftest import Cluster
from tests.sprocket_cli.mqadmin.conftest import Admin, address


@pytest.fixture
def name(admin: Admin, cluster: Cluster) -> str:
    """Name of a topic, and of a group that has a retry topic."""
    name = f"X{uuid4().hex[:8]}"
    admin("updateTopic", "-b", address(cluster), "-t", name, "-r", "3", "-w", "2")
    admin("updateSubGroup", "-b", address(cluster), "-g", name, "-q", "2")
    admin("updateTopic", "-b", address(cluster), "-t", f"%RETRY%{name}", "-r", "1", "-w", "1")
    return name


def exported(admin: Admin, folder: Path, file: str, *arguments: str) -> Any:
    path = folder / "deep" / file
    assert admin(*arguments, "-f", str(folder / "deep")) == [f"export {path} success"]
    return json.loads(path.read_text())


def test_topics_and_groups_of_a_cluster(admin: Admin, name: str, tmp_path: Path) -> None:
    content = exported(admin, tmp_path, "metadata.json", "exportMetadata", "-c", "DefaultCluster")
    assert content.keys() == {"exportTime", "subscriptionGroupTable", "topicConfigTable"}
    topic = content["topicConfigTable"][name]
    assert (topic["readQueueNums"], topic["writeQueueNums"]) == (3, 2)
    assert content["subscriptionGroupTable"][name]["retryQueueNums"] == 2
    assert f"%RETRY%{name}" not in content["topicConfigTable"]
    assert not {"TBW102", "broker-a", "rmq_sys_wheel_timer"} & content["topicConfigTable"].keys()
    assert "TOOLS_CONSUMER" not in content["subscriptionGroupTable"]
    assert not [group for group in content["subscriptionGroupTable"] if group.startswith("CID_RMQ_SYS_")]


def test_one_table(admin: Admin, cluster: Cluster, name: str, tmp_path: Path) -> None:
    for target in (("-c", "DefaultCluster"), ("-b", address(cluster))):
        topics = exported(admin, tmp_path, "topic.json", "exportMetadata", *target, "-t", "-s")
        assert {name, f"%RETRY%{name}"} <= topics["topicConfigTable"].keys()
        assert "subscriptionGroupTable" not in topics
        groups = exported(admin, tmp_path, "subscriptionGroup.json", "exportMetadata", *target, "-g")
        assert name in groups["subscriptionGroupTable"]
        assert "topicConfigTable" not in groups
    assert "give -t or -g" in admin("exportMetadata", "-b", address(cluster), "-f", str(tmp_path), fails=True)[-1]


def test_an_export_can_be_applied_to_a_broker(admin: Admin, cluster: Cluster, name: str, tmp_path: Path) -> None:
    content = exported(admin, tmp_path, "metadata.json", "exportMetadata", "-c", "DefaultCluster")
    admin("deleteTopic", "-c", "DefaultCluster", "-t", name)
    admin("deleteSubGroup", "-b", address(cluster), "-g", name)
    for command, table in (("updateTopicList", "topicConfigTable"), ("updateSubGroupList", "subscriptionGroupTable")):
        file = tmp_path / "list.json"
        file.write_text(json.dumps([content[table][name]]))
        admin(command, "-b", address(cluster), "-f", str(file))
    again = exported(admin, tmp_path, "metadata.json", "exportMetadata", "-c", "DefaultCluster")
    for table in ("topicConfigTable", "subscriptionGroupTable"):
        assert again[table][name] == content[table][name]


def test_configurations(admin: Admin, tmp_path: Path) -> None:
    content = exported(admin, tmp_path, "configs.json", "exportConfigs", "-c", "DefaultCluster")
    assert content["clusterScale"] == {"masterBrokerSize": 1, "namesrvSize": 1, "slaveBrokerSize": 0}
    config = content["brokerConfigs"]["broker-a"]
    assert (config["brokerClusterName"], config["brokerId"]) == ("DefaultCluster", "0")
    assert "listenPort" not in config


def test_figures(admin: Admin, name: str, tmp_path: Path) -> None:
    content = exported(admin, tmp_path, "metrics.json", "exportMetrics", "-c", "DefaultCluster")
    broker = content["evaluateReport"]["broker-a"]
    assert broker.keys() == {"runtimeEnv", "runtimeQuota", "runtimeVersion"}
    quota = broker["runtimeQuota"]
    assert quota["topicSize"] >= 1
    assert quota["groupSize"] >= 1
    assert quota["tps"].keys() == {"normalInTps", "normalOutTps", "scheduleInTps", "transInTps"}
    totals = content["totalData"]
    assert totals["totalOneDayNum"] == quota["oneDayNum"]
    assert totals["totalTps"]["totalNormalInTps"] == quota["tps"]["normalInTps"]
    assert broker["runtimeVersion"]["rocketmqVersion"].startswith("V5_")


def test_a_folder_that_cannot_be_made(admin: Admin, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    said = admin("exportConfigs", "-c", "DefaultCluster", "-f", str(tmp_path / "file" / "x"), fails=True)
    assert "choose a folder with -f" in said[-1]
