"""RocketMQ's own admin tool against the cluster: exit status, and what an operator looks for in its output."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.compat import wire
from tests.compat.cluster import CLUSTER_NAME, Cluster
from tests.compat.java_client import AdminShell, mqadmin, run_scenarios

pytestmark = [pytest.mark.java, pytest.mark.timeout(900)]

Admin = Callable[..., str]
_PULL_MESSAGE = 11


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("admin")


@pytest.fixture(scope="module")
def admin(java: None, cluster: Cluster, home: Path) -> Iterator[Admin]:
    """Runs a command against the cluster and returns what it printed.  One JVM runs all of them."""
    shell = AdminShell(home)
    shell.run("clusterList", "-n", cluster.name_server_address)  # it loads its classes, and may time out

    def run(command: str, *arguments: str) -> str:
        printed = shell.run(command, "-n", cluster.name_server_address, *arguments)
        assert "Exception" not in printed, printed
        return printed

    yield run
    shell.close()


@pytest.fixture(scope="module")
def consumed(cluster: Cluster, home: Path) -> tuple[str, str]:
    """A topic and the group that has read its 40 messages and committed."""
    outcomes = run_scenarios(cluster.name_server_address, "5.3.3", "JSON", home, ("offset-over-restart",))
    assert outcomes["offset-over-restart"].passed, outcomes["offset-over-restart"].message
    suffix = f"533-json-{home.name}-offset-over-restart"
    return f"T-{suffix}", f"G-{suffix}"


def rows(output: str, first: str) -> list[list[str]]:
    """The words of the lines that begin with the word `first`; the tool's logging may print others."""
    return [words for words in (line.split() for line in output.splitlines()) if words and words[0] == first]


def test_the_command_itself(java: None, cluster: Cluster, home: Path) -> None:
    done = mqadmin(home, "clusterList", "-n", cluster.name_server_address)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert "Exception" not in done.stdout + done.stderr, f"{done.stdout}\n{done.stderr}"


def test_cluster_list(admin: Admin, cluster: Cluster) -> None:
    broker = cluster.brokers[0]
    (row,) = rows(admin("clusterList"), CLUSTER_NAME)
    assert row[1] == broker.name
    assert broker.address in row
    assert any(word.startswith("V") for word in row), "the broker's version"


def test_update_topic_then_list_route_and_status(admin: Admin, cluster: Cluster) -> None:
    created = admin("updateTopic", "-c", CLUSTER_NAME, "-t", "AdminTopic", "-r", "6", "-w", "5")
    assert "create topic to" in created
    assert "AdminTopic" in admin("topicList").split()
    route = admin("topicRoute", "-t", "AdminTopic")
    assert cluster.brokers[0].address in route
    assert '"readQueueNums":6' in route.replace(" ", "")
    assert '"writeQueueNums":5' in route.replace(" ", "")
    status = rows(admin("topicStatus", "-t", "AdminTopic"), cluster.brokers[0].name)
    assert [row[1:4] for row in status] == [[str(queue), "0", "0"] for queue in range(6)], "the larger of both numbers"


def test_topic_status_counts_messages(admin: Admin, cluster: Cluster, consumed: tuple[str, str]) -> None:
    status = rows(admin("topicStatus", "-t", consumed[0]), cluster.brokers[0].name)
    assert sum(int(row[3]) for row in status) == 40


def test_delete_topic(admin: Admin, cluster: Cluster) -> None:
    admin("updateTopic", "-b", cluster.brokers[0].address, "-t", "DoomedTopic", "-r", "2", "-w", "2")
    assert "DoomedTopic" in admin("topicList").split()
    assert "success" in admin("deleteTopic", "-c", CLUSTER_NAME, "-t", "DoomedTopic")
    assert "DoomedTopic" not in admin("topicList").split()
    route = wire.invoke(cluster.name_servers[0].address, wire.GET_ROUTEINFO_BY_TOPIC, {"topic": "DoomedTopic"})
    assert route.code == 17, "TOPIC_NOT_EXIST"


def test_broker_status(admin: Admin, cluster: Cluster) -> None:
    for target in (("-b", cluster.brokers[0].address), ("-c", CLUSTER_NAME)):
        output = admin("brokerStatus", *target)
        for word in ("bootTimestamp", "brokerVersionDesc", "putTps", "msgPutTotalTodayNow", "commitLogMaxOffset"):
            assert word in output, f"{word} is missing in\n{output}"


def test_consumer_progress_of_one_group(admin: Admin, consumed: tuple[str, str]) -> None:
    topic, group = consumed
    progress = admin("consumerProgress", "-g", group)
    queues = rows(progress, topic)
    assert sum(int(row[3]) for row in queues) == 40, progress
    assert sum(int(row[4]) for row in queues) == 40, progress
    assert "Diff Total: 0" in " ".join(progress.split())


