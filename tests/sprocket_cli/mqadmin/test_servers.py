"""`mqadmin` about configurations, values, write permissions and replication, against running servers."""

import json
from uuid import uuid4

import pytest

from tests.sprocket_cli.conftest import Cluster
from tests.sprocket_cli.mqadmin.conftest import Admin, address, runner


def test_the_configuration_of_a_broker(admin: Admin, cluster: Cluster) -> None:
    broker, key = address(cluster), "maxTransferCountOnMessageInMemory"
    for target in (("-b", broker), ("-c", "DefaultCluster"), ("-c", "DefaultCluster", "-a", "true")):
        said = admin("updateBrokerConfig", *target, "-k", key, "-v", "48")
        assert said[0] == f"update broker config success, {broker}"
    shown = admin("getBrokerConfig", "-b", broker)
    assert (shown[0], shown[-1]) == (f"============{broker}============", "")
    assert f"{key:<50}=  48" in shown
    assert admin("getBrokerConfig", "-c", "DefaultCluster")[0] == f"============Master: {broker}============"
    table = json.loads("".join(admin("getBrokerConfig", "-b", broker, "--json")))[broker]
    assert (table["brokerName"], table[key]) == ("broker-a", "48")
    admin("updateBrokerConfig", "-b", broker, "-k", key, "-v", "32")
    assert f"{key:<50}=  32" in admin("getBrokerConfig", "-b", broker)
    assert "listenPort" in admin("updateBrokerConfig", "-b", broker, "-k", "listenPort", "-v", "1", fails=True)[-1]


def test_the_configuration_of_name_servers(admin: Admin, cluster: Cluster) -> None:
    shown = admin("getNamesrvConfig")
    assert shown[0] == f"============{cluster.namesrv}============"
    key = "returnOrderTopicConfigToBroker"
    table = json.loads("".join(admin("getNamesrvConfig", "--json")))[cluster.namesrv]
    before = table[key]
    after = "false" if before == "true" else "true"
    for value in (after, before):
        said = admin("updateNamesrvConfig", "-k", key, "-v", value)
        assert said[:2] == [f"update name server config success![{cluster.namesrv}]", f"{key} : {value}"]
        assert f"{key:<50}=  {value}" in admin("getNamesrvConfig")
    assert "Can not update" in admin("updateNamesrvConfig", "-k", "listenPort", "-v", "1", fails=True)[-1]


def test_values_and_the_queues_of_ordered_topics(admin: Admin) -> None:
    topic = f"O{uuid4().hex[:8]}"
    order = ("updateOrderConf", "-t", topic, "-m")
    assert "has no orderConf" in admin(*order, "get", fails=True)[-1]
    assert "please set orderConf" in admin(*order, "put", fails=True)[-1]
    said = admin(*order, "put", "-v", "broker-a:4")
    assert said == [f"update orderConf success. topic=[{topic}], orderConf=[broker-a:4]"]
    got = f"get orderConf success. topic=[{topic}], orderConf=[broker-a:4] "
    assert admin(*order, "get") == [got]
    assert json.loads(admin(*order, "get", "--json")[0]) == {"topic": topic, "orderConf": "broker-a:4"}
    value = ("-s", "ORDER_TOPIC_CONFIG", "-k", topic)
    assert admin("updateKvConfig", *value, "-v", "broker-a:5") == ["create or update kv config to namespace success."]
    assert admin(*order, "get") == [got.replace("broker-a:4", "broker-a:5")]
    assert admin("deleteKvConfig", *value) == ["delete kv config from namespace success."]
    assert "has no orderConf" in admin(*order, "get", fails=True)[-1]
    admin(*order, "put", "-v", "broker-a:4")
    assert admin(*order, "delete") == [f"delete orderConf success. topic=[{topic}]"]
    assert "has no orderConf" in admin(*order, "get", fails=True)[-1]


def perm(admin: Admin, topic: str) -> str:
    return admin("topicRoute", "-t", topic, "-l")[1].split()[-1]


def test_write_permissions_of_a_broker(admin: Admin, cluster: Cluster) -> None:
    topic = f"W{uuid4().hex[:8]}"
    admin("updateTopic", "-b", address(cluster), "-t", topic, "-r", "1", "-w", "1")
    try:
        (said,) = admin("wipeWritePerm", "-b", "broker-a")
        begin = f"wipe write perm of broker[broker-a] in name server[{cluster.namesrv}] OK, "
        assert said.startswith(begin)
        assert int(said.removeprefix(begin)) > 0
        assert perm(admin, topic) == "4"
    finally:
        (said,) = admin("addWritePerm", "-b", "broker-a")
    assert said.startswith(f"add write perm of broker[broker-a] in name server[{cluster.namesrv}] OK, ")
    assert perm(admin, topic) == "6"
    assert json.loads(admin("wipeWritePerm", "-b", "broker-x", "--json")[0]) == {cluster.namesrv: 0}


def test_a_name_server_that_is_down_fails_the_command_after_the_others_were_asked(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sprocket_cli.patient_admin.START_LIMIT_S", 0.0)
    said = runner(f"127.0.0.1:1;{cluster.namesrv}")("addWritePerm", "-b", "broker-a", fails=True)
    assert said[0] == "add write perm of broker[broker-a] in name server[127.0.0.1:1] Failed"
    assert f"in name server[{cluster.namesrv}] OK, " in said[1]
    assert "127.0.0.1:1" in said[-1]


def test_replication_of_a_master_without_slaves(admin: Admin, cluster: Cluster) -> None:
    for target in (("-b", address(cluster)), ("-c", "DefaultCluster")):
        lines = admin("haStatus", *target)
        assert lines[:2] == ["", f"#MasterAddr\t{address(cluster)}"]
        assert lines[3:5] == ["#SlaveNum\t0", "#InSyncSlaveNum\t0"]
        assert lines[5].split()[0] == "#SlaveAddr"
    status = json.loads("".join(admin("haStatus", "-b", address(cluster), "--json")))[address(cluster)]
    assert (status["master"], status["haConnectionInfo"]) == (True, [])
    assert status["masterCommitLogMaxOffset"] == int(lines[2].split("\t")[1])


def test_a_master_ignores_what_is_for_slaves(admin: Admin, cluster: Cluster) -> None:
    said = admin("resetMasterFlushOffset", "-b", address(cluster), "-o", "4096")
    assert said == ["reset master flush offset to 4096 success"]
