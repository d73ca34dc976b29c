"""Kinds of records: batches, halves of transactions, delayed messages, bodies that inflate to much, light queues."""

import random
import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import lz4.frame
import pytest
import zstandard

from spark.decode.decoder import DecodeOptions
from spark.decode.inflate import MOST_AT_ONCE
from spark.options.source_options import read_options
from spark.rows.row_batches import spark_schema
from spark.source import LogReader
from sprocket.common.errors import ConfigError, CorruptRecord
from sprocket.remoting.message.record import SysFlag
from tests.spark.conftest import read_rows
from tests.spark.store_builder import Row, StoreBuilder, properties_text

CONTENT = bytes(range(256)) * 100
COMPRESS: dict[str, tuple[int, Callable[[bytes], bytes]]] = {
    "zlib": (0, zlib.compress),
    "lz4": (int(SysFlag.COMPRESSION_LZ4), lz4.frame.compress),
    "zstd": (int(SysFlag.COMPRESSION_ZSTD), zstandard.ZstdCompressor().compress),
}
BATCH = SysFlag.INNER_BATCH | SysFlag.NEED_UNWRAP


def inner(body: bytes, properties: dict[str, str], flag: int = 0) -> bytes:
    """One message as a producer puts it into a batch."""
    text = properties_text(properties)
    size = 20 + len(body) + 2 + len(text)
    return struct.pack(">iiiii", size, 0, 0, flag, len(body)) + body + struct.pack(">h", len(text)) + text


def test_messages_of_a_batch_among_others(tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path)
    v6 = bytes(15) + b"\x01"
    batch = inner(b"one", {"TAGS": "a"}, 7) + inner(b"", {}) + inner(b"three", {"KEYS": "k", "x": "y"}, 9)
    builder.append(Row(body=b"before", properties={"TAGS": "p"}))
    builder.append(Row(topic="Other", body=batch, sys_flag=BATCH, properties={"TAGS": "outer"}, born_host=v6, flag=1))
    builder.append(Row(body=batch, sys_flag=SysFlag.INNER_BATCH))  # consumers do not unwrap it
    builder.append(Row(topic="Other", body=inner(b"four", {}), sys_flag=BATCH, version=2, queue_id=3))
    builder.write()
    columns = ["topic", "queueId", "queueOffset", "physicalOffset", "body", "tags", "keys", "flag", "bornHost"]
    rows = read_rows(tmp_path, columns=[*columns, "properties", "bodySize", "storeSize"])
    at = [row.physical_offset for row in builder.rows]
    assert [tuple(row[name] for name in columns) for row in rows] == [
        ("T", 0, 0, at[0], b"before", "p", None, 0, "127.0.0.1:50000"),
        ("Other", 0, 0, at[1], b"one", "a", None, 7, "[::1]:50000"),
        ("Other", 0, 1, at[1], b"", None, None, 0, "[::1]:50000"),
        ("Other", 0, 2, at[1], b"three", None, "k", 9, "[::1]:50000"),
        ("T", 0, 1, at[2], batch, None, None, 0, "127.0.0.1:50000"),
        ("Other", 3, 0, at[3], b"four", None, None, 0, "127.0.0.1:50000"),
    ]
    assert [row["bodySize"] for row in rows] == [6, 3, 0, 5, len(batch), 4]
    assert rows[3]["properties"] == [("KEYS", "k"), ("x", "y")]
    assert rows[1]["storeSize"] == rows[2]["storeSize"]
    only = read_rows(tmp_path, columns=["body"], topics=frozenset({"Other"}))
    assert [row["body"] for row in only] == [b"one", b"", b"three", b"four"]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"short",
        inner(b"x", {}) + b"\0\0\0\x05",
        inner(b"x", {})[:-1],
        struct.pack(">iiiii", 30, 0, 0, 0, 1000) + bytes(10),
    ],
    ids=["empty", "short", "tail", "cut", "length"],
)
def test_a_batch_that_does_not_add_up(tmp_path: Path, body: bytes) -> None:
    builder = StoreBuilder(tmp_path)
    builder.extend([Row(body=b"a"), Row(body=body, sys_flag=BATCH), Row(body=inner(b"b", {}), sys_flag=BATCH)])
    builder.write()
    with pytest.raises(CorruptRecord, match="batch in the record's body"):
        read_rows(tmp_path)
    assert [row["body"] for row in read_rows(tmp_path, drop_malformed=True)] == [b"a", b"b"]


def test_what_is_not_committed_is_left_out_unless_asked_for(tmp_path: Path) -> None:
    half = {"REAL_TOPIC": "Orders", "REAL_QID": "5"}
    builder = StoreBuilder(tmp_path)
    builder.append(Row(topic="Orders", body=b"plain"))
    builder.append(Row(topic="RMQ_SYS_TRANS_HALF_TOPIC", body=b"half", properties=half))
    builder.append(Row(topic="RMQ_SYS_TRANS_HALF_TOPIX", body=b"as long"))
    builder.append(Row(topic="Orders", body=b"prepared", sys_flag=SysFlag.TRANSACTION_PREPARED), index=False)
    builder.append(Row(topic="Orders", body=b"rolled back", sys_flag=SysFlag.TRANSACTION_ROLLBACK), index=False)
    builder.append(Row(topic="Orders", body=b"committed", sys_flag=SysFlag.TRANSACTION_COMMIT))
    builder.write()
    assert [row["body"] for row in read_rows(tmp_path)] == [b"plain", b"as long", b"committed"]
    columns = ["body", "realTopic", "realQueueId"]
    every = read_rows(tmp_path, columns=columns, read_uncommitted=True)
    assert [row["body"] for row in every] == [b"plain", b"half", b"as long", b"prepared", b"rolled back", b"committed"]
    assert (every[1]["realTopic"], every[1]["realQueueId"]) == ("Orders", 5)
    with pytest.raises(ConfigError, match="isolationLevel=read_uncommitted"):
        read_options({"path": str(tmp_path), "subscribe": "RMQ_SYS_TRANS_HALF_TOPIC"})
    asked = {"path": str(tmp_path), "subscribe": "RMQ_SYS_TRANS_HALF_TOPIC", "isolationLevel": "READ_UNCOMMITTED"}
    assert read_options(asked).reading.read_uncommitted


