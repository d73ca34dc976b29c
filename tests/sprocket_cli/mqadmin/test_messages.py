"""`mqadmin` that sends, prints and traces messages of a running broker."""

import asyncio
import json
from uuid import uuid4
from zlib import crc32

import pytest

from sprocket.client.message import Message
from sprocket.client.producer import Producer
from sprocket_cli.mqadmin.message.send import china_time_text
from sprocket_cli.mqadmin.message.trace import Trace, trace_lines, traces
from tests.sprocket_cli.conftest import Cluster
from tests.sprocket_cli.mqadmin.conftest import Admin, address


@pytest.fixture
def topic(admin: Admin, cluster: Cluster) -> str:
    """A topic with one queue, and in it messages with the tags A, B, A and one without a tag."""
    name = f"P{uuid4().hex[:8]}"
    admin("updateTopic", "-b", address(cluster), "-t", name, "-r", "1", "-w", "1")
    for tag in ("A", "B", "A", ""):
        admin("sendMessage", "-t", name, "-p", f"body{tag}", "-c", tag)
    return name


def test_messages_of_a_queue(admin: Admin, topic: str) -> None:
    queue = ("printMsgByQueue", "-t", topic, "-a", "broker-a", "-i", "0")
    assert admin(*queue) == []
    assert admin(*queue, "-f", "true") == [f"Tag: {'A':<30} Count: 2", f"Tag: {'B':<30} Count: 1"]
    assert admin(*queue, "-f", "true", "-s", "B") == [f"Tag: {'B':<30} Count: 1"]
    printed = admin(*queue, "-p", "true")
    assert [line.split()[-2:] for line in printed] == [["PRINT", "BODY"]] * 4
    printed = admin(*queue, "-p", "true", "-d", "true", "-s", "A || B")
    assert [line.split()[-1] for line in printed] == ["bodyA", "bodyB", "bodyA"]
    assert [json.loads(line)["body"] for line in admin(*queue, "--json")] == ["bodyA", "bodyB", "bodyA", "body"]
    assert admin(*queue, "-p", "true", "-e", "1") == []
    assert "has no queue 7" in admin(*queue[:-1], "7", fails=True)[-1]


def test_a_printed_message_has_the_figures_of_its_record(admin: Admin, topic: str) -> None:
    first, *_ = admin("printMsgByQueue", "-t", topic, "-a", "broker-a", "-i", "0", "-p", "true")
    assert f"bodyCRC={crc32(b'bodyA') & 0x7FFFFFFF}, " in first
    assert "preparedTransactionOffset=0, " in first
    assert "body=[98, 111, 100, 121, 65], transactionId='null'}" in first
    assert "MIN_OFFSET=0" in first
    assert "MAX_OFFSET=4" in first


def test_sends_to_a_broker(admin: Admin) -> None:
    lines = admin("sendMsgStatus", "-b", "broker-a", "-c", "3", "-s", "30")
    assert len(lines) == 3
    for line in lines:
        rt, _, result = line.partition(", SendResult=")
        assert rt.startswith("rt=")
        assert rt.endswith("ms")
        assert result.startswith("SendResult [sendStatus=SEND_OK, msgId=")
        assert "messageQueue=MessageQueue [topic=broker-a, brokerName=broker-a, queueId=" in result


def test_response_times_of_a_cluster(admin: Admin, monkeypatch: pytest.MonkeyPatch) -> None:
    async def interrupt(_pause_s: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("sprocket_cli.mqadmin.options.pause", interrupt)
    head, row = admin("clusterRT", "-a", "3", "-c", "DefaultCluster", fails=True)[:2]
    assert head.split("  ")[0] == "#Cluster Name"
    assert row.split()[:2] == ["DefaultCluster", "broker-a"]
    assert row.split()[3:] == ["3", "0"]
    logged = admin("clusterRT", "-a", "2", "-p", "true", "-m", "room", fails=True)[0].split("|")
    assert logged[1:4] == ["room", "DefaultCluster", "broker-a"]
    assert "cluster [x] not exist" in admin("clusterRT", "-c", "x", fails=True)[-1]


def test_log_lines_have_the_time_of_china() -> None:
    assert china_time_text(0) == "1970-01-01 08:00:00"


def record(*fields: object) -> str:
    """As `TraceDataEncoder.encoderFromContextBean` writes it."""
    return "\x01".join(map(str, fields)) + "\x02"


PUB = record("Pub", 1000, "DefaultRegion", "PG", "Orders", "ID1", "", "k", "10.0.0.9:10911", 5, 12, 0, "OFF", "true")
SUB = record("SubAfter", "req", "ID1", 7, "false", "k", 1, 2000, "CG")


async def test_traces_of_a_message(admin: Admin, cluster: Cluster) -> None:
    topic, message_id = f"TR{uuid4().hex[:8]}", f"ID{uuid4().hex}"
    other = PUB.replace("ID1", "ID2")
    async with Producer("PG", cluster.namesrv) as producer:
        for body in (PUB.replace("ID1", message_id) + other, SUB.replace("ID1", message_id)):
            await producer.send(Message(topic, body.encode(), keys=[message_id]))

    def show(*more: str) -> list[str]:
        return admin("queryMsgTraceById", "-i", message_id, "-t", topic, *more)

    for _ in range(100):
        lines = await asyncio.to_thread(show)
        if len(lines) == 6:
            break
        await asyncio.sleep(0.05)
    assert [line.split()[0] for line in lines if line] == ["#Type", "Pub", "#Type", "Sub"]
    assert lines[1].split()[1:3] == ["PG", "127.0.0.1"]
    assert lines[1].split()[-2:] == ["12ms", "success"]
    assert lines[4].split()[1] == "CG"
    assert lines[4].split()[-2:] == ["7ms", "failed"]
    kinds = [each["kind"] for each in json.loads("".join(await asyncio.to_thread(show, "--json")))]
    assert kinds == ["Pub", "SubAfter"]


def test_records_of_old_clients_and_damaged_records() -> None:
    old_pub = record("Pub", 5, "R", "PG", "T", "ID1", "", "k", "host", 5, 3, 0, "true")
    new_pub = record("Pub", 6, "R", "PG", "T", "ID1", "", "k", "host", 5, 4, 0, "OFF", "false", "10.1.1.1")
    old_sub = record("SubAfter", "req", "ID1", 7, "true", "k", 1)
    before = record("SubBefore", 5, "R", "CG", "req", "ID1", 0, "k")
    damaged = record("Pub", "x", "R", "PG", "T", "ID1") + record("SubAfter") + "\x02"
    assert list(traces(old_pub + new_pub + old_sub + before + damaged, "ID1", "h")) == [
        Trace("Pub", "PG", "h", 5, 3, True),
        Trace("Pub", "PG", "h", 6, 4, False),
        Trace("SubAfter", "null", "h", 0, 7, True),
    ]


def test_consumptions_are_shown_by_group() -> None:
    found = [Trace("SubAfter", group, "h", 0, 1, True) for group in ("G1", "G2", "G1")]
    assert [line.split()[1] for line in trace_lines(found) if line] == [
        "#ConsumerGroup", "G1", "G1", "#ConsumerGroup", "G2",
    ]  # fmt: skip
