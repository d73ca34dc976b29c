"""Every record kind, read through planning, walk and decode, against what was written."""

import json
import random
import struct
import zlib
from dataclasses import replace
from pathlib import Path

import lz4.frame
import pytest
import zstandard

from spark.decode.decoder import DecodeOptions
from spark.rows.filters import TimeRange
from sprocket.common.errors import ConfigError, CorruptRecord
from sprocket.remoting.message.record import SysFlag
from tests.spark.conftest import read_rows
from tests.spark.naive_reader import default_columns
from tests.spark.store_builder import Row, StoreBuilder, encode

V6 = bytes.fromhex("20010db8000000000000000000000001")


def mixed_rows(count: int, seed: int = 1) -> list[Row]:
    """Rows of every shape: both versions, both kinds of host, with and without properties, odd texts."""
    rnd = random.Random(seed)
    rows = []
    for index in range(count):
        properties: dict[str, str] = {}
        if rnd.random() < 0.8:
            properties["TAGS"] = rnd.choice(["AA", "UA", "", "étiquette"])
        if rnd.random() < 0.5:
            properties["KEYS"] = f"k{index} k{index + 1}"
        if rnd.random() < 0.3:
            properties["STAG"] = "not a tag"  # as long as TAGS
        if rnd.random() < 0.2:
            properties["equation"] = "a\x01b"  # the separator inside a value
        names = list(properties)
        rnd.shuffle(names)
        rows.append(
            Row(
                topic=rnd.choice(["Flights", "Über", "%RETRY%group", "T" * 100]),
                queue_id=rnd.randrange(4),
                body=rnd.randbytes(rnd.choice([0, 1, 90, 700])),
                properties={name: properties[name] for name in names},
                born_timestamp=1_700_000_000_000 + index * 7,
                store_timestamp=1_700_000_000_000 + index * 10 - rnd.choice([0, 0, 500]),
                born_host=rnd.choice([b"\x7f\0\0\1", V6]),
                store_host=rnd.choice([b"\x0a\0\0\2", V6]),
                sys_flag=rnd.choice([0, 0, SysFlag.TRANSACTION_COMMIT]),
                version=rnd.choice([1, 2]),
                trailing_separator=rnd.random() < 0.5,
            )
        )
    return rows


def build(root: Path, rows: list[Row], **shape: int) -> StoreBuilder:
    builder = StoreBuilder(root, **shape)
    builder.extend(rows)
    builder.write()
    return builder


def test_every_row_of_every_shape(tmp_path: Path) -> None:
    builder = build(tmp_path, mixed_rows(1500))
    assert read_rows(tmp_path) == [default_columns(row) for row in builder.rows]


def test_a_log_whose_first_segments_have_expired(tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path, first_offset=5 << 16)
    builder.start_queue_at("Flights", 0, 777)
    builder.extend(replace(row, topic="Flights", queue_id=0) for row in mixed_rows(500))
    builder.write()
    rows = read_rows(tmp_path)
    assert rows == [default_columns(row) for row in builder.rows]
    assert rows[0]["queueOffset"] == 777
    assert read_rows(tmp_path, topics=frozenset({"Flights"})) == rows


@pytest.mark.parametrize("version", [1, 2])
def test_segments_of_one_version_only(tmp_path: Path, version: int) -> None:
    builder = build(tmp_path, [replace(row, version=version) for row in mixed_rows(800)])
    assert len(read_rows(tmp_path)) == len(builder.rows)


def test_a_topic_is_read_through_its_queues_and_past_what_they_know(tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path)
    rows = mixed_rows(900)
    builder.extend(rows[:600])
    builder.extend(rows[600:], index=False)  # in the log, not dispatched
    builder.write()
    expected = [default_columns(row) for row in builder.rows if row.topic in ("Flights", "Über")]
    assert read_rows(tmp_path, topics=frozenset({"Flights", "Über"})) == expected
    assert read_rows(tmp_path, topic_pattern="Fl.*|Ü.*") == expected


