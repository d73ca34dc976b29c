"""Commands against a running name server and broker, as a person or a script calls them."""

import json
import os
import subprocess
from uuid import uuid4

import pytest

from sprocket_cli import exit_codes
from tests.sprocket_cli.conftest import Cluster
from tests.sprocket_cli.programs import COMMAND, run


def sprocket(cluster: Cluster, *arguments: str, text: str | None = None) -> subprocess.CompletedProcess[str]:
    ended = run(cluster.folder, *arguments, "-n", cluster.namesrv, text=text)
    assert ended.returncode == 0, ended.stderr
    return ended


def mqadmin(cluster: Cluster, *arguments: str) -> list[str]:
    ended = run(cluster.folder, *arguments, "-n", cluster.namesrv, program="mqadmin")
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.splitlines()


@pytest.fixture
def topic(cluster: Cluster) -> str:
    """A topic of its own for one test, with two queues."""
    name = f"T{uuid4().hex}"
    sprocket(cluster, "topic", "create", name, "--queues", "2")
    return name


def test_what_is_sent_is_consumed(cluster: Cluster, topic: str) -> None:
    sent = sprocket(cluster, "send", topic, "--tag", "a", "-p", "colour=red", "--json", text="one\ntwo\nthree\n")
    results = [json.loads(line) for line in sent.stdout.splitlines()]
    assert [result["status"] for result in results] == ["SEND_OK"] * 3
    consumed = sprocket(
        cluster, "consume", topic, "-g", topic, "--from", "first", "--max", "3", "--wait", "30", "--json"
    )
    messages = [json.loads(line) for line in consumed.stdout.splitlines()]
    assert sorted(message["body"] for message in messages) == ["one", "three", "two"]
    assert {message["properties"]["colour"] for message in messages} == {"red"}
    assert {message["properties"]["TAGS"] for message in messages} == {"a"}


def test_group_goes_on_where_it_was(cluster: Cluster, topic: str) -> None:
    sprocket(cluster, "send", topic, text="1\n2\n3\n4\n")
    flags = ("-g", topic, "--from", "first", "--wait", "30")
    first = sprocket(cluster, "consume", topic, *flags, "--max", "4")
    assert "continues" not in first.stderr
    sprocket(cluster, "send", topic, "5")
    then = sprocket(cluster, "consume", topic, *flags, "--max", "1")
    assert (sorted(first.stdout.split()), then.stdout.split()) == (["1", "2", "3", "4"], ["5"])
    assert f"group {topic} continues: " in then.stderr and "queue 0 at offset 2 of " in then.stderr


def test_a_line_from_a_pipe_is_sent_before_the_next_one_comes(cluster: Cluster, topic: str) -> None:
    environment = {"HOME": str(cluster.folder), "PATH": os.environ["PATH"]}
    command = [*COMMAND, "send", topic, "-n", cluster.namesrv]
    pipe, nowhere = subprocess.PIPE, subprocess.DEVNULL
    with subprocess.Popen(command, stdin=pipe, stdout=nowhere, cwd=cluster.folder, env=environment) as sending:
        assert sending.stdin is not None
        for line in (b"first\n", b"second \xff\rhalf\n"):
            sending.stdin.write(line)
            sending.stdin.flush()
        flags = ("-g", topic, "--from", "first", "--max", "2", "--wait", "60", "--json")
        consumed = sprocket(cluster, "consume", topic, *flags).stdout.splitlines()
    assert sending.returncode == 0
    assert sorted(json.loads(line)["body"] for line in consumed) == ["first", "second \ufffd\rhalf"]


def test_offset_show_tells_the_lag(cluster: Cluster, topic: str) -> None:
    sprocket(cluster, "send", topic, text="1\n2\n3\n4\n")
    sprocket(cluster, "consume", topic, "-g", topic, "--from", "first", "--max", "4", "--wait", "30")
    sprocket(cluster, "send", topic, text="5\n6\n")
    shown = sprocket(cluster, "offset", "show", topic, "--topic", topic, "--json")
    rows = [row for row in json.loads(shown.stdout) if row["topic"] == topic]
    assert sum(row["brokerOffset"] for row in rows) == 6
    assert sum(row["lag"] for row in rows) == 2


