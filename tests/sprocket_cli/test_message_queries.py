"""Finding messages from the command line, against a running name server and broker."""

import asyncio
import json
from datetime import datetime
from pathlib import Path
from uuid import uuid4

import pytest

from sprocket.client.admin.admin_client import AdminClient
from sprocket.remoting.bodies.topic import TopicConfig
from sprocket.remoting.codes import RequestCode
from sprocket.remoting.message import properties as names
from sprocket_cli import exit_codes
from sprocket_cli.client_session import WrongUsage
from sprocket_cli.columns import parse_time
from tests.send_headers import send_header
from tests.sprocket_cli.conftest import Cluster
from tests.sprocket_cli.programs import run


def mqadmin(cluster: Cluster, *arguments: str) -> str:
    ended = run(cluster.folder, *arguments, "-n", cluster.namesrv, program="mqadmin")
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


@pytest.fixture(scope="module")
def topic(cluster: Cluster) -> str:
    """Two messages with keys of their own, and one that both have."""
    name = f"T{uuid4().hex}"
    run(cluster.folder, "topic", "create", name, "--queues", "1", "-n", cluster.namesrv)
    for word in ("first", "second"):
        keys = ("--key", f"key-{word}", "--key", "both", "--tag", "a")
        ended = run(cluster.folder, "send", name, f"body {word}", *keys, "-n", cluster.namesrv)
        assert ended.returncode == 0, ended.stderr
    return name


def found(cluster: Cluster, *arguments: str) -> list[dict[str, object]]:
    messages: list[dict[str, object]] = json.loads(mqadmin(cluster, *arguments, "--json"))
    return messages


def test_by_key(cluster: Cluster, topic: str) -> None:
    lines = mqadmin(cluster, "queryMsgByKey", "-t", topic, "-k", "both").splitlines()
    assert lines[0].split() == ["#Message", "ID", "#QID", "#Offset"]
    assert [line.split()[1:] for line in lines[1:]] == [["0", "0"], ["0", "1"]]
    (message,) = found(cluster, "queryMsgByKey", "-t", topic, "-k", "key-second")
    assert message["body"] == "body second"
    ended = run(cluster.folder, "queryMsgByKey", "-t", topic, "-k", "none", "-n", cluster.namesrv, program="mqadmin")
    assert ended.returncode == exit_codes.FAILURE


def test_by_unique_key_id_and_offset(cluster: Cluster, topic: str) -> None:
    (message,) = found(cluster, "queryMsgByKey", "-t", topic, "-k", "key-first")
    shown = mqadmin(cluster, "queryMsgByUniqueKey", "-t", topic, "-i", str(message["msgId"])).splitlines()
    fields = {line[:20].strip(): line[21:] for line in shown}
    assert fields["Topic:"] == topic
    assert fields["Tags:"] == "[a]"
    assert fields["Keys:"] == "[key-first both]"
    assert Path(fields["Message Body Path:"]).read_text() == "body first"
    for words in (("queryMsgById", "-i", str(message["offsetMsgId"])), ("queryMsgById", "-i", str(message["msgId"]))):
        output = mqadmin(cluster, *words, "-t", topic, "-f", "UTF-8")
        assert str(message["offsetMsgId"]) in output
        assert "body first" in output
        assert output.endswith("\n\nWARN: No Consumer")
    where = ("-b", str(message["broker"]), "-i", "0", "-o", "1")
    assert "body second" in mqadmin(cluster, "queryMsgByOffset", "-t", topic, *where, "-f", "UTF-8")


def test_print_messages(cluster: Cluster, topic: str) -> None:
    lines = mqadmin(cluster, "printMsg", "-t", topic).splitlines()
    assert lines[0].startswith("minOffset=0, maxOffset=2, MessageQueue [topic=")
    assert [line.rpartition("BODY: ")[2] for line in lines if line.startswith("MSGID: ")] == [
        "body first",
        "body second",
    ]
    assert "NOT PRINT BODY" in mqadmin(cluster, "printMsg", "-t", topic, "-d", "false")
    assert "MSGID" not in mqadmin(cluster, "printMsg", "-t", topic, "-e", "2001-01-01#00:00:00:000")


def test_an_unknown_message_is_an_error(cluster: Cluster, topic: str) -> None:
    for words in (("queryMsgById", "-i", "0" * 32), ("queryMsgByUniqueKey", "-i", "nothing")):
        ended = run(cluster.folder, *words, "-t", topic, "-n", cluster.namesrv, program="mqadmin")
        assert ended.returncode == exit_codes.FAILURE


def test_an_id_that_is_too_long_for_a_file_name_is_no_traceback(cluster: Cluster, topic: str) -> None:
    address = f"127.0.0.1:{cluster.broker.port}"
    header = send_header(f"{topic}-long", properties=names.encode({names.UNIQ_KEY: "a" * 300}))

    async def send() -> None:
        async with AdminClient([cluster.namesrv]) as admin:
            await admin.create_topic(address, TopicConfig(f"{topic}-long", 1, 1))
            await admin.ask(address, RequestCode.SEND_MESSAGE_V2, header, b"body of a long id")

    asyncio.run(send())
    place = ("-b", "broker-a", "-i", "0", "-o", "0")
    shown = mqadmin(cluster, "queryMsgByOffset", "-t", f"{topic}-long", *place).splitlines()
    [path] = [line.split(":", 1)[1].strip() for line in shown if line.startswith("Message Body Path:")]
    assert Path(path).read_text() == "body of a long id"


@pytest.mark.parametrize("time_ms", [2155104631154, 1763818800001, 1763818800999, 86_400_007])
def test_a_time_is_read_to_the_millisecond(time_ms: int) -> None:
    seconds = f"{datetime.fromtimestamp(time_ms // 1000):%Y-%m-%d#%H:%M:%S}"
    assert parse_time(f"{seconds}:{time_ms % 1000:03d}") == time_ms
    assert parse_time(f" {seconds}:{time_ms % 1000} ") == time_ms
    assert parse_time(str(time_ms)) == time_ms


@pytest.mark.parametrize(
    "text", ["\u00b2", "", "2026-01-31#23:59:59", "2026-01-31#23:59:59:", "2026-13-31#23:59:59:000"]
)
def test_what_is_no_time_is_wrong_usage(text: str) -> None:
    with pytest.raises(WrongUsage):
        parse_time(text)
