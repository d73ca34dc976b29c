"""Every command of RocketMQ's mqadmin and ours, against the same servers: the same lines, but for what may differ."""

import asyncio
import difflib
import json
import re
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from click.testing import CliRunner

from sprocket.client.admin.admin_client import AdminClient
from sprocket.client.admin.group_admin import GroupAdmin
from sprocket.client.consumer import Consumer
from sprocket.client.message import Message
from sprocket.client.producer import Producer
from sprocket.client.rebalance.start_offset import ConsumeFrom
from sprocket.client.trace.recorder import TraceSettings
from sprocket.client.transaction import TransactionProducer, TransactionState
from sprocket.remoting.bodies.group import SubscriptionGroupConfig
from sprocket.remoting.bodies.topic import TopicConfig
from sprocket_cli.mqadmin.absent import ABSENT
from sprocket_cli.mqadmin.main import main
from tests.background import in_background
from tests.compat import wire
from tests.compat.cluster import CLUSTER_NAME, SprocketCluster
from tests.compat.controllers.controllers import GROUP as BROKER
from tests.compat.controllers.controllers import ControllerCluster
from tests.compat.java_client import AdminShell
from tests.compat.mqadmin.mqadmin_cases import ENDLESS, GUARDED, NEWER, OPEN, OURS, THEIRS, Case
from tests.compat.replication.replicas import is_in_step, until
from tests.compat.security.test_auth import PROPERTIES

pytestmark = [pytest.mark.java, pytest.mark.timeout(600)]

TOPIC, GROUP, ONLINE, PRODUCERS = "Compared", "GCompared", "GOnline", "PGOnline"
KINDS, BATCHES, SPLIT = "Kinds", "Batches", "Split"
_APPLY_BROKER_ID = 1013