def test_topic_commands(cluster: Cluster, topic: str) -> None:
    assert topic in json.loads(sprocket(cluster, "topic", "list", "--json").stdout)
    assert topic in sprocket(cluster, "topic", "list").stdout.split()
    [row] = json.loads(sprocket(cluster, "topic", "route", topic, "--json").stdout)
    assert (row["broker"], row["readQueues"], row["perm"]) == ("broker-a", 2, "RW-")
    assert row["address"] == cluster.broker.facts["address"]


def test_cluster_list(cluster: Cluster) -> None:
    [row] = json.loads(sprocket(cluster, "cluster", "list", "--json").stdout)
    assert (row["cluster"], row["broker"], row["active"]) == ("DefaultCluster", "broker-a", "true")
    assert "broker-a" in sprocket(cluster, "cluster", "list").stdout


def test_mqadmin_update_route_status_delete(cluster: Cluster) -> None:
    name = f"T{uuid4().hex}"
    lines = mqadmin(cluster, "updateTopic", "-c", "DefaultCluster", "-t", name, "-r", "3", "-w", "3")
    assert lines[0] == f"create topic to {cluster.broker.facts['address']} success."
    assert lines[1].startswith(f"TopicConfig [topicName={name}, readQueueNums=3, writeQueueNums=3, perm=RW-, ")
    assert name in mqadmin(cluster, "topicList")
    route = json.loads("\n".join(mqadmin(cluster, "topicRoute", "-t", name)).replace("{0:", '{"0":'))
    assert route["queueDatas"][0]["readQueueNums"] == 3
    assert mqadmin(cluster, "topicRoute", "-t", name, "-l")[-1].split() == ["Total:", "1", "3", "3"]
    sprocket(cluster, "send", name, text="1\n2\n")
    status = mqadmin(cluster, "topicStatus", "-t", name)
    rows = [line.split() for line in status[1:4]]
    assert [row[:2] for row in rows] == [["broker-a", "0"], ["broker-a", "1"], ["broker-a", "2"]]
    assert sum(int(row[3]) for row in rows) == 2
    assert mqadmin(cluster, "deleteTopic", "-c", "DefaultCluster", "-t", name) == [
        f"delete topic [{name}] from cluster [DefaultCluster] success.",
        f"delete topic [{name}] from NameServer success.",
    ]
    assert name not in mqadmin(cluster, "topicList")


def test_mqadmin_sets_the_order_of_a_topic_on_a_broker_by_any_form_of_its_address(cluster: Cluster) -> None:
    name, address = f"T{uuid4().hex}", str(cluster.broker.facts["address"])
    flags = ("updateTopic", "-t", name, "-o", "true", "-w", "3")
    assert mqadmin(cluster, *flags, "-b", f" {address}")[:2] == [
        "set broker orderConf. isOrder=true, orderConf=[broker-a:3]",
        f"create topic to {address} success.",
    ]
    named = f"localhost:{cluster.broker.port}"  # the same place as the registered address
    assert mqadmin(cluster, *flags, "-b", named)[:2] == [
        "set broker orderConf. isOrder=true, orderConf=[broker-a:3]",
        f"create topic to {named} success.",
    ]
    assert mqadmin(cluster, *flags, "-c", "DefaultCluster")[1].endswith("orderConf=[broker-a:3]")


@pytest.mark.parametrize("command", ["cleanExpiredCQ", "deleteExpiredCommitLog", "cleanUnusedTopic"])
def test_mqadmin_cleaning(cluster: Cluster, command: str) -> None:
    address = str(cluster.broker.facts["address"])
    for flags in ([], ["-c", "DefaultCluster"], ["-b", address]):
        assert mqadmin(cluster, command, *flags) == ["success"]
    ended = run(cluster.folder, command, "-c", "Nowhere", "-n", cluster.namesrv, program="mqadmin")
    assert (ended.returncode, ended.stdout) == (1, "")
    assert "cluster Nowhere is not known" in ended.stderr


