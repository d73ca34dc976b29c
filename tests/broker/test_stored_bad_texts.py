"""Stored properties that are not UTF-8, as a client's batch brings them: served, filtered, found, copied and shown."""

import json
from pathlib import Path

from click.testing import CliRunner
from pyspark.sql import datasource as pushed

from spark.rows.filters import RowFilter
from sprocket.client.message import MessageQueue
from sprocket.client.pull.record_decoder import decode_records
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.headers.pull import PullMessageRequestHeader
from sprocket.remoting.headers.send import ConsumerSendMsgBackRequestHeader
from sprocket_cli.main import main
from store.record.record import Record
from tests.bad_texts import IN_BINARY
from tests.broker.pop.rig import pop
from tests.broker.processor.test_query import bodies, query
from tests.broker.rig import TOPIC, TestClient, create, running_broker, stored
from tests.send_headers import client_batch, send_header
from tests.spark.conftest import read_rows
from tests.waiting import until

# As Java reads each of `IN_BINARY`.
SHOWN = ("\ufffd" * 3, "\ufffd\\", "\ufffd", "\ufffd" * 2, "\ufffd")


def properties(number: int) -> bytes:
    bad = IN_BINARY[number]
    return b"UNIQ_KEY\x01K%d\x02TAGS\x01%b%d\x02KEYS\x01k%d %b%d\x02name\x01%b%d\x02%b\x01v\x02" % (
        number, bad, number, number, bad, number, bad, number, bad,
    )  # fmt: skip


def text(number: int) -> str:
    return f"{SHOWN[number]}{number}"


async def pulled(client: TestClient, expression: str, kind: str = "TAG") -> list[bytes]:
    header = PullMessageRequestHeader(
        consumer_group="CG", topic=TOPIC, queue_id=0, queue_offset=0, max_msg_nums=32, sys_flag=4, commit_offset=0,
        suspend_timeout_millis=0, subscription=expression, sub_version=0, expression_type=kind,
    )  # fmt: skip
    response = await client.ask(RequestCode.PULL_MESSAGE, header)
    return bodies(response.body) if response.code == ResponseCode.SUCCESS else []


def check_copy(original: Record, copy: Record) -> None:
    """Every property of the original has its bytes in the copy."""
    items = bytes(original.properties).split(b"\x02")
    kept = {item for item in items if item and not item.startswith((b"__CRC32#", b"WAIT"))}
    assert kept <= set(bytes(copy.properties).split(b"\x02"))


async def test_every_reader(tmp_path: Path) -> None:
    numbers = range(len(IN_BINARY))
    all_bodies = [b"%d" % number for number in numbers]
    store = {"message_delay_level": "0s 0s 0s 0s"}
    async with running_broker(tmp_path, enable_property_filter=True, store=store) as (broker, client):
        await client.ask_well(RequestCode.UPDATE_AND_CREATE_TOPIC, create())
        for number in numbers:
            batch = client_batch((0, b"%d" % number, properties(number)))
            header = send_header(TOPIC, queue_id=0, batch=True, properties="")
            await client.ask_well(RequestCode.SEND_MESSAGE_V2, header, batch)
        await until(lambda: broker.store.max_offset(TOPIC, 0) == len(IN_BINARY))

        assert await pulled(client, "*") == all_bodies
        content = (await client.pull()).body
        messages = decode_records(content, MessageQueue(TOPIC, "broker-a", 0))
        assert [(one.tags, one.keys[-1], one.properties["name"]) for one in messages] == [
            (text(n),) * 3 for n in numbers
        ]
        for number in numbers:
            assert await pulled(client, text(number)) == [b"%d" % number]
            found = await client.ask_well(RequestCode.QUERY_MESSAGE, query(text(number)))
            assert bodies(found.body) == [b"%d" % number]
        await client.heartbeat("one", TOPIC)
        assert await pulled(client, f"name = '{text(0)}'", "SQL92") == [b"0"]
        assert bodies((await pop(client, exp=text(1), exp_type="TAG")).body) == [b"1"]

        for number in numbers:
            original = stored(broker, TOPIC, 0, number)
            back = ConsumerSendMsgBackRequestHeader(offset=original.physical_offset, group="CG", delay_level=0)
            await client.ask_well(RequestCode.CONSUMER_SEND_MSG_BACK, back)
        await until(lambda: broker.store.max_offset("%RETRY%CG", 0) == len(IN_BINARY))
        for number in numbers:
            check_copy(stored(broker, TOPIC, 0, number), stored(broker, "%RETRY%CG", 0, number))
        root = broker.config.store.store_path_root_dir

    for option in (("--tag", text(0)), ("--key", text(0))):
        shown = CliRunner().invoke(main, ["store", "dump", str(root), "--topic", TOPIC, *option])
        assert [json.loads(line)["tags"] for line in shown.stdout.splitlines()] == [text(0)], shown.output
    checked = CliRunner().invoke(main, ["store", "check", str(root)])
    assert checked.exit_code == 0, checked.output
    rows = read_rows(root, columns=["body", "tags", "keys", "properties"], topics=frozenset({TOPIC}))
    assert [(row["body"], row["tags"], dict(row["properties"])["name"]) for row in rows] == [
        (b"%d" % number, text(number), text(number)) for number in numbers
    ]
    for column, value in (("tags", text(0)), ("keys", f"k0 {text(0)}")):
        wanted = RowFilter(frozenset({TOPIC}))
        assert not wanted.accept([pushed.EqualTo((column,), value)])
        assert [row["body"] for row in read_rows(root, columns=["body"], rows=wanted)] == [b"0"]