def test_a_topic_without_queue_is_found_in_the_log(tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path)
    builder.extend(mixed_rows(100), index=False)
    builder.write()
    expected = [default_columns(row) for row in builder.rows if row.topic == "Flights"]
    assert expected
    assert read_rows(tmp_path, topics=frozenset({"Flights"})) == expected
    builder.append(Row(topic="Other"))
    builder.write()
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "topics.json").write_text(json.dumps({"topicConfigTable": {"Flights": {}}}))
    assert read_rows(tmp_path, topics=frozenset({"Flights"})) == expected


def test_a_queue_that_does_not_fit_the_log_is_not_trusted(tmp_path: Path) -> None:
    builder = build(tmp_path, mixed_rows(400))
    for file in (tmp_path / "consumequeue" / "Flights").glob("*/*"):
        content = bytearray(file.read_bytes())
        for at in range(0, len(content), 20):
            struct.pack_into(">qi", content, at, 3, 200)
        file.write_bytes(content)
    for other in ("Über", "%RETRY%group", "T" * 100):
        for file in (tmp_path / "consumequeue" / other).glob("*/*"):
            file.unlink()
    expected = [default_columns(row) for row in builder.rows if row.topic == "Flights"]
    assert read_rows(tmp_path, topics=frozenset({"Flights"})) == expected


def test_halves_and_rollbacks_of_transactions_are_left_out(tmp_path: Path) -> None:
    flags = [0, SysFlag.TRANSACTION_PREPARED, SysFlag.TRANSACTION_COMMIT, SysFlag.TRANSACTION_ROLLBACK]
    builder = build(tmp_path, [Row(sys_flag=flags[index % 4]) for index in range(40)])
    kept = [row.physical_offset for row in builder.rows if row.sys_flag in (0, SysFlag.TRANSACTION_COMMIT)]
    assert [row["physicalOffset"] for row in read_rows(tmp_path)] == kept


def test_time_range_with_a_clock_that_steps_back(tmp_path: Path) -> None:
    rnd = random.Random(3)
    stamps = [1_700_000_000_000 + index * 5_000 - rnd.choice([0, 0, 3_600_000]) for index in range(3000)]
    builder = build(tmp_path, [Row(body=b"x" * 200, store_timestamp=stamp) for stamp in stamps])
    times = TimeRange(1_700_004_000_000, 1_700_005_000_000)
    expected = [row.physical_offset for row in builder.rows if times.begin_ms <= row.store_timestamp < times.end_ms]
    assert [row["physicalOffset"] for row in read_rows(tmp_path, columns=["physicalOffset"], times=times)] == expected


def test_columns_on_request(tmp_path: Path) -> None:
    row = Row(
        properties={"UNIQ_KEY": "7F0000010001", "a": "1", "b": ""},
        body="grüß".encode(),
        born_host=V6,
        flag=9,
        reconsume_times=2,
        prepared_transaction_offset=11,
    )
    build(tmp_path / "store", [row, Row(properties={"a": "1"}, body=b"\xff")])
    columns = ["brokerName", "properties", "msgId", "bodyString", "bodySize", "storeSize", "bodyCRC", "flag"]
    columns += ["bornHost", "storeHost", "reconsumeTimes", "preparedTransactionOffset", "compression", "sysFlag"]
    first, second = read_rows(tmp_path / "store", columns=columns)
    assert first == {
        "brokerName": tmp_path.name,
        "properties": [("UNIQ_KEY", "7F0000010001"), ("a", "1"), ("b", "")],
        "msgId": "7F0000010001",
        "bodyString": "grüß",
        "bodySize": 6,
        "storeSize": len(encode(row)),
        "bodyCRC": zlib.crc32("grüß".encode()) & 0x7FFFFFFF,
        "flag": 9,
        "bornHost": "[2001:db8::1]:50000",
        "storeHost": "10.0.0.2:10911",
        "reconsumeTimes": 2,
        "preparedTransactionOffset": 11,
        "compression": None,
        "sysFlag": SysFlag.BORN_HOST_V6,
    }
    assert second["bodyString"] == "\ufffd"
    assert second["msgId"] == f"0A00000200002A9F{first['storeSize']:016X}"


