"""`mqadmin` about groups, offsets, connections and figures, in this process against a running cluster."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from uuid import uuid4

import pytest
from click.testing import CliRunner

from sprocket.client.admin.admin_client import AdminClient
from sprocket.client.admin.group_admin import GroupAdmin
from sprocket.client.admin.message_lookup import MessageLookup
from sprocket.client.consumer import Consumer
from sprocket.client.message import Message
from sprocket.client.producer import Producer
from sprocket.client.rebalance.start_offset import ConsumeFrom
from sprocket.remoting.bodies.client import MessageQueue, SubscriptionData
from sprocket.remoting.bodies.consumption import ConsumerRunningInfo, PopProcessQueueInfo, ProcessQueueInfo
from sprocket.remoting.bodies.group import SubscriptionGroupConfig
from sprocket.remoting.bodies.topic import TopicConfig
from sprocket.remoting.codec.fastjson import dumps, loads
from sprocket.remoting.codes import RequestCode
from sprocket.remoting.headers.send import ConsumerSendMsgBackRequestHeader
from sprocket_cli.main import main as sprocket
from sprocket_cli.mqadmin.consumer.running_info_text import diagnosis, running_info_text
from sprocket_cli.mqadmin.main import main
from sprocket_cli.mqadmin.monitor import notices
from tests.background import in_background
from tests.sprocket_cli.conftest import Cluster

Admin = Callable[..., list[str]]


@pytest.fixture
def admin(cluster: Cluster) -> Admin:
    def run(*arguments: str, fails: bool = False) -> list[str]:
        done = CliRunner().invoke(main, [*arguments, "-n", cluster.namesrv])
        assert (done.exit_code != 0) == fails, done.output
        return done.output.splitlines()

    return run


@pytest.fixture
def topic(cluster: Cluster) -> str:
    """A topic of its own with two queues and three messages in each."""
    name = f"T{uuid4().hex[:8]}"

    async def make() -> None:
        async with AdminClient([cluster.namesrv]) as client, Producer("PG", cluster.namesrv) as producer:
            await client.create_topic(address(cluster), TopicConfig(name, 2, 2))
            for queue in await producer.queues(name):
                for number in range(3):
                    await producer.send(Message(name, b"m%d" % number), queue=queue)

    asyncio.run(make())
    return name


def broker_name(admin: Admin) -> str:
    return admin("clusterList")[1].split()[1]


def address(cluster: Cluster) -> str:
    return f"127.0.0.1:{cluster.broker.port}"


def offsets(admin: Admin, group: str, topic: str) -> list[int]:
    rows = json.loads("\n".join(admin("consumerProgress", "-g", group, "-t", topic, "-c", topic, "--json")))
    return [row["consumer_offset"] for row in rows if row["topic"] == topic]


@pytest.fixture
def online(cluster: Cluster, topic: str) -> Iterator[str]:
    """A group with one consumer that has read the topic, and a producer of the group PG-<topic>."""
    group = f"G{topic}"

    @asynccontextmanager
    async def members() -> AsyncIterator[None]:
        async with (
            Producer(f"PG-{topic}", cluster.namesrv) as producer,
            Consumer(group, {topic: "*"}, cluster.namesrv, consume_from=ConsumeFrom.FIRST) as consumer,
        ):
            await producer.queues(topic)
            await producer._instance.heartbeat_all()
            for _ in range(6):
                await consumer.ack(await anext(consumer))
            await cluster.await_route(f"%RETRY%{group}")
            yield

    with in_background(members()):
        yield group


# Offsets


def test_reset_of_a_group_that_is_offline(admin: Admin, cluster: Cluster, topic: str) -> None:
    group, name = f"G{topic}", broker_name(admin)
    admin("skipAccumulatedMessage", "-g", group, "-t", topic, fails=True)  # nobody has created the group
    admin("consumeMessage", "-t", topic)
    create(cluster, group)
    skipped = admin("skipAccumulatedMessage", "-g", group, "-t", topic)
    assert [line.split() for line in skipped] == [
        ["#brokerName", "#queueId", "#offset"], [name, "0", "3"], [name, "1", "3"],
    ]  # fmt: skip
    assert offsets(admin, group, topic) == [3, 3]
    lines = admin("resetOffsetByTime", "-g", group, "-t", topic, "-s", "0")
    assert lines[0] == (
        f"start reset consumer offset by specified, group[{group}], topic[{topic}], force[true], "
        "timestamp(string)[0], timestamp(long)[0]"
    )
    assert offsets(admin, group, topic) == [0, 0]
    assert json.loads("\n".join(admin("resetOffsetByTime", "-g", group, "-t", topic, "-s", "now", "--json"))) == [
        {"brokerName": name, "queueId": queue_id, "offset": 3} for queue_id in (0, 1)
    ]
    one = ("-b", address(cluster), "-q", "1")
    assert admin("resetOffsetByTime", "-g", group, "-t", topic, "-s", "0", *one, "-o", "2")[-1] == (
        "reset consumer offset to 2"
    )
    assert offsets(admin, group, topic) == [3, 2]
    assert admin("resetOffsetByTime", "-g", group, "-t", topic, "-s", "-1", *one)[-1] == "reset consumer offset to 3"
    admin("resetOffsetByTime", "-g", group, "-t", topic, "-s", "yesterday", fails=True)


def create(cluster: Cluster, group: str) -> None:
    async def ask() -> None:
        async with AdminClient([cluster.namesrv]) as client:
            body = dumps(SubscriptionGroupConfig(group))
            await client.ask(address(cluster), RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, body)

    asyncio.run(ask())


def test_clone_gives_the_same_offsets(admin: Admin, cluster: Cluster, topic: str) -> None:
    for group in (f"A{topic}", f"B{topic}"):
        create(cluster, group)
    admin("skipAccumulatedMessage", "-g", f"A{topic}", "-t", topic)
    with_retry_topics(cluster, f"A{topic}")
    told = admin("cloneGroupOffset", "-s", f"A{topic}", "-d", f"B{topic}", "-t", topic)
    assert told == [f"clone group offset success. srcGroup[A{topic}], destGroup=[B{topic}], topic[{topic}]"]
    assert offsets(admin, f"B{topic}", topic) == [3, 3]


def with_retry_topics(cluster: Cluster, group: str) -> None:
    """Heartbeats of a group create its retry topic, whose route finds the group's brokers."""
    CliRunner().invoke(
        main,
        ["updateTopic", "-c", "DefaultCluster", "-t", f"%RETRY%{group}", "-r", "1", "-w", "1", "-n", cluster.namesrv],
    )