def test_mqadmin_cold_reads(cluster: Cluster) -> None:
    address = str(cluster.broker.facts["address"])
    for flags, title in ((["-b", address], ""), (["-c", "DefaultCluster"], "Master: ")):
        for mode in ("1", "0"):
            assert mqadmin(cluster, "setCommitLogReadAheadMode", *flags, "-m", mode) == [
                f" ============{title}{address}============",
                f"commitLog set readAhead mode rstStrset commitlog readahead mode success, mode: {mode}",
            ]
        set_group = ("updateColdDataFlowCtrGroupConfig", *flags, "-g", "CG", "-v", "5000")
        assert mqadmin(cluster, *set_group) == [f"updateColdDataFlowCtrGroupConfig success, {address}"]
        info = mqadmin(cluster, "getColdDataFlowCtrInfo", *flags)
        assert info[0] == f" ============{title}{address}============"
        assert json.loads("\n".join(info[1:]))["configTable"] == {"CG": 5000}
        removed = mqadmin(cluster, "removeColdDataFlowCtrGroupConfig", *flags, "-g", "CG")
        assert removed == [f"remove broker cold read threshold success, {address}"]
        info = mqadmin(cluster, "getColdDataFlowCtrInfo", *flags)
        assert json.loads("\n".join(info[1:]))["configTable"] == {}
    ended = run(cluster.folder, "getColdDataFlowCtrInfo", "-n", cluster.namesrv, program="mqadmin")
    assert ended.returncode == 2


def test_mqadmin_cluster_list_and_broker_status(cluster: Cluster) -> None:
    line = mqadmin(cluster, "clusterList")[1].split()
    assert line[:4] == ["DefaultCluster", "broker-a", "0", cluster.broker.facts["address"]]
    assert line[-1] == "true"
    address = str(cluster.broker.facts["address"])
    status = dict(text.split(":", 1) for text in mqadmin(cluster, "brokerStatus", "-b", address))
    assert {key.strip() for key in status} >= {"brokerVersionDesc", "putTps", "msgPutTotalTodayNow", "bootTimestamp"}
    assert all(text.startswith(address) for text in mqadmin(cluster, "brokerStatus", "-c", "DefaultCluster"))


def test_mqadmin_consumer_progress(cluster: Cluster, topic: str) -> None:
    sprocket(cluster, "send", topic, text="1\n2\n3\n")
    sprocket(cluster, "consume", topic, "-g", topic, "--from", "first", "--max", "2", "--wait", "30")
    lines = mqadmin(cluster, "consumerProgress", "-g", topic)
    rows = [line.split() for line in lines[1:] if line.startswith(topic)]
    assert [row[1:3] for row in rows] == [["broker-a", "0"], ["broker-a", "1"]]
    assert f"Consume Diff Total: {sum(int(row[5]) for row in rows)}" in lines
    overview = [line.split() for line in mqadmin(cluster, "consumerProgress") if line.startswith(topic)]
    assert overview[0][:3] == [topic, "0", "OFFLINE"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["topicRoute", "-t", "NoSuchTopic"], "No topic route info in name server for the topic: NoSuchTopic"),
        (["deleteTopic", "-t", "T", "-c", "NoSuchCluster"], "cluster NoSuchCluster is not known"),
    ],
)
def test_refusal_ends_with_1_and_says_why(cluster: Cluster, arguments: list[str], message: str) -> None:
    ended = run(cluster.folder, *arguments, "-n", cluster.namesrv, program="mqadmin")
    assert ended.returncode == exit_codes.FAILURE
    assert message in ended.stderr


def test_name_server_that_is_not_there_ends_with_1(cluster: Cluster) -> None:
    ended = run(cluster.folder, "topicList", "-n", "127.0.0.1:1", program="mqadmin")
    assert ended.returncode == exit_codes.FAILURE
    assert "127.0.0.1:1" in ended.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["topicList"],
        ["updateTopic", "-t", "T", "-n", "127.0.0.1:1"],
        ["updateTopic", "-t", "T", "-b", "a:1", "-c", "C", "-n", "127.0.0.1:1"],
        ["noSuchCommand"],
    ],
)
def test_wrong_usage_ends_with_2(cluster: Cluster, arguments: list[str]) -> None:
    assert run(cluster.folder, *arguments, program="mqadmin").returncode == exit_codes.USAGE


def test_mqadmin_help_of_a_command(cluster: Cluster) -> None:
    shown = run(cluster.folder, "help", "updateTopic", program="mqadmin")
    assert shown.returncode == 0
    assert "--readQueueNums" in shown.stdout


def test_completion_knows_every_program(cluster: Cluster) -> None:
    script = run(cluster.folder, "completion", "zsh").stdout
    assert all(f"compdef _{name}_completion {name}" in script for name in ("sprocket", "mqadmin", "mqbroker"))


def test_consume_says_at_once_that_no_name_server_answers(cluster: Cluster) -> None:
    ended = run(cluster.folder, "consume", "Any", "-n", "127.0.0.1:1")
    assert ended.returncode == exit_codes.FAILURE
    assert "127.0.0.1:1" in ended.stderr
    assert ended.stderr.count("\n") == 1