def test_a_queue_id_that_is_none_leaves_the_own_one(tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path)
    for text in ("9", "", "-1", "99999999999", "x"):
        properties = {"REAL_TOPIC": "T", "REAL_QID": text}
        builder.append(Row(topic="SCHEDULE_TOPIC_XXXX", queue_id=2, properties=properties))
    builder.append(Row(topic="SCHEDULE_TOPIC_XXXX", queue_id=2))
    builder.write()
    rows = read_rows(tmp_path, columns=["realQueueId", "realTopic"])
    assert [row["realQueueId"] for row in rows] == [9, 2, 2, 2, 2, 2]
    assert [row["realTopic"] for row in rows] == [*["T"] * 5, "SCHEDULE_TOPIC_XXXX"]


def test_many_bodies_that_inflate_to_much_come_in_several_batches(tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path, segment_bytes=1 << 20)
    content = bytes(6 * 1024 * 1024)
    compressed = zlib.compress(content)
    builder.extend(Row(body=compressed, sys_flag=SysFlag.COMPRESSED) for _ in range(9))
    builder.write()
    assert 9 * len(content) > MOST_AT_ONCE
    rows = read_rows(tmp_path, columns=["queueOffset", "body"], decode=DecodeOptions(inflate_bodies=True))
    assert [row["queueOffset"] for row in rows] == list(range(9))
    assert all(row["body"] == content for row in rows)


@pytest.mark.parametrize("left", [-9, -1, 5, 0])
@pytest.mark.parametrize("kind", COMPRESS)
def test_a_compressed_body_that_was_cut_off(tmp_path: Path, kind: str, left: int) -> None:
    flag, compress = COMPRESS[kind]
    builder = StoreBuilder(tmp_path)
    builder.append(Row(body=compress(CONTENT)[:left], sys_flag=SysFlag.COMPRESSED | flag))
    builder.append(Row(body=b"plain"))
    builder.write()
    with pytest.raises(CorruptRecord, match=f"not {kind}"):
        read_rows(tmp_path, decode=DecodeOptions(inflate_bodies=True))
    going_on = DecodeOptions(inflate_bodies=True, drop_malformed=True)
    assert [row["body"] for row in read_rows(tmp_path, decode=going_on)] == [b"plain"]


def test_a_body_of_several_zstd_frames(tmp_path: Path) -> None:
    content = [CONTENT, random.Random(4).randbytes(3000), b"", b"end"]
    frames = [zstandard.ZstdCompressor(write_content_size=bool(number % 2)).compress(each)
              for number, each in enumerate(content)]  # fmt: skip
    builder = StoreBuilder(tmp_path)
    flags = SysFlag.COMPRESSED | SysFlag.COMPRESSION_ZSTD
    builder.append(Row(body=b"".join(frames), sys_flag=flags))
    builder.append(Row(body=b"".join(frames)[:-1], sys_flag=flags))
    builder.append(Row(body=b"".join(frames) + b"more", sys_flag=flags))
    builder.write()
    decode = DecodeOptions(inflate_bodies=True, drop_malformed=True)
    assert [row["body"] for row in read_rows(tmp_path, decode=decode)] == [b"".join(content)]
    too_small = DecodeOptions(inflate_bodies=True, inflate_max_bytes=len(CONTENT) + 2999)
    with pytest.raises(CorruptRecord, match="inflates to more than"):
        read_rows(tmp_path, decode=too_small)


def test_a_record_that_is_larger_than_a_window(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spark.read.log_reader.WINDOW_BYTES", 8192)
    builder = StoreBuilder(tmp_path, segment_bytes=1 << 18)
    sizes = [10, 9000, 50, 40_000, 8192, 0, 100_000, 7, *[300] * 200]
    builder.extend(Row(body=bytes([size % 251]) * size) for size in sizes)
    builder.write()
    for topics in (None, frozenset({"T"})):
        rows = read_rows(tmp_path, columns=["body"], topics=topics)
        assert [len(row["body"]) for row in rows] == sizes


def test_light_queues_are_named(tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path)
    builder.append(Row())
    builder.write()
    (tmp_path / "consumequeue" / "%LMQ%one" / "0").mkdir(parents=True)
    with pytest.raises(ConfigError, match="startingOffsets=earliest"):
        LogReader(read_options({"path": str(tmp_path), "subscribe": "T,%LMQ%one"}), spark_schema(["topic"]))
    assert len(read_rows(tmp_path, topic_pattern=".*")) == 1