def test_a_repeated_property_counts_with_its_last_value(tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path)
    builder.append(Row(properties={"x": "1\x02TAGS\x01first\x02x\x012\x02TAGS\x01last"}))
    builder.append(Row(properties={"x": "3"}))
    builder.write()
    rows = read_rows(tmp_path, columns=["tags", "properties"])
    assert rows[0] == {"tags": "last", "properties": [("x", "2"), ("TAGS", "last")]}
    assert rows[1] == {"tags": None, "properties": [("x", "3")]}


COMPRESSED = {
    "zlib": (SysFlag.COMPRESSED, zlib.compress),
    "zlib named": (SysFlag.COMPRESSED | SysFlag.COMPRESSION_ZLIB, zlib.compress),
    "lz4": (SysFlag.COMPRESSED | SysFlag.COMPRESSION_LZ4, lz4.frame.compress),
    "zstd": (SysFlag.COMPRESSED | SysFlag.COMPRESSION_ZSTD, zstandard.ZstdCompressor().compress),
}


@pytest.mark.parametrize("kind", COMPRESSED)
def test_compressed_bodies(tmp_path: Path, kind: str) -> None:
    flag, compress = COMPRESSED[kind]
    body = b"a long text " * 500
    rows = [Row(body=b"plain"), Row(body=compress(body), sys_flag=flag), Row(body=b"plain too")]
    build(tmp_path, rows)
    stored = read_rows(tmp_path, columns=["body", "compression"])
    assert [row["compression"] for row in stored] == [None, kind.split()[0], None]
    assert stored[1]["body"] == rows[1].body
    inflated = read_rows(tmp_path, columns=["body"], decode=DecodeOptions(inflate_bodies=True))
    assert [row["body"] for row in inflated] == [b"plain", body, b"plain too"]
    with pytest.raises(CorruptRecord, match="more than 100 bytes"):
        read_rows(tmp_path, decode=DecodeOptions(inflate_bodies=True, inflate_max_bytes=100))


def test_a_body_that_is_not_what_its_flag_says(tmp_path: Path) -> None:
    build(tmp_path, [Row(body=b"no zlib", sys_flag=SysFlag.COMPRESSED)])
    with pytest.raises(CorruptRecord, match="not zlib"):
        read_rows(tmp_path, decode=DecodeOptions(inflate_bodies=True))


def test_a_body_that_imitates_a_record_is_not_read_as_one(tmp_path: Path) -> None:
    """The imitation has its own physical offset right, and lies where a cursor of the walk starts."""
    builder = StoreBuilder(tmp_path, segment_bytes=1 << 20)
    builder.append(Row(body=b"x" * 30_000))
    for _ in range(12):
        at = builder.rows[-1].physical_offset + len(encode(builder.rows[-1])) + 88
        body = b""
        while len(body) < 60_000:
            body += encode(Row(topic="Forged", body=b"y" * 2000, physical_offset=at + len(body)))
        builder.append(Row(body=body))
    builder.write()
    rows = read_rows(tmp_path, columns=["topic", "physicalOffset"], min_partitions=1)
    assert [row["physicalOffset"] for row in rows] == [row.physical_offset for row in builder.rows]


def test_the_record_being_written_is_not_read(tmp_path: Path) -> None:
    rows = mixed_rows(50)
    for missing in (1, 4, 40):
        root = tmp_path / str(missing)
        builder = StoreBuilder(root)
        builder.extend(rows)
        last = builder.append(Row(body=b"b" * 50, properties={"KEYS": "k"}), index=False)
        size = len(encode(last))
        builder.patch(last.physical_offset + size - missing, bytes(missing))
        builder.write()
        assert len(read_rows(root)) == len(rows)


