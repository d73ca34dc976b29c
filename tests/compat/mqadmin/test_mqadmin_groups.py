"""Our mqadmin beside RocketMQ's own: the same words, line by line."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner

from sprocket.client.admin.admin_client import AdminClient
from sprocket.client.consumer import Consumer
from sprocket.client.message import Message
from sprocket.client.producer import Producer
from sprocket.client.rebalance.start_offset import ConsumeFrom
from sprocket.client.transaction import TransactionProducer, TransactionState
from sprocket.remoting.bodies.group import SubscriptionGroupConfig
from sprocket.remoting.bodies.topic import TopicConfig
from sprocket.remoting.codec.fastjson import dumps
from sprocket.remoting.codes import RequestCode
from sprocket_cli.mqadmin.absent import ABSENT
from sprocket_cli.mqadmin.main import COMMANDS, main
from tests.background import in_background
from tests.compat.cluster import CLUSTER_NAME, Cluster
from tests.compat.java_client import AdminShell, mqadmin
from tests.compat.mqadmin.mqadmin_cases import NEWER

pytestmark = [pytest.mark.java, pytest.mark.timeout(900)]

TOPIC, GROUP, ONLINE = "AdminGroups", "GAdminGroups", "GAdminOnline"
Lines = list[list[str]]
Run = Callable[..., Lines]
# What is not done twice.
_ONCE = ("sendMessage", "checkMsgSendRT")


def words(output: str) -> Lines:
    return [line.split() for line in output.splitlines() if line.strip()]


@pytest.fixture(scope="module")
def theirs(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """RocketMQ's mqadmin."""
    shell = AdminShell(tmp_path_factory.mktemp("theirs"))

    def run(*arguments: str) -> Lines:
        output = shell.run(*arguments, "-n", cluster.name_server_address)
        if "RemotingTimeoutException" in output and arguments[0] not in _ONCE:
            output = shell.run(*arguments, "-n", cluster.name_server_address)  # it has just begun to load its classes
        assert "Exception" not in output, output
        return words(output)

    yield run
    shell.close()


def test_every_command_of_theirs_is_ours_or_on_the_page(java: None, tmp_path: Path) -> None:
    listed = {line.split()[0] for line in mqadmin(tmp_path).stdout.splitlines() if line.startswith("   ")}
    named = {name for names in COMMANDS.values() for name in names}
    assert named & ABSENT.keys() == set()
    # RocketMQ does not offer the first; the others are ours.
    own = {"getConsumerStatus", "forgetController", "exportBrokerGroups", "importBrokerGroups"}
    own |= {"updateQuota", "deleteQuota", "getQuota", "getQuotaUsage"}
    assert listed | NEWER == named - own | ABSENT.keys()


@pytest.fixture(scope="module")
def ours(cluster: Cluster) -> Run:
    def run(*arguments: str) -> Lines:
        done = CliRunner().invoke(main, [*arguments, "-n", cluster.name_server_address])
        assert done.exit_code == 0, done.output
        return words(done.output)

    return run


@pytest.fixture(scope="module", autouse=True)
def topic(cluster: Cluster) -> str:
    """Two queues with three messages each, and a group that has read none."""

    async def make() -> None:
        address = cluster.brokers[0].address
        async with (
            AdminClient([cluster.name_server_address]) as client,
            Producer("PG", cluster.name_server_address) as producer,
        ):
            await client.create_topic(address, TopicConfig(TOPIC, 2, 2))
            for group in (GROUP, f"{GROUP}2"):
                body = dumps(SubscriptionGroupConfig(group))
                await client.ask(address, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, body)
                await client.create_topic(address, TopicConfig(f"%RETRY%{group}", 1, 1))
            for queue in await producer.queues(TOPIC):
                for number in range(3):
                    await producer.send(Message(TOPIC, b"m%d" % number, tags="A"), queue=queue)

    asyncio.run(make())
    return TOPIC