# Who is connected


def test_who_is_connected_and_where_they_are(
    admin: Admin, cluster: Cluster, topic: str, online: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    lines = admin("consumerConnection", "-g", online)
    assert lines[0].split() == ["#ClientId", "#ClientAddr", "#Language", "#Version"]
    client_id, peer, language, version = lines[1].split()
    assert (peer.rpartition(":")[0], language, version) == ("127.0.0.1", "PYTHON", "V5_5_1")
    assert lines[lines.index("Below is subscription:") + 1].split() == ["#Topic", "#SubExpression"]
    assert [topic, "*"] in [line.split() for line in lines]
    assert lines[-3:] == [
        "ConsumeType: CONSUME_PASSIVELY", "MessageModel: CLUSTERING", "ConsumeFromWhere: CONSUME_FROM_FIRST_OFFSET",
    ]  # fmt: skip
    status = admin("getConsumerStatus", "-g", online, "-t", topic)
    name = broker_name(admin)
    assert [line.split() for line in status[2:]] == [[client_id[:50], name, queue_id, "3"] for queue_id in ("0", "1")]
    monkeypatch.chdir(tmp_path)
    lines = admin("consumerStatus", "-g", online)
    assert "Same subscription in the same group of consumer" in lines
    said = Path(lines[1].split()[-1]).read_text()
    for words in ("#Consumer Properties#", "PROP_CONSUMEORDERLY", "ProcessQueueInfo [commitOffset="):
        assert words in said
    assert "#Consumer Subscription#" in admin("consumerStatus", "-g", online, "-i", client_id)
    admin("consumerStatus", "-g", online, "-i", "nobody", fails=True)
    producers = admin("producer", "-b", address(cluster))
    assert any(line.startswith(f"producer group (PG-{topic}) instance : clientId=") for line in producers)
    (line,) = admin("producerConnection", "-g", f"PG-{topic}", "-t", topic)
    assert line.split()[0::3] == ["0001", "PYTHON"]


# Figures


def test_figures_of_topics_and_queues(admin: Admin, cluster: Cluster, topic: str) -> None:
    group = f"G{topic}"
    rows = [line.split() for line in admin("statsAll", "-t", topic)]
    assert rows[1][0::4] == [topic, "NO_CONSUMER"]
    create(cluster, group)
    one = ("-b", address(cluster), "-q", "0")
    admin("resetOffsetByTime", "-g", group, "-t", topic, "-s", "0", *one, "-o", "1")
    stats = [line.split() for line in admin("brokerConsumeStats", "-b", address(cluster)) if line.startswith(topic)]
    assert [row[1:7] for row in stats] == [[group, broker_name(admin), "0", "3", "1", "2"]]
    assert not any(line.startswith(topic) for line in admin("brokerConsumeStats", "-b", address(cluster), "-l", "3"))
    (row,) = json.loads("\n".join(admin("statsAll", "-t", topic, "--json")))
    assert (row["group"], row["accumulation"]) == (group, 5)
    lines = admin("queryCq", "-t", topic, "-q", "0", "-i", "1", "-c", "1", "-g", group)
    assert f"{group}@{topic} is not online!" in lines
    assert "max: 3, min: 0" in lines
    assert [line for line in lines if line.startswith("idx")] == ["idx: 1"]
    assert sum(line.startswith("ConsumeQueueData{physicOffset=") for line in lines) == 1
    admin("queryCq", "-t", topic, "-q", "0", "-i", "9", fails=True)


# Messages


def test_messages_are_sent_timed_and_read(admin: Admin, topic: str) -> None:
    name = broker_name(admin)
    assert admin("sendMessage", "-t", topic, "-p", "x", "-i", "0", fails=True)[-1].endswith(
        "Broker name must be set if the queue is chosen!"
    )
    (sent,) = json.loads(
        "[" + "".join(admin("sendMessage", "-t", topic, "-p", "hi", "-c", "A", "-k", "k1 k2", "--json")) + "]"
    )
    assert sent["sendStatus"] == "SEND_OK"
    times = admin("checkMsgSendRT", "-t", topic, "-a", "4", "-s", "10")
    assert [line.split()[:3] for line in times[1:5]] == [[name, str(n % 2), "true"] for n in range(4)]
    assert times[5].startswith("Avg RT: ")
    read = admin("consumeMessage", "-t", topic)
    assert sum(line.startswith("MSGID: ") for line in read) == 11
    assert read[-1].endswith("print msg finished. status=NO_NEW_MSG, offset=" + read[-1].rpartition("=")[2])
    some = admin("consumeMessage", "-t", topic, "-b", name, "-i", "1", "-o", "1", "-c", "2", "--json")
    assert [(row["queueId"], row["queueOffset"]) for row in map(json.loads, some)] == [(1, 1), (1, 2)]
    admin("consumeMessage", "-t", topic, "-o", "1", fails=True)
    [refused] = admin("consumeMessage", "-t", topic, "-b", name, "-i", "2", fails=True)
    assert refused == f"Error: topic {topic} has no queue 2 to read on broker {name}"
    assert "no queue to read on broker Nobody" in admin("consumeMessage", "-t", topic, "-b", "Nobody", fails=True)[0]


# Dead letters


def test_dead_letters_are_counted_and_sent_back(cluster: Cluster, topic: str) -> None:
    group = f"G{topic}"
    create(cluster, group)

    async def die() -> None:
        async with AdminClient([cluster.namesrv]) as client:
            lookup = MessageLookup(client)
            for queue, broker in await lookup.queues(topic):
                for message in (await lookup.messages(queue, broker, 0))[0]:
                    header = ConsumerSendMsgBackRequestHeader(
                        offset=message.physical_offset, group=group, delay_level=-1, max_reconsume_times=16
                    )
                    await client.ask(broker, RequestCode.CONSUMER_SEND_MSG_BACK, header)
        await cluster.await_route(f"%DLQ%{group}")

    asyncio.run(die())

    def redrive(*flags: str) -> list[str]:
        done = CliRunner().invoke(sprocket, ["dlq", "redrive", group, *flags, "-n", cluster.namesrv])
        assert done.exit_code == 0, done.output
        return done.output.splitlines()

    assert redrive("--dry-run") == ["would send 6 of 6 dead letters", f"  6 to {topic}"]
    assert redrive("--max", "2") == ["sent 2 of 6 dead letters", f"  2 to {topic}"]
    assert redrive("--tag", "nobody") == ["sent 0 of 0 dead letters"]
    (counts,) = map(json.loads, redrive("--json"))
    assert counts == {
        "dryRun": False, "matched": 4, "sent": 4, "sentBefore": 0, "withoutOrigin": 0, "targets": {topic: 4},
    }  # fmt: skip
    failed = CliRunner().invoke(sprocket, ["dlq", "redrive", group, "--filter", "a >", "-n", cluster.namesrv])
    assert failed.exit_code == 0, "there is nothing left that the expression would have to be read for"


# The watch over all groups


@pytest.fixture
def pauses_s(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses between rounds, which are not waited for; in the second one Ctrl-C is pressed."""
    pauses: list[float] = []

    async def pause(pause_s: float) -> None:
        pauses.append(pause_s)
        if len(pauses) % 2 == 0:
            raise KeyboardInterrupt

    monkeypatch.setattr("sprocket_cli.mqadmin.options.pause", pause)
    return pauses


def test_monitoring_shows_the_backlog_of_connected_groups(
    admin: Admin, cluster: Cluster, topic: str, online: str, pauses_s: list[float]
) -> None:
    async def set_back() -> None:
        async with AdminClient([cluster.namesrv]) as client:
            for queue_id, offset in ((0, 1), (1, 2)):
                await GroupAdmin(client).commit(address(cluster), online, topic, queue_id, offset)

    head = f"[MONITOR] reportUndoneMsgs: UndoneMsgs [consumerGroup={online}, topic={topic}, "
    wanted = f"{head}undoneMsgsTotal=3, undoneMsgsSingleMQ=2, undoneMsgsDelayTimeMills="
    # The consumer, which is past these messages, may commit its own offsets between the commit and the rounds.
    for _ in range(5):
        asyncio.run(set_back())
        lines = admin("startMonitoring", fails=True)
        found = [line for line in lines if line.startswith(wanted)]
        if len(found) == 2:
            break
    assert len(found) == 2, lines
    assert pauses_s[:2] == [60.0, 60.0]
    for name in ("begin", "end"):
        assert lines.count(f"[MONITOR] {'=' * 41}{name}Round") == 2


def test_monitoring_goes_on_without_a_name_server(pauses_s: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sprocket_cli.patient_admin.START_LIMIT_S", 0.0)
    done = CliRunner().invoke(main, ["startMonitoring", "-n", "127.0.0.1:1"])
    assert done.stderr.count("127.0.0.1:1") >= 2
    assert len(pauses_s) == 2
    assert CliRunner().invoke(main, ["startMonitoring", "-n", "x"]).exit_code == 2


def test_notices_name_group_client_and_queue() -> None:
    now = 1_000_000
    blocked = "MessageQueue [topic=T, brokerName=b, queueId=0] can't consume for a while, maybe blocked, 1000000ms"
    head = "[MONITOR]  [NOTIFY] reportConsumerRunningInfo: ConsumerGroup: G, "
    assert notices("G", {"c1": info()}, now) == [f"{head}ClientId: c1, c1 {blocked}"]
    two = info(mq_table={MessageQueue("T", "b", number): ProcessQueueInfo(cached_msg_count=1) for number in (0, 1)})
    second = blocked.replace("queueId=0", "queueId=1")
    assert notices("G", {"c1": two}, now) == [f"{head}ClientId: c1, c1 {blocked}\nc1 {second}"]
    other = info(subscription_set=[SubscriptionData("T")])
    assert notices("G", {"c1": info(), "c2": other}, now)[0] == f"{head}Subscription different"
    assert notices("G", {}, now) == []


# What a consumer says


def info(**changes: object) -> ConsumerRunningInfo[str]:
    made = ConsumerRunningInfo[MessageQueue](
        properties={"PROP_CONSUME_TYPE": "CONSUME_PASSIVELY", "PROP_CONSUMER_START_TIMESTAMP": 1},
        mq_table={MessageQueue("T", "b", 0): ProcessQueueInfo(commit_offset=7, cached_msg_count=1)},
        mq_pop_table={MessageQueue("T", "b", 1): PopProcessQueueInfo(wait_ack_count=2)},
        jstack="stack",
    )
    for name, value in changes.items():
        setattr(made, name, value)
    return loads(dumps(made), ConsumerRunningInfo[str])


def test_text_of_what_a_consumer_says() -> None:
    lines = running_info_text(info()).splitlines()
    assert lines[0] == "#Consumer Properties#"
    assert f"{'T':<32}  {'b':<32}  {0:<4}  {7:<20}" in lines
    assert any("PopProcessQueueInfo [waitAckCount:2, droped:false, lastPopTimestamp:0]" in line for line in lines)
    assert lines[-1] == "stack"


def test_what_is_seen_in_what_consumers_say() -> None:
    now = 1_000_000
    queue = {MessageQueue("T", "b", 0): ProcessQueueInfo(cached_msg_count=1, last_consume_timestamp=now)}
    assert "Rebalance OK" in diagnosis({"c1": info(mq_table=queue)}, now)
    assert "c1 MessageQueue [topic=T, brokerName=b, queueId=0] can't consume for a while, maybe blocked, 1000000ms" in (
        diagnosis({"c1": info()}, now)
    )
    orderly = info(properties={"PROP_CONSUME_TYPE": "CONSUME_PASSIVELY", "PROP_CONSUMEORDERLY": "true"})
    assert "can't lock for a while" in diagnosis({"c1": orderly}, now)
    other = info(subscription_set=[SubscriptionData("T")])
    assert "Different subscription" in diagnosis({"c1": info(), "c2": other}, now)
    assert "Different subscription" not in diagnosis({"c1": info(), "c2": other}, 1000), "they have just started"
