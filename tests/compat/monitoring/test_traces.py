"""Traces of our clients read by RocketMQ's mqadmin, and those of its clients read by ours."""

import asyncio
import subprocess
from collections import Counter
from pathlib import Path

import pytest
from click.testing import CliRunner

from sprocket.client.admin.admin_client import AdminClient
from sprocket.client.consumer import Consumer
from sprocket.client.message import Message
from sprocket.client.producer import Producer
from sprocket.client.rebalance.start_offset import ConsumeFrom
from sprocket.client.trace.encoding import TraceKind
from sprocket.client.trace.lookup import Found, TraceLookup
from sprocket.client.trace.recorder import TraceSettings
from sprocket.remoting.bodies.topic import TopicConfig
from sprocket_cli.mqadmin.main import main
from tests.compat import maven
from tests.compat.cluster import Cluster, SprocketCluster
from tests.compat.java_client import AdminShell

pytestmark = [pytest.mark.java, pytest.mark.timeout(400)]

_TOPIC = "Traced"
_PROGRAM = Path(__file__).parents[1] / "java" / "trace" / "Traced.java"


async def _traces(namesrv: str, message_id: str, count: int) -> list[Found]:
    async with AdminClient(namesrv) as admin, asyncio.timeout(60):
        while True:
            found = await TraceLookup(admin).of_message(message_id)
            if len(found) >= count:
                return found
            await asyncio.sleep(0.2)


async def _work(cluster: Cluster) -> str:
    """Send and consume with our clients, traced.  Return the message's id when its traces can be found."""
    namesrv, trace = cluster.name_server_address, TraceSettings()
    async with AdminClient(namesrv) as admin:
        await admin.create_topic(cluster.brokers[0].address, TopicConfig(_TOPIC, 2, 2))
    async with Producer("POurs", namesrv, trace=trace) as producer:
        sent = await producer.send(Message(_TOPIC, b"body", tags="TagA", keys=["k1"]))
    async with Consumer("GOurs", [_TOPIC], namesrv, consume_from=ConsumeFrom.FIRST, trace=trace) as consumer:
        await consumer.ack(await anext(consumer))
    await _traces(namesrv, sent.message_id, 3)
    return sent.message_id


def test_both_ways(java: None, tmp_path: Path) -> None:
    with SprocketCluster(tmp_path / "servers", properties={"traceTopicEnable": "true"}) as cluster:
        namesrv = cluster.name_server_address
        message_id = asyncio.run(_work(cluster))
        shell = AdminShell(tmp_path)
        try:
            printed = shell.run("queryMsgTraceById", "-i", message_id, "-n", namesrv)
        finally:
            shell.close()
        rows = [line.split() for line in printed.splitlines() if line.startswith(("Pub", "Sub"))]
        assert [(row[0], row[1], row[2], row[-1]) for row in rows] == [
            ("Pub", "POurs", "127.0.0.1", "success"),
            ("Sub", "GOurs", "127.0.0.1", "success"),
        ], printed

        classpath = maven.compiled(_PROGRAM, maven.client_classpath("5.3.3"))
        command = [*maven.short_java(), "-cp", classpath, _PROGRAM.stem, namesrv, _TOPIC]
        done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=True, cwd=tmp_path)
        theirs = next(line.split()[1] for line in done.stdout.splitlines() if line.startswith("ID "))
        records = [record for record, _ in asyncio.run(_traces(namesrv, theirs, 3))]
    assert Counter(record.kind for record in records) == {
        TraceKind.PUB: 1, TraceKind.SUB_BEFORE: 1, TraceKind.SUB_AFTER: 1,
    }  # fmt: skip
    pub = next(record for record in records if record.kind is TraceKind.PUB)
    assert (pub.group, pub.topic, pub.tags, pub.keys, pub.body_bytes) == ("PJava", _TOPIC, "TagA", "k1 k2", 4)
    after = next(record for record in records if record.kind is TraceKind.SUB_AFTER)
    assert (after.group, after.is_success) == ("GJava", True)


def test_send_message_of_both_tools_leaves_the_same_trace(java: None, tmp_path: Path) -> None:
    send = ("sendMessage", "-t", _TOPIC, "-p", "body", "-k", "k1", "-c", "TagA", "-b", "broker-a", "-i", "0")
    with SprocketCluster(tmp_path / "servers", properties={"traceTopicEnable": "true"}) as cluster:
        namesrv = cluster.name_server_address
        arguments = [*send, "-m", "true", "-n", namesrv]

        async def prepare() -> None:
            async with AdminClient(namesrv) as admin:
                await admin.create_topic(cluster.brokers[0].address, TopicConfig(_TOPIC, 1, 1))

        asyncio.run(prepare())
        shell = AdminShell(tmp_path)
        try:
            printed = [shell.run(*arguments), CliRunner().invoke(main, arguments).stdout]
        finally:
            shell.close()
        found = [asyncio.run(_traces(namesrv, text.split()[-1], 1)) for text in printed]
    (theirs,), (ours,) = [
        [
            (
                one.kind, one.topic, one.tags, one.keys, one.store_host, one.region, one.body_bytes, one.message_type,
                one.is_success, host,
            )
            for one, host in each
        ]
        for each in found
    ]  # fmt: skip
    assert ours == theirs