@pytest.fixture(scope="module")
def online(cluster: Cluster, topic: str) -> Iterator[str]:
    """A consumer that has read the topic, and a producer of the group PGOnline."""

    @asynccontextmanager
    async def members() -> AsyncIterator[None]:
        servers = cluster.name_server_address
        async with (
            TransactionProducer("PGOnline", servers, checker=lambda _: TransactionState.UNKNOWN),
            Consumer(ONLINE, {topic: "*"}, servers, consume_from=ConsumeFrom.FIRST) as consumer,
        ):
            for _ in range(6):
                await consumer.ack(await anext(consumer))
            yield

    with in_background(members()):
        yield ONLINE


def test_resets_skips_and_clones(cluster: Cluster, theirs: Run, ours: Run) -> None:
    arguments = ("-g", GROUP, "-t", TOPIC)
    same_in_any_order(theirs("skipAccumulatedMessage", *arguments), ours("skipAccumulatedMessage", *arguments))
    for run, other in ((theirs, ours), (ours, theirs)):
        reset = run("resetOffsetByTime", *arguments, "-s", "0")
        assert sorted(row[1:] for row in reset[-2:]) == [["0", "0"], ["1", "0"]]
        same_in_any_order(reset, other("resetOffsetByTime", *arguments, "-s", "0"))
    one = ("-s", "0", "-b", cluster.brokers[0].address, "-q", "1", "-o", "2")
    assert theirs("resetOffsetByTime", *arguments, *one) == ours("resetOffsetByTime", *arguments, *one)
    clone = ("-s", GROUP, "-d", f"{GROUP}2", "-t", TOPIC)
    assert theirs("cloneGroupOffset", *clone) == ours("cloneGroupOffset", *clone)
    progress = ("-g", f"{GROUP}2", "-t", TOPIC)
    their_rows = [row for row in theirs("consumerProgress", *progress) if row[0] == TOPIC]
    assert [row[2:5] for row in their_rows] == [["0", "3", "0"], ["1", "3", "2"]]
    assert their_rows == [row for row in ours("consumerProgress", *progress) if row[0] == TOPIC]


def same_in_any_order(one: Lines, other: Lines) -> None:
    """RocketMQ prints the queues of a hash table."""
    assert sorted(one) == sorted(other)


