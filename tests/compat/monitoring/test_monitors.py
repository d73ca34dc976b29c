"""The requests of rocketmq-exporter and rocketmq-dashboard, and what the two read from the answers.

Neither program is on Maven Central, so a test on a fresh machine cannot run it.  `java/monitors/MonitorRequests.java`
sends their requests instead, with the client of RocketMQ 4.9, which both are built with, and with that of 5.3.3.  The
lists are from the sources of rocketmq-exporter 0.0.3 (`MetricsCollectTask`, `ClientMetricTaskRunnable`,
`BrokerRuntimeStats`) and rocketmq-dashboard 1.0.0 (the classes in `service/impl`, and `DashboardCollectTask`).
COMPAT_AGAINST=apache runs these tests against RocketMQ's servers, which list a group with the topic's name beside the
topic's groups.
"""

import asyncio
import os
import re
import subprocess
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from sprocket.client.admin.admin_client import AdminClient, AdminError
from sprocket.client.admin.group_admin import GroupAdmin
from sprocket.client.consumer import Consumer
from sprocket.client.message import Message, ReceivedMessage
from sprocket.client.producer import Producer
from sprocket.client.rebalance.start_offset import ConsumeFrom
from sprocket.client.send_result import SendResult
from sprocket.client.trace.recorder import TraceSettings
from sprocket.client.transaction import TransactionProducer, TransactionState
from sprocket.remoting.bodies.group import SubscriptionGroupConfig
from sprocket.remoting.bodies.topic import TopicConfig
from tests.background import in_background
from tests.compat import maven
from tests.compat.cluster import CLUSTER_NAME, ApacheCluster, Cluster, SprocketCluster
from tests.compat.java_client import tools_command
from tests.compat.replication.replicas import is_in_step, until

pytestmark = [pytest.mark.java, pytest.mark.timeout(300)]

PROGRAM = Path(__file__).parents[1] / "java" / "monitors" / "MonitorRequests.java"
PRODUCERS, KEY = "PMonitored", "order-7"
VERSIONS = ("4.9.8", maven.APACHE_VERSION)
IS_APACHE = os.environ.get("COMPAT_AGAINST") == "apache"
BROKER_VERSION = "V5_3_3" if IS_APACHE else "V5_5_1"
_RUN_LIMIT_S = 120


@dataclass(frozen=True)
class Part:
    """What one test has for itself: a topic with six messages, and two groups, as a run of the dashboard moves offsets.

    `online` has consumed all messages, and its consumer still runs; `offline` has three to consume, and no members.
    """

    topic: str
    online: str
    offline: str


def part(program: str, version: str) -> Part:
    name = f"{program}{version.replace('.', '')}"
    return Part(f"T{name}", f"GOn{name}", f"GOff{name}")


PARTS = [part(program, version) for program in ("exporter", "dashboard") for version in VERSIONS]


@dataclass(frozen=True)
class Scene:
    """A master with a slave, the parts, producers, and the id of the first message of each topic, which is traced."""

    namesrv: str
    message_ids: Mapping[str, str]


