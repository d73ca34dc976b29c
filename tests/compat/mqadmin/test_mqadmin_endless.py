"""Commands of mqadmin that report until they are interrupted: the first report of RocketMQ's and of ours.

Each tool is a process of its own, which SIGINT ends after its first report.  RocketMQ's startMonitoring waits 20 s
before it, and writes its lines to its log, which goes to standard output here.
"""

import difflib
import re
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from sprocket.client.admin.admin_client import AdminClient
from sprocket.client.admin.group_admin import GroupAdmin
from sprocket.client.message import Message
from sprocket.client.producer import Producer
from sprocket.remoting.bodies.client import MessageQueue, SubscriptionData
from sprocket.remoting.bodies.consumption import ConsumerRunningInfo, ProcessQueueInfo
from sprocket.remoting.bodies.group import SubscriptionGroupConfig
from sprocket.remoting.bodies.topic import TopicConfig
from sprocket.remoting.codec.fastjson import dumps
from sprocket.remoting.codes import RequestCode
from sprocket.remoting.command import Response
from tests.background import in_background
from tests.broker.rig import TestClient
from tests.compat.cluster import CLUSTER_NAME, SprocketCluster
from tests.compat.java_client import mqadmin_command
from tests.compat.mqadmin.mqadmin_cases import ENDLESS, Case

pytestmark = [pytest.mark.java, pytest.mark.timeout(300)]

TOPIC, BROKER = "Watched", "broker-a"
LISTENER = "org.apache.rocketmq.tools.monitor.DefaultMonitorListener"
# A group that is behind; one whose two members subscribe differently, one of them stuck in two queues; one that has
# trouble with the locks of its queues; one that is stuck and has no offsets; one without members.
BEHIND, STUCK, UNLOCKED, NEW, OFFLINE = "GBehind", "GStuck", "GUnlocked", "GNew", "GOffline"
_END_LIMIT_S = 30


@pytest.fixture(autouse=True)
def interrupts() -> Iterator[None]:
    """Children heed SIGINT, even if a shell in the background has started this process with SIGINT ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(scope="module")
def cluster(java: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SprocketCluster]:
    with SprocketCluster(tmp_path_factory.mktemp("watched") / "servers") as running:
        yield running


@pytest.fixture(scope="module")
def watched(cluster: SprocketCluster) -> Iterator[None]:
    """Groups with backlogs, and members of them that tell of trouble."""

    @asynccontextmanager
    async def groups() -> AsyncIterator[None]:
        broker = cluster.brokers[0].address
        async with AsyncExitStack() as stack:
            await make_groups(cluster.name_server_address, broker)
            for group, client_id, info in members():
                body = Response(body=dumps(info))
                member = TestClient(broker, answers={RequestCode.GET_CONSUMER_RUNNING_INFO: body})
                stack.push_async_callback(member.close)
                await member.heartbeat(client_id, TOPIC, group=group)
            yield

    with in_background(groups()):
        yield


async def make_groups(namesrv: str, broker: str) -> None:
    """Make a topic with three messages in each of two queues, and groups with offsets in them."""
    async with AdminClient(namesrv) as admin, Producer("PG", namesrv) as producer:
        await admin.create_topic(broker, TopicConfig(TOPIC, 2, 2))
        for group in (BEHIND, STUCK, UNLOCKED, NEW, OFFLINE):
            await admin.create_group(broker, SubscriptionGroupConfig(group))
            await admin.create_topic(broker, TopicConfig(f"%RETRY%{group}", 1, 1))
        for queue in await producer.queues(TOPIC):
            for _ in range(3):
                await producer.send(Message(TOPIC, b"body"), queue=queue)
        await producer.send(Message(f"%RETRY%{BEHIND}", b"again"))
        for group, topic, queue_id, offset in (
            (BEHIND, TOPIC, 0, 1), (BEHIND, TOPIC, 1, 2), (BEHIND, f"%RETRY%{BEHIND}", 0, 0), (STUCK, TOPIC, 0, 3),
            (STUCK, TOPIC, 1, 4), (OFFLINE, TOPIC, 0, 0),
        ):  # fmt: skip
            await GroupAdmin(admin).commit(broker, group, topic, queue_id, offset)


def members() -> Iterator[tuple[str, str, ConsumerRunningInfo[MessageQueue]]]:
    """Group, client id and report of each member.  Their times are long ago: RocketMQ spares members that are new."""

    def info(
        group: str, queues: dict[MessageQueue, ProcessQueueInfo], expression: str = "*", is_orderly: str = "false"
    ) -> ConsumerRunningInfo[MessageQueue]:
        return ConsumerRunningInfo[MessageQueue](
            properties={
                "PROP_CONSUME_TYPE": "CONSUME_PASSIVELY", "PROP_CONSUMER_START_TIMESTAMP": "1",
                "PROP_CONSUMEORDERLY": is_orderly, "consumerGroup": group,
            },
            subscription_set=[SubscriptionData(TOPIC, expression)],
            mq_table=queues,
        )  # fmt: skip

    first, second = (MessageQueue(TOPIC, BROKER, number) for number in (0, 1))
    held = ProcessQueueInfo(cached_msg_count=1, last_consume_timestamp=1)
    idle = ProcessQueueInfo(cached_msg_count=1, last_consume_timestamp=int(time.time() * 1000) + 3_600_000)
    yield BEHIND, "behind", info(BEHIND, {first: idle, second: ProcessQueueInfo()})
    yield STUCK, "stuck-1", info(STUCK, {first: held, second: held})
    yield STUCK, "stuck-2", info(STUCK, {}, "TagA")
    unlocked = ProcessQueueInfo(last_lock_timestamp=1)
    unlockable = ProcessQueueInfo(locked=True, dropped=True, try_unlock_times=2)
    yield UNLOCKED, "unlocked", info(UNLOCKED, {first: unlocked, second: unlockable}, is_orderly="true")
    yield NEW, "new", info(NEW, {second: held})


@pytest.mark.parametrize(("case", "last"), ENDLESS, ids=[case.line.replace(" ", "_") for case, _ in ENDLESS])
def test_same_lines(cluster: SprocketCluster, watched: None, tmp_path: Path, case: Case, last: str) -> None:
    words = {"{cluster}": CLUSTER_NAME, "{broker}": BROKER}
    line = f"{case.line} -n {cluster.name_server_address}"
    for word, value in words.items():
        line, last = line.replace(word, value), last.replace(word, value)
    arguments = line.split()
    expected = case.masked(first_report(mqadmin_command(tmp_path, *arguments, logger=LISTENER), last), case.only)
    got = case.masked(first_report([str(Path(sys.executable).parent / "mqadmin"), *arguments], last), case.only)
    assert expected
    assert "\n".join(difflib.unified_diff(expected, got, "RocketMQ", "Sprocket", lineterm="", n=0)) == ""


def first_report(command: Sequence[str], last: str) -> str:
    """Run a command until a line of its output matches `last`, then end it by SIGINT; return the lines until there."""
    lines = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        try:
            assert process.stdout is not None
            for line in process.stdout:
                lines.append(line)
                if re.search(last, line):
                    process.send_signal(signal.SIGINT)
                    rest, _ = process.communicate(timeout=_END_LIMIT_S)
                    assert "Traceback" not in rest
                    return "".join(lines)
        finally:
            process.kill()
    raise AssertionError(f"{command[-3:]} ended by itself: {''.join(lines)}")