@dataclass(frozen=True)
class Stage:
    """Servers, and the words that stand for them in a case."""

    namesrv: str
    words: Mapping[str, str]
    elected: Mapping[str, str] = field(default_factory=dict)
    settle: Callable[[], None] = lambda: None


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the account of a super user, from which both tools take it."""
    home = tmp_path_factory.mktemp("tools")
    (home / "conf").mkdir()
    (home / "conf" / "tools.yml").write_text("accessKey: admin\nsecretKey: secret-of-admin\n")
    return home


@pytest.fixture(scope="module")
def shell(java: None, home: Path) -> Iterator[AdminShell]:
    shell = AdminShell(home)
    yield shell
    shell.close()


@pytest.fixture(scope="module")
def guarded(java: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """A broker that asks for users."""
    with SprocketCluster(tmp_path_factory.mktemp("guarded") / "servers", properties=PROPERTIES) as running:
        yield Stage(running.name_server_address, {"master": running.brokers[0].address, "cluster": CLUSTER_NAME})


@pytest.fixture(scope="module")
def opened(java: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """A controller, a master and a slave, with messages, groups, and clients that are online."""
    folder = tmp_path_factory.mktemp("opened")
    with ControllerCluster(folder, count=1) as cluster:
        cluster.start_controllers()
        brokers = [cluster.add_sprocket_broker(number, traceTopicEnable="true") for number in (0, 1)]
        for count, broker in enumerate(brokers, 1):
            broker.start()
            until(lambda: cluster.in_sync(BROKER) == count, f"{count} replicas are in sync")  # noqa: B023
        master = cluster.master(brokers)
        assert master is not None
        (slave,) = (broker for broker in brokers if broker is not master)
        controller = cluster.controllers[0].address
        lost = {"clusterName": CLUSTER_NAME, "brokerName": BROKER, "appliedBrokerId": "3", "registerCheckCode": "x;1"}
        assert wire.invoke(controller, _APPLY_BROKER_ID, lost).code == 0
        words = asyncio.run(prepared(cluster.name_servers, master.address))
        for name, content in (
            ("groups", [{"groupName": "GListed"}]),
            ("topics", [{"topicName": "Listed", "readQueueNums": 2, "writeQueueNums": 2}]),
        ):
            (folder / name).write_text(json.dumps(content))
            words[name] = str(folder / name)
        words |= {
            "topic": TOPIC, "group": GROUP, "online": ONLINE, "producers": PRODUCERS, "cluster": CLUSTER_NAME,
            "master": master.address, "slave": slave.address, "broker": BROKER, "controller": controller,
            "lost_id": "3", "kinds": KINDS, "batches": BATCHES, "split": SPLIT,
        }  # fmt: skip
        with online(cluster.name_servers) as client_id:
            until(lambda: is_in_step(master.address), "the slave has everything")
            first = int(cluster.replica_info()["masterBrokerId"])
            yield Stage(
                cluster.name_servers, words | {"client_id": client_id}, {THEIRS: str(3 - first), OURS: str(first)},
                lambda: until(lambda: cluster.in_sync(BROKER) == 2, "both replicas are in sync"),
            )  # fmt: skip


async def prepared(namesrv: str, master: str) -> dict[str, str]:
    """Make groups, and a topic with two messages in each of two queues.  The first message is traced."""
    async with (
        AdminClient(namesrv) as admin,
        Producer("PG", namesrv, trace=TraceSettings()) as producer,
    ):
        await admin.create_topic(master, TopicConfig(TOPIC, 2, 2))
        for who in (THEIRS, OURS):
            await admin.create_topic(master, TopicConfig(f"Sent-{who}", 1, 1))
        for group in (GROUP, f"{GROUP}-{THEIRS}", f"{GROUP}-{OURS}", ONLINE):
            await admin.create_group(master, SubscriptionGroupConfig(group))
            await admin.create_topic(master, TopicConfig(f"%RETRY%{group}", 1, 1))
        sent = []
        for queue in await producer.queues(TOPIC):
            for number in range(2):
                key = f"key-{len(sent)}"
                message = Message(TOPIC, b"body %d" % number, tags="A", keys=[key], properties={"colour": "red"})
                sent.append(await producer.send(message, queue=queue))
        await send_kinds(namesrv, admin, master)
        await GroupAdmin(admin).commit(master, GROUP, TOPIC, 0, 1)
        await GroupAdmin(admin).commit(master, GROUP, TOPIC, 1, 0)
    return {"offset_id": sent[0].offset_message_id, "unique_id": sent[0].message_id}


async def send_kinds(namesrv: str, admin: AdminClient, master: str) -> None:
    """Send what is stored in another way: a compressed body, a transaction, a body with other letters, batches."""
    for topic in (KINDS, SPLIT):
        await admin.create_topic(master, TopicConfig(topic, 1, 1))
    await admin.create_topic(master, TopicConfig(BATCHES, 1, 1, attributes={"+queue.type": "BatchCQ"}))
    async with (
        TransactionProducer("PGKinds", namesrv, checker=lambda _: TransactionState.COMMIT) as transactions,
        Producer("PG", namesrv) as producer,
    ):
        await producer.send(Message(KINDS, b"long" * 2000, properties={str(i): "v" * 9 for i in range(120)}, flag=-7))
        await transactions.send_in_transaction(Message(KINDS, b"paid", keys=["k"]), lambda *_: TransactionState.COMMIT)
        await producer.send(Message(KINDS, "naïve 中".encode()))
        for topic in (BATCHES, SPLIT):
            await producer.send_batch([Message(topic, b"%d of a batch" % n, keys=[f"k{n}"]) for n in range(3)])


@contextmanager
def online(namesrv: str) -> Iterator[str]:
    """Run a consumer that has read the topic and a producer of transactions; yield the consumer's client id."""

    @asynccontextmanager
    async def members() -> AsyncIterator[str]:
        async with (
            TransactionProducer(PRODUCERS, namesrv, checker=lambda _: TransactionState.UNKNOWN),
            Consumer(ONLINE, {TOPIC: "*"}, namesrv, consume_from=ConsumeFrom.FIRST) as consumer,
        ):
            for _ in range(4):
                await consumer.ack(await anext(consumer))
            async with AdminClient(namesrv) as admin:
                table = (await admin.consume_stats(ONLINE, TOPIC)).offset_table
                while sum(offsets.consumer_offset for offsets in table.values()) < 4:
                    await asyncio.sleep(0.05)
                    table = (await admin.consume_stats(ONLINE, TOPIC)).offset_table
            yield consumer.client_id

    with in_background(members(), limit_s=120) as client_id:
        yield client_id