@pytest.fixture(scope="module")
def scene(java: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    kind: type[Cluster] = ApacheCluster if IS_APACHE else SprocketCluster
    servers = kind(tmp_path_factory.mktemp("monitored") / "servers", slaves=1, properties={"traceTopicEnable": "true"})
    namesrv, master = servers.name_server_address, servers.brokers[0].address

    @asynccontextmanager
    async def members() -> AsyncIterator[Mapping[str, str]]:
        ids: dict[str, str] = {}
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(
                TransactionProducer(PRODUCERS, namesrv, checker=lambda _: TransactionState.UNKNOWN)
            )
            for each in PARTS:
                ids[each.topic] = await prepared(namesrv, master, each)
                consumer = Consumer(each.online, {each.topic: "*"}, namesrv, consume_from=ConsumeFrom.FIRST)
                await stack.enter_async_context(consumer)
                running = asyncio.create_task(consumer.run(acknowledged))
                stack.push_async_callback(asyncio.wait, [running])
                stack.push_async_callback(consumer.close)
            await settled(namesrv, master)
            yield ids

    with servers:
        servers.start_slaves()
        with in_background(members(), limit_s=120) as ids:
            until(lambda: is_in_step(master), "the slave has everything")
            yield Scene(namesrv, ids)


async def acknowledged(message: ReceivedMessage) -> None:
    """Handle a message: returning acknowledges it."""


async def prepared(namesrv: str, master: str, each: Part) -> str:
    """Make a topic and groups, send three messages to each of two queues; return the id of the first one."""
    async with AdminClient(namesrv) as admin, Producer("PG", namesrv, trace=TraceSettings()) as producer:
        await admin.create_topic(master, TopicConfig(each.topic, 2, 2))
        for group in (each.online, each.offline):
            await admin.create_group(master, SubscriptionGroupConfig(group))
            await admin.create_topic(master, TopicConfig(f"%RETRY%{group}", 1, 1))
        sent: list[SendResult] = []
        for queue in sorted(await producer.queues(each.topic)):
            for number in range(3):
                message = Message(each.topic, b"body %d" % number, tags="A", keys=[f"order-{7 + len(sent)}"])
                sent.append(await producer.send(message, queue=queue))
            await GroupAdmin(admin).commit(master, each.offline, each.topic, queue.queue_id, 1 + queue.queue_id)
    return sent[0].message_id


async def settled(namesrv: str, master: str) -> None:
    """Wait until all is consumed, and until the broker has sampled its counters, which takes 10 s."""
    async with AdminClient(namesrv) as admin:
        for each in PARTS:
            while await consumed(admin, each) < 6:
                await asyncio.sleep(0.05)
            for name, key in (("TOPIC_PUT_NUMS", each.topic), ("GROUP_GET_NUMS", f"{each.topic}@{each.online}")):
                while not await is_counted(admin, master, name, key):
                    await asyncio.sleep(0.2)


async def consumed(admin: AdminClient, each: Part) -> int:
    table = (await admin.consume_stats(each.online, each.topic)).offset_table
    return sum(offsets.consumer_offset for offsets in table.values())


async def is_counted(admin: AdminClient, master: str, name: str, key: str) -> bool:
    try:
        await GroupAdmin(admin).stats(master, name, key)
    except AdminError:
        return False
    return True


def lines_of(program: str, version: str, home: Path, *arguments: str) -> dict[str, str]:
    """Run the Java program; return the lines that it printed, by name."""
    classpath = maven.apache_classpath() if version == maven.APACHE_VERSION else maven.old_tools_classpath()
    command = [*tools_command(home, maven.compiled(PROGRAM, classpath)), PROGRAM.stem, program, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_RUN_LIMIT_S, check=False, cwd=home)
    lines = dict(line.split("\t") for line in done.stdout.splitlines() if "\t" in line)
    assert done.returncode == 0, f"{lines}\n{done.stderr}"
    return lines


def check(lines: Mapping[str, str], wanted: Mapping[str, str]) -> None:
    """Compare the names of all lines, and each value with its pattern."""
    wrong = {name: lines.get(name) for name, text in wanted.items() if not re.fullmatch(text, lines.get(name, ""))}
    assert (wrong, lines.keys() - wanted.keys()) == ({}, set())


WHOLE, SOME, DECIMAL, SINCE_2023_MS = r"\d+", r"[1-9]\d*", r"\d+\.\d+(E-\d+)?", r"1[7-9]\d{11}"
# Figures of a broker that the exporter parses.
FIGURES = {
    **{f"msg{of}Total{day}": WHOLE for of in ("Put", "Get") for day in ("TodayMorning", "YesterdayMorning")},
    **{
        f"{lane}ThreadPoolQueue{of}": WHOLE
        for lane in ("send", "pull", "query")
        for of in ("Size", "Capacity", "HeadWaitTimeMills")
    },
    "commitLogMinOffset": WHOLE, "dispatchMaxBuffer": WHOLE, "dispatchBehindBytes": WHOLE, "brokerVersion": WHOLE,
    "pageCacheLockTimeMills": WHOLE, "getMessageEntireTimeMax": WHOLE, "putMessageEntireTimeMax": WHOLE,
    "startAcceptSendRequestTimeStamp": WHOLE, "remainTransientStoreBufferNumbs": WHOLE,
    "putMessageDistributeTime": WHOLE, "msgPutTotalTodayNow": SOME, "msgGetTotalTodayNow": SOME,
    "putMessageTimesTotal": SOME, "putMessageSizeTotal": SOME, "commitLogMaxOffset": SOME,
    "bootTimestamp": SINCE_2023_MS, "earliestMessageTimeStamp": SINCE_2023_MS,
    "consumeQueueDiskRatio": DECIMAL, "commitLogDiskRatio": DECIMAL, "putMessageAverageSize": DECIMAL,
    "putLatency99": DECIMAL, "putLatency999": DECIMAL, "remainHowManyDataToFlush": DECIMAL,
    # RocketMQ has three rates once it has run for ten minutes.
    **dict.fromkeys(
        ("putTps", "getMissTps", "getTransferredTps", "getTotalTps", "getFoundTps"), "[123]" if IS_APACHE else "3"
    ),
    "commitLogDirCapacity 2": r"\d+\.\d+ [KMGT]iB,", "commitLogDirCapacity 6": r"\d+\.\d+ [KMGT]iB\.",
    "runtime": r"\[ 0 days, 0 hours, \d+ minutes, \d+ seconds \]", "brokerVersionDesc": BROKER_VERSION,
}  # fmt: skip


@pytest.mark.parametrize("version", VERSIONS)
def test_requests_of_the_exporter(scene: Scene, version: str, tmp_path: Path) -> None:
    own = part("exporter", version)
    on, off = own.online, own.offline
    wanted = FIGURES | {
        "clusters": rf"\{{{CLUSTER_NAME}=\[broker-a\]\}}", "cluster of broker-a": CLUSTER_NAME,
        "topics contain": "true", "topic offset": "6", "topic updated": SINCE_2023_MS, f"producers {PRODUCERS}": "1",
        "BROKER_PUT_NUMS": DECIMAL, "BROKER_GET_NUMS": DECIMAL, "TOPIC_PUT_NUMS": DECIMAL, "TOPIC_PUT_SIZE": DECIMAL,
        f"GROUP_GET_NUMS {on}": DECIMAL, f"GROUP_GET_SIZE {on}": DECIMAL,
        # The exporter leaves out what is answered with SYSTEM_ERROR: there is no such statistic.
        f"SNDBCK_PUT_NUMS {on}": "code 1", f"SNDBCK_PUT_NUMS {off}": "code 1",
        f"GROUP_GET_NUMS {off}": f"code 1|{DECIMAL}", f"GROUP_GET_SIZE {off}": f"code 1|{DECIMAL}",
        f"members {off}": "code 206", f"diff {off}": "3", f"consumed {off}": "3", f"consume tps {off}": DECIMAL,
        f"queues with a message to consume {off}": "2", f"model {on}": "CLUSTERING", f"members {on}": "1",
        f"member {on}": r"127\.0\.0\.1:\d+ PYTHON \d+", f"jstack {on}": "null", f"status {on}": rf"0( {DECIMAL}){{5}}",
        f"diff {on}": "0", f"consumed {on}": "6", f"consume tps {on}": DECIMAL,
        f"queues with a message to consume {on}": "0", "commit log diff 1": "0",
    }  # fmt: skip
    lines = lines_of("exporter", version, tmp_path, scene.namesrv, own.topic)
    if IS_APACHE:
        lines = {name: text for name, text in lines.items() if not name.endswith(own.topic)}
    check(lines, wanted)


@pytest.mark.parametrize("version", VERSIONS)
def test_requests_of_the_dashboard(scene: Scene, version: str, tmp_path: Path) -> None:
    own = part("dashboard", version)
    message_id = scene.message_ids[own.topic]
    rates = ["putTps", "getTransferredTps", "getTotalTps"]
    wanted = {
        **{f"broker {number} {rate}": DECIMAL for number in (0, 1) for rate in rates},
        # The name of this rate in 4.9, which pages of rocketmq-dashboard 1.0.0 show.  RocketMQ 5 has no such figure.
        **{f"broker {number} getTransferedTps": "null" if IS_APACHE else DECIMAL for number in (0, 1)},
        "broker 0 version": BROKER_VERSION, "broker 1 version": BROKER_VERSION,
        "brokerName in its configuration": "broker-a",
        "topics contain": "true", "offsets 0": "0 3 true", "offsets 1": "0 3 true", "route": "broker-a 2 2 6",
        "sums": r"\d+ \d+ \d+", "made topic": "3 2 6", "system topics contain TBW102": "true", "sent": "SEND_OK",
        "deleted topic": "null", "groups contain": "true true", "subscription": r"\*", "total diff": "0",
        "consumers of the topic": rf"\[{own.offline}, {own.online}\]",
        f"offsets of {own.offline} 0": "3 1 true", f"offsets of {own.offline} 1": "3 2 true",
        "connection": "CONSUME_PASSIVELY CLUSTERING true", "queues of the member": "2", "stack": "true",
        f"members of {own.offline}": "code 206", "producers": "1", "reset online": r"\[3, 3\]",
        "reset offline": r"\{.*=3, .*=3\}", "reset offline, old": "6", "made group": "3", "deleted group": "null",
        "message": f"body 0 A {KEY} 0", f"track {own.online}": "CONSUMED", f"track {own.offline}": "NOT_ONLINE",
        "found by key": "1", "traces": "1", "read by time": "6", "consumed directly": "CR_SUCCESS",
    }  # fmt: skip
    if IS_APACHE:
        wanted["consumers of the topic"] = rf"\[{own.offline}, {own.online}, {own.topic}\]"
        wanted[f"track {own.topic}"] = ".*"
    names = (own.topic, own.online, own.offline, PRODUCERS, message_id, KEY)
    check(lines_of("dashboard", version, tmp_path, scene.namesrv, *names), wanted)