def test_who_is_connected(
    cluster: Cluster, theirs: Run, ours: Run, online: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    same_in_any_order(theirs("consumerConnection", "-g", online), ours("consumerConnection", "-g", online))
    asked = ("producerConnection", "-g", "PGOnline", "-t", TOPIC)
    assert theirs(*asked) == ours(*asked)
    members = ("producer", "-b", cluster.brokers[0].address)

    def without_time(lines: Lines) -> Lines:
        return sorted(row[:-1] for row in lines if "(PGOnline)" in row)

    assert without_time(theirs(*members)) == without_time(ours(*members)) != []
    monkeypatch.chdir(tmp_path)
    client_id = ours("consumerConnection", "-g", online)[1][0]
    status = ("consumerStatus", "-g", online, "-i", client_id)
    one, other = theirs(*status), ours(*status)
    # RocketMQ prints the properties of a hash table.
    assert sorted(row[0] for row in one) == sorted(row[0] for row in other)
    for head in ("#Consumer", "#Topic", "001", "002"):
        assert [row for row in one if row[0] == head] == [row for row in other if row[0] == head]


def test_queues_and_figures(cluster: Cluster, theirs: Run, ours: Run) -> None:
    entries = ("queryCq", "-t", TOPIC, "-q", "0", "-i", "1", "-c", "2", "-g", GROUP)
    one = theirs(*entries)
    assert one == ours(*entries)
    assert sum(row[0] == "idx:" for row in one) == 2
    ours(
        "resetOffsetByTime", "-g", GROUP, "-t", TOPIC, "-s", "0", "-b", cluster.brokers[0].address, "-q", "0", "-o", "1"
    )
    stats = ("brokerConsumeStats", "-b", cluster.brokers[0].address)

    def of_topic(lines: Lines) -> Lines:
        return sorted(row for row in lines if row[0].startswith("#") or row[:2] == [TOPIC, GROUP])

    assert of_topic(theirs(*stats)) == of_topic(ours(*stats))
    assert [TOPIC, GROUP] in [row[:2] for row in ours(*stats)]
    totals = ("statsAll", "-t", TOPIC)
    # Rates change between two calls; names, lag and the head do not.
    assert sorted(row[:3] for row in theirs(*totals)) == sorted(row[:3] for row in ours(*totals))


def test_messages_sent_and_read(cluster: Cluster, theirs: Run, ours: Run) -> None:
    name = cluster.brokers[0].name
    sent = ("sendMessage", "-t", f"{TOPIC}Sent", "-p", "hello", "-k", "k", "-c", "A")
    ours("updateTopic", "-c", CLUSTER_NAME, "-t", f"{TOPIC}Sent", "-r", "1", "-w", "1")
    assert [row[:3] for row in theirs(*sent)[1:]] == [row[:3] for row in ours(*sent)[1:]] == [[name, "0", "SEND_OK"]]
    where = ("consumeMessage", "-t", f"{TOPIC}Sent", "-b", name, "-i", "0", "-o", "0", "-c", "1")

    def messages(lines: Lines) -> list[tuple[str, str]]:
        """Id and body."""
        return [(row[1], row[-1]) for row in lines if row[0] == "MSGID:"]

    (message,) = messages(ours(*where))
    assert messages(theirs(*where)) == [message]
    assert message[1] == "hello"
    times = theirs("checkMsgSendRT", "-t", TOPIC, "-a", "3")
    assert [row[2] for row in times[1:4]] == [row[2] for row in ours("checkMsgSendRT", "-t", TOPIC, "-a", "3")[1:4]]
    assert times[0] == ours("checkMsgSendRT", "-t", TOPIC, "-a", "2")[0]


def twice(theirs: Run, ours: Run, *arguments: str) -> Lines:
    """What both print, which is the same, in any order."""
    lines = ours(*arguments)
    same_in_any_order(theirs(*arguments), lines)
    return lines


def test_configurations(cluster: Cluster, theirs: Run, ours: Run) -> None:
    broker = cluster.brokers[0].address
    for target in (("-b", broker), ("-c", CLUSTER_NAME)):
        assert len(twice(theirs, ours, "getBrokerConfig", *target)) > 50
        change = ("-k", "maxTransferCountOnMessageInMemory", "-v", "32")
        twice(theirs, ours, "updateBrokerConfig", *target, *change)
    twice(theirs, ours, "updateBrokerConfig", "-c", CLUSTER_NAME, "-a", "true", *change)
    assert len(twice(theirs, ours, "getNamesrvConfig")) > 5
    twice(theirs, ours, "updateNamesrvConfig", "-k", "returnOrderTopicConfigToBroker", "-v", "true")


def test_what_name_servers_keep(cluster: Cluster, theirs: Run, ours: Run) -> None:
    order = ("updateOrderConf", "-t", TOPIC, "-m")
    twice(theirs, ours, *order, "put", "-v", "broker-a:2")
    assert twice(theirs, ours, *order, "get")[0][:3] == ["get", "orderConf", "success."]
    twice(theirs, ours, *order, "delete")
    twice(theirs, ours, "updateKvConfig", "-s", "N", "-k", "k", "-v", "v")
    twice(theirs, ours, "deleteKvConfig", "-s", "N", "-k", "k")
    name = cluster.brokers[0].name
    for command in ("wipeWritePerm", "addWritePerm"):
        assert theirs(command, "-b", name)[0][:-1] == ours(command, "-b", name)[0][:-1]
    twice(theirs, ours, "topicClusterList", "-t", TOPIC)
    # RocketMQ divides the queues of a hash table: the shares have the same sizes, not the same queues.
    shares = [json.loads(run("allocateMQ", "-t", TOPIC, "-i", "a,b")[0][0])["result"] for run in (theirs, ours)]
    queues = [sorted(queue["queueId"] for share in each.values() for queue in share) for each in shares]
    assert queues == [[0, 1], [0, 1]]


def test_groups_and_permissions(cluster: Cluster, theirs: Run, ours: Run, tmp_path: Path) -> None:
    broker, group = cluster.brokers[0].address, f"{GROUP}Made"
    policy = '{"type":"CUSTOMIZED","customizedRetryPolicy":{"next":[1000,5000]}}'
    made = ("updateSubGroup", "-g", group, "-r", "3", "-q", "2", "-s", "false", "-p", policy)
    for target in (("-b", broker), ("-c", CLUSTER_NAME)):
        twice(theirs, ours, *made, *target)
    exponential = '{"type":"EXPONENTIAL","exponentialRetryPolicy":{"initial":5,"max":7,"multiplier":2}}'
    twice(theirs, ours, "updateSubGroup", "-b", broker, "-g", group, "-p", exponential)
    assert len(twice(theirs, ours, "getConsumerConfig", "-g", group)) == 16
    twice(theirs, ours, "deleteSubGroup", "-b", broker, "-g", group, "-r", "true")
    assert twice(theirs, ours, "getConsumerConfig", "-g", group) == []
    groups, topics = tmp_path / "groups.json", tmp_path / "topics.json"
    groups.write_text(json.dumps([{"groupName": group}]))
    topics.write_text(json.dumps([{"topicName": f"{TOPIC}Listed", "readQueueNums": 2, "writeQueueNums": 2}]))
    for command, file in (("updateSubGroupList", groups), ("updateTopicList", topics)):
        twice(theirs, ours, command, "-b", broker, "-f", str(file))
    perm = ("updateTopicPerm", "-t", f"{TOPIC}Listed", "-b", broker, "-p")
    for new_perm, run, other in (("4", theirs, ours), ("6", ours, theirs)):
        changed = run(*perm, new_perm)
        assert [row[:6] for row in changed][:1] == [["update", "topic", "perm", "from", changed[0][4], "to"]]
        assert other(*perm, new_perm) == [["new", "perm", "equals", "to", "the", "old", "one!"]]


def test_replication_and_exports(cluster: Cluster, theirs: Run, ours: Run, tmp_path: Path) -> None:
    def without_offset(lines: Lines) -> Lines:
        return [row for row in lines if row[0] != "#MasterCommitLogMaxOffset"]

    status = ("haStatus", "-b", cluster.brokers[0].address)
    assert without_offset(theirs(*status)) == without_offset(ours(*status))
    twice(theirs, ours, "resetMasterFlushOffset", "-b", cluster.brokers[0].address, "-o", "0")
    for command, file in (("exportMetadata", "metadata"), ("exportConfigs", "configs"), ("exportMetrics", "metrics")):
        contents = []
        for run, folder in ((theirs, tmp_path / "theirs"), (ours, tmp_path / "ours")):
            run(command, "-c", CLUSTER_NAME, "-f", str(folder))
            contents.append(json.loads((folder / f"{file}.json").read_text()))
        one, other = contents
        if command == "exportMetrics":
            assert shape_of(one) == shape_of(other)
        else:
            one.pop("exportTime", None)
            other.pop("exportTime", None)
            assert one == other


def shape_of(value: object) -> object:
    """The keys of nested JSON objects."""
    return {key: shape_of(each) for key, each in value.items()} if isinstance(value, dict) else None


def test_messages_of_a_queue_and_sends(cluster: Cluster, theirs: Run, ours: Run) -> None:
    queue = ("printMsgByQueue", "-t", TOPIC, "-a", cluster.brokers[0].name, "-i", "0")
    assert twice(theirs, ours, *queue, "-f", "true") == [["Tag:", "A", "Count:", "3"]]
    one, other = (run(*queue, "-p", "true", "-d", "true", "-s", "A") for run in (theirs, ours))
    assert [(row[1], row[-1]) for row in one] == [(row[1], row[-1]) for row in other]
    assert len(one) == 3
    sent = [run("sendMsgStatus", "-b", cluster.brokers[0].name, "-c", "1")[0] for run in (theirs, ours)]
    names = [[word.partition("=")[0].strip("[,") for word in row] for row in sent]
    assert names[0] == names[1]