def test_every_command_is_compared_or_absent(shell: AdminShell) -> None:
    listed = {line.split()[0] for line in shell.run("").splitlines() if line.startswith("   ")}
    assert len(listed - NEWER) == 89
    compared = {case.command for case in (*OPEN, *GUARDED, *(case for case, _ in ENDLESS))}
    assert compared & ABSENT.keys() == set()
    assert listed - NEWER == (compared | ABSENT.keys()) - NEWER


def test_same_lines(
    opened: Stage, shell: AdminShell, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROCKETMQ_HOME", str(home))
    monkeypatch.chdir(tmp_path)
    assert differences(OPEN, opened, shell, tmp_path) == ""


def test_same_lines_about_users(
    guarded: Stage, shell: AdminShell, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROCKETMQ_HOME", str(home))
    monkeypatch.chdir(tmp_path)
    assert differences(GUARDED, guarded, shell, tmp_path) == ""


def differences(cases: Sequence[Case], stage: Stage, shell: AdminShell, folder: Path) -> str:
    """Run all cases in their order, as later ones need what earlier ones made; return what differs, by command line."""
    found = [(case, lasting_difference(case, stage, shell, folder)) for case in cases]
    return "\n".join(f"== {case.line}\n{text}" for case, text in found if text)


def lasting_difference(case: Case, stage: Stage, shell: AdminShell, folder: Path) -> str:
    """Return what differs each time, out of three: between two tools, a live server may have changed.

    Cases that can be done only once have one chance.
    """
    for _ in range(1 if "{who}" in case.line else 3):
        text = difference(case, stage, shell, folder)
        if not text:
            return ""
    return text


def difference(case: Case, stage: Stage, shell: AdminShell, folder: Path) -> str:
    """Run one case by both tools; return how the outputs differ, empty if they do not."""

    def arguments(who: str) -> list[str]:
        words = {**stage.words, "who": who, "folder": str(folder / who), "elected_id": stage.elected.get(who, "")}
        return [*(filled(word, words) for word in case.line.split()), "-n", stage.namesrv]

    if case.settles:
        stage.settle()
    said = shell.run(*arguments(THEIRS))
    if case.settles:
        stage.settle()
    done = CliRunner().invoke(main, [*arguments(OURS), *case.ours.split()])
    if "Exception" in said or done.exit_code:
        return f"RocketMQ: {said}\nSprocket, status {done.exit_code}: {done.output}"
    pattern = filled(case.only, stage.words)
    expected, got = case.masked(said, pattern), case.masked(done.stdout, pattern)
    if not expected:
        return "RocketMQ says nothing: the case compares nothing"
    for file in case.files:
        for who, lines in ((THEIRS, expected), (OURS, got)):
            content = without(json.loads((folder / who / file).read_text()), case.volatile)
            lines += json.dumps(content, indent=1, sort_keys=True).splitlines()
    return "\n".join(difflib.unified_diff(expected, got, "RocketMQ", "Sprocket", lineterm="", n=0))


def filled(text: str, words: Mapping[str, str]) -> str:
    """Return `text` with the words that braces name."""
    return re.sub(r"\{([a-z_]+)\}", lambda found: words[found[1]], text)


def without(value: object, keys: tuple[str, ...]) -> object:
    """Return nested JSON without the values of keys that may differ."""
    if isinstance(value, dict):
        return {key: None if key in keys else without(each, keys) for key, each in value.items()}
    return value
