"""A store that Apache RocketMQ 5.3.3 wrote, read row by row as Apache RocketMQ itself read it."""

import base64
import tarfile
from pathlib import Path

import pytest

from tests.compat.store_files import parse
from tests.spark.conftest import read_rows

GOLDEN = Path(__file__).resolve().parents[1] / "compat" / "data" / "apache-store-5.3.3.tar.xz"
COLUMNS = ["topic", "queueId", "queueOffset", "physicalOffset", "storeSize", "sysFlag", "flag", "reconsumeTimes"]
COLUMNS += ["preparedTransactionOffset", "bodyCRC", "body", "bornTimestamp", "storeTimestamp", "properties"]


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("golden")
    with tarfile.open(GOLDEN) as archive:
        archive.extractall(root, filter="data")
    return root


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