def test_damage_stops_the_read_or_is_passed_over(tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path)
    builder.extend(mixed_rows(600))
    damaged = [builder.rows[100], builder.rows[300], builder.rows[-20]]
    for row in damaged:
        builder.patch(row.physical_offset, bytes(30))
    builder.write()
    with pytest.raises(CorruptRecord) as caught:
        read_rows(tmp_path)
    assert caught.value.offset in {row.physical_offset for row in damaged}
    kept = [default_columns(row) for row in builder.rows if row not in damaged]
    assert read_rows(tmp_path, drop_malformed=True) == kept


@pytest.mark.parametrize("field", ["body_length", "total_size", "physical_offset"])
def test_a_record_whose_lengths_lie(tmp_path: Path, field: str) -> None:
    builder = StoreBuilder(tmp_path)
    builder.extend(Row(body=b"z" * 100) for _ in range(50))
    row = builder.rows[10]
    at = {"total_size": 0, "physical_offset": 28, "body_length": 84}[field]
    value = struct.pack(">q" if field == "physical_offset" else ">i", 0x7FFFFFF0)
    builder.patch(row.physical_offset + at, value)
    builder.write()
    with pytest.raises(CorruptRecord):
        read_rows(tmp_path)
    kept = [each.physical_offset for each in builder.rows if each is not row]
    assert [each["physicalOffset"] for each in read_rows(tmp_path, drop_malformed=True)] == kept


def test_a_missing_segment_is_named(tmp_path: Path) -> None:
    build(tmp_path, mixed_rows(1000))
    (tmp_path / "commitlog" / f"{1 << 16:020d}").unlink()
    with pytest.raises(CorruptRecord, match="missing"):
        read_rows(tmp_path)


def test_what_is_no_store_is_said(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such directory"):
        read_rows(tmp_path / "nowhere")
    with pytest.raises(ConfigError, match="has no commitlog"):
        read_rows(tmp_path)
    (tmp_path / "commitlog").mkdir()
    (tmp_path / "commitlog" / "notes.txt").write_text("foreign")
    with pytest.raises(ConfigError, match="no segment"):
        read_rows(tmp_path)


@pytest.mark.parametrize("file", ["lock", "abort", "checkpoint", "config/topics.json"])
@pytest.mark.parametrize("with_log", [False, True])
def test_a_store_that_was_never_sent_a_message_has_no_rows(tmp_path: Path, file: str, with_log: bool) -> None:
    (tmp_path / file).parent.mkdir(exist_ok=True)
    (tmp_path / file).touch()
    if with_log:
        (tmp_path / "commitlog").mkdir()
    assert read_rows(tmp_path) == []
    # Queues without a log: it is gone, or on another disk.
    (tmp_path / "consumequeue" / "T" / "0").mkdir(parents=True)
    with pytest.raises(ConfigError, match="no segment" if with_log else "has no commitlog"):
        read_rows(tmp_path)


def test_an_empty_log_has_no_rows(tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()
    (tmp_path / "commitlog" / f"{0:020d}").write_bytes(bytes(1 << 16))
    assert read_rows(tmp_path) == []


def test_several_brokers(tmp_path: Path) -> None:
    for name in ("broker-a", "broker-b"):
        build(tmp_path / name / "store", [Row(body=name.encode())] * 3)
    rows = read_rows(tmp_path / "*" / "store", columns=["brokerName", "body"])
    assert {row["brokerName"] for row in rows} == {"broker-a", "broker-b"}
    assert all(row["brokerName"].encode() == row["body"] for row in rows)
    named = read_rows(Path(f"east={tmp_path}/broker-a/store"), columns=["brokerName"])
    assert {row["brokerName"] for row in named} == {"east"}
