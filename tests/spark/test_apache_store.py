"""Stores that Apache RocketMQ 5.3.3 wrote, read row by row as Apache RocketMQ itself read them.

``apache-batches-5.3.3.tar.xz`` is log and batch ConsumeQueues of ``StoreTool batches <root> 16384 1000 80``: batch
number i has i % 7 + 1 messages and lies in queue i % 2.
"""

import base64
import tarfile
from pathlib import Path

import pytest

from sprocket.common.errors import CorruptRecord
from tests.compat.directories.store_files import parse
from tests.spark.conftest import read_rows

DATA = Path(__file__).resolve().parents[1] / "compat" / "data"
COLUMNS = ["topic", "queueId", "queueOffset", "physicalOffset", "storeSize", "sysFlag", "flag", "reconsumeTimes"]
COLUMNS += ["preparedTransactionOffset", "bodyCRC", "body", "bornTimestamp", "storeTimestamp", "properties"]


def unpacked(root: Path, name: str) -> Path:
    with tarfile.open(DATA / f"{name}-5.3.3.tar.xz") as archive:
        archive.extractall(root, filter="data")
    return root


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpacked(tmp_path_factory.mktemp("golden"), "apache-store")


def expected_rows(golden: Path) -> list[dict[str, object]]:
    rows = []
    for line in parse((golden / "read.txt").read_text()).messages:
        (_, topic, queue_id, queue_offset, physical_offset, size, sys_flag, flag, born, _, stored, _, times, prepared,
         crc, body, properties, _) = line.split("\t")  # fmt: skip
        pairs = [pair.split(b"\x01", 1) for pair in decode(properties).split(b"\x02") if pair]
        rows.append(
            {
                "topic": topic,
                "queueId": int(queue_id),
                "queueOffset": int(queue_offset),
                "physicalOffset": int(physical_offset),
                "storeSize": int(size),
                "sysFlag": int(sys_flag),
                "flag": int(flag),
                "reconsumeTimes": int(times),
                "preparedTransactionOffset": int(prepared),
                "bodyCRC": int(crc),
                "body": decode(body),
                "born": int(born),
                "stored": int(stored),
                "properties": sorted((name.decode(), value.decode()) for name, value in pairs),
            }
        )
    return sorted(rows, key=lambda row: int(str(row["physicalOffset"])))


def decode(text: str) -> bytes:
    return base64.b64decode(text.removeprefix("b:"))


def test_rows_are_those_that_rocketmq_reads(golden: Path) -> None:
    columns = [
        *COLUMNS,
        "preparedTransactionOffset",
        "bodyCRC",
        "body",
        "bornTimestamp",
        "storeTimestamp",
        "properties",
    ]
    rows = read_rows(golden / "store", columns=columns)
    for row in rows:
        row["born"] = round(row.pop("bornTimestamp").timestamp() * 1000)
        row["stored"] = round(row.pop("storeTimestamp").timestamp() * 1000)
        row["properties"] = sorted(row["properties"])
    # Records that no ConsumeQueue points at are in the log, but RocketMQ's consumers do not read them.
    known = expected_rows(golden)
    places = {row["physicalOffset"] for row in known}
    assert [row for row in rows if row["physicalOffset"] in places] == known
    assert len(known) > 200


def test_topics_are_read_through_its_consume_queues(golden: Path) -> None:
    known = expected_rows(golden)
    for topic in {str(row["topic"]) for row in known}:
        rows = read_rows(golden / "store", columns=["physicalOffset"], topics=frozenset({topic}))
        assert [row["physicalOffset"] for row in rows] == [
            row["physicalOffset"] for row in known if row["topic"] == topic
        ]


@pytest.mark.parametrize("topics", [None, frozenset({"BatchQueue"})], ids=["scan", "index"])
def test_messages_of_batches_are_rows_of_their_own(tmp_path: Path, topics: frozenset[str] | None) -> None:
    store = unpacked(tmp_path, "apache-batches") / "store"
    columns = ["queueId", "queueOffset", "body", "keys", "tags", "topic"]
    rows = read_rows(store, columns=columns, topics=topics, check_crc=True)
    next_offsets = [0, 0]
    expected = []
    for number in range(80):
        for place in range(number % 7 + 1):
            queue_id = number % 2
            body = f"batch {number} {place}".encode()
            expected.append((queue_id, next_offsets[queue_id], body, f"k{number}", "inBatch", "BatchQueue"))
            next_offsets[queue_id] += 1
    assert [tuple(row[name] for name in columns) for row in rows] == expected


def test_records_with_a_crc_of_their_own(tmp_path: Path) -> None:
    with tarfile.open(DATA / "apache-store-5.3.3-crc.tar.xz") as archive:
        archive.extractall(tmp_path, filter="data")
    rows = read_rows(tmp_path / "store", columns=["topic", "physicalOffset"], check_crc=True)
    assert len(rows) > 200
    # The CRC covers all of a record: here the topic's name of one.
    victim = rows[100]["physicalOffset"]
    segment = next(
        path for path in (tmp_path / "store" / "commitlog").iterdir() if 0 <= victim - int(path.name) < 16384
    )
    content = bytearray(segment.read_bytes())
    at = content.index(b"Golden", victim - int(segment.name))
    content[at] = ord("g")
    segment.write_bytes(content)
    with pytest.raises(CorruptRecord, match="CRC"):
        read_rows(tmp_path / "store", columns=["topic"], check_crc=True)


def test_where_delayed_and_timed_messages_are_to_go(tmp_path: Path) -> None:
    columns = ["topic", "realTopic", "realQueueId", "queueId"]
    broker = unpacked(tmp_path / "broker", "apache-broker")
    delayed = read_rows(broker / "store", columns=columns)
    waiting = [row for row in delayed if row["topic"] == "SCHEDULE_TOPIC_XXXX"]
    assert {row["realTopic"] for row in waiting} == {"Reminders", "%RETRY%Bookkeepers"}
    others = [row for row in delayed if row["topic"] != "SCHEDULE_TOPIC_XXXX"]
    assert all((row["realTopic"], row["realQueueId"]) == (row["topic"], row["queueId"]) for row in others)
    pop = unpacked(tmp_path / "pop", "apache-pop")
    timed = read_rows(pop / "store", columns=columns, topics=frozenset({"rmq_sys_wheel_timer"}))
    assert {row["realTopic"] for row in timed} == {"rmq_sys_REVIVE_LOG_DefaultCluster"}