def test_consumer_progress_of_all_groups(admin: Admin, consumed: tuple[str, str]) -> None:
    # The table cuts names at 64 characters.
    assert consumed[1][:60] in admin("consumerProgress")


def test_messages_are_found_by_key_id_and_offset(admin: Admin, cluster: Cluster, home: Path) -> None:
    outcomes = run_scenarios(cluster.name_server_address, "5.3.3", "JSON", home, ("view-message",))
    assert outcomes["view-message"].passed, outcomes["view-message"].message
    topic = f"T-533-json-{home.name}-view-message"
    table = admin("queryMsgByKey", "-t", topic, "-k", "customer-2")
    ids = [line.split()[0] for line in table.splitlines() if len(line.split()) == 3 and line.split()[0].isalnum()]
    assert len(ids) == 10, table
    by_unique_key = admin("queryMsgByUniqueKey", "-t", topic, "-i", ids[0])
    assert "order-2 customer-2" in by_unique_key
    by_id = admin("queryMsgById", "-t", topic, "-i", ids[0], "-f", "UTF-8")
    assert "query-2" in by_id
    (offset_id,) = [row[1] for row in rows(by_id, "OffsetID:")]
    assert "query-2" in admin("queryMsgById", "-t", topic, "-i", offset_id, "-f", "UTF-8")
    where = ("-b", cluster.brokers[0].name, "-i", "0", "-o", "0", "-f", "UTF-8")
    assert "OffsetID:" in admin("queryMsgByOffset", "-t", topic, *where)
    assert admin("printMsg", "-t", topic).count("MSGID:") == 30


def test_set_consume_mode(admin: Admin, cluster: Cluster, consumed: tuple[str, str]) -> None:
    topic, group = consumed
    address = cluster.brokers[0].address
    said = admin("setConsumeMode", "-b", address, "-t", topic, "-g", group, "-m", "POP", "-q", "2")
    assert f"set consume mode to {address} success." in said
    assert f"topic[{topic}] group[{group}] consume mode[POP] popShareQueueNum[2]" in said
    modes = wire.invoke(address, wire.GET_ALL_MESSAGE_REQUEST_MODE).body.decode()
    assert f'"{group}":{{' in modes
    assert '"mode":"POP"' in modes
    assert "set consume mode to" in admin("setConsumeMode", "-c", CLUSTER_NAME, "-t", topic, "-g", group, "-m", "PULL")
    assert '"mode":"PULL"' in wire.invoke(address, wire.GET_ALL_MESSAGE_REQUEST_MODE).body.decode()


def test_cold_reads_and_read_ahead(admin: Admin, cluster: Cluster, consumed: tuple[str, str]) -> None:
    address = cluster.brokers[0].address
    for mode in ("1", "0"):
        for target in (("-b", address), ("-c", CLUSTER_NAME)):
            said = admin("setCommitLogReadAheadMode", *target, "-m", mode)
            assert f"set commitlog readahead mode success, mode: {mode}" in said
    group = consumed[1]
    said = admin("updateColdDataFlowCtrGroupConfig", "-c", CLUSTER_NAME, "-g", group, "-v", "7654321")
    assert f"updateColdDataFlowCtrGroupConfig success, {address}" in said
    # Whatever is there is cold now, so that the group shows with what it reads.
    for key, value in (("accessMessageInMemoryHotRatio", "0"), ("coldDataFlowControlEnable", "true")):
        assert "success" in admin("updateBrokerConfig", "-b", address, "-k", key, "-v", value)
    pull = {
        "consumerGroup": group, "topic": consumed[0], "queueId": "0", "queueOffset": "0", "maxMsgNums": "8",
        "sysFlag": "4", "commitOffset": "0", "suspendTimeoutMillis": "0", "subscription": "*", "subVersion": "0",
        "expressionType": "TAG",
    }  # fmt: skip
    assert wire.invoke(address, _PULL_MESSAGE, pull).code == 0
    shown = admin("getColdDataFlowCtrInfo", "-b", address)
    assert f'"{group}":7654321' in shown.replace(" ", "")
    # Counted from 0 again every 5 s, which the tool itself may take to start; the group stays for a minute.
    assert '"coldAcc":' in shown
    assert "lastColdReadTimeFormat" in shown
    said = admin("removeColdDataFlowCtrGroupConfig", "-b", address, "-g", group)
    assert f"remove broker cold read threshold success, {address}" in said
    assert "7654321" not in admin("getColdDataFlowCtrInfo", "-c", CLUSTER_NAME)
    assert "success" in admin("updateBrokerConfig", "-b", address, "-k", "coldDataFlowControlEnable", "-v", "false")


def test_a_limit_of_reads_is_changed_while_the_broker_runs(admin: Admin, cluster: Cluster) -> None:
    target = ("-b", cluster.brokers[0].address, "-k", "maxTransferCountOnMessageInMemory")
    for value in ("64", "32"):
        assert "success" in admin("updateBrokerConfig", *target, "-v", value)
