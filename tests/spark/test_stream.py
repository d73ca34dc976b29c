"""The streaming reader, driven as Spark drives it, without Spark: offsets, batches, and what changes in mid-stream."""

import json
import logging
import random
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows

from spark.options.source_options import read_options
from spark.queues.data_loss import MessagesLost
from spark.rows.row_batches import spark_schema
from spark.stream import QueueStreamReader
from sprocket.common.clock import SystemClock
from sprocket.common.errors import ConfigError
from store.disk.disk import RealDisk
from store.flush.confirm_mark import CONFIRM_MARK, ConfirmMark
from store.flush.confirmation import Confirmation
from tests.spark.read.test_log_reader import mixed_rows
from tests.spark.store_builder import Row, StoreBuilder

Place = tuple[str, int, int]


class Stream:
    """A query: its options, its checkpoint, and what its sink got."""

    def __init__(self, path: Path | str, **options: str) -> None:
        self._options = {"path": str(path), "startingOffsets": "earliest", **options}
        self.start: dict[str, object] | None = None
        self.planned: tuple[dict[str, object], dict[str, object]] | None = None
        self.rows: list[dict[str, Any]] = []
        self.restart()

    def restart(self) -> None:
        options = read_options({name: text for name, text in self._options.items() if text})
        self.reader = QueueStreamReader(options, spark_schema(options.columns))

    def batch(self, limit: ReadLimit | None = None) -> bool:
        """One trigger; whether there was a batch.  What goes to the checkpoint goes through JSON, as in Spark."""
        start = self.reader.initialOffset() if self.start is None else self.start
        end = json.loads(json.dumps(self.reader.latestOffset(start, limit or self.reader.getDefaultReadLimit())))
        if json.dumps(end) == json.dumps(start):
            return False
        self.planned = (start, end)
        self.rows += self.run()
        self.start = end
        return True

    def run(self) -> list[dict[str, Any]]:
        """The rows of the batch planned last."""
        assert self.planned is not None
        tasks = self.reader.partitions(*self.planned)
        batches: Iterator[pa.RecordBatch] = (batch for task in tasks for batch in self.reader.read(task))
        return [row for batch in batches for row in batch.to_pylist()]

    def drain(self, limit: ReadLimit | None = None) -> list[Place]:
        """Batches until there is nothing new; the places of all rows so far, in the order of the log."""
        while self.batch(limit):
            pass
        return self.places

    @property
    def places(self) -> list[Place]:
        rows = sorted(self.rows, key=lambda row: row["physicalOffset"])
        return [(row["topic"], row["queueId"], row["queueOffset"]) for row in rows]


def places(builder: StoreBuilder, first: int = 0) -> list[Place]:
    return [(row.topic, row.queue_id, row.queue_offset) for row in builder.rows[first:]]


@pytest.fixture
def builder(tmp_path: Path) -> StoreBuilder:
    return StoreBuilder(tmp_path / "broker-a" / "store")


def test_every_message_once_while_the_store_grows(builder: StoreBuilder) -> None:
    rnd = random.Random(8)
    rows = mixed_rows(2000)
    builder.extend(rows[:300])
    builder.write()
    stream = Stream(builder.root, maxOffsetsPerTrigger="130")
    at = 300
    while at < len(rows):
        more = rnd.choice([1, 40, 400])
        builder.extend(rows[at : at + more])
        at += more
        builder.write()
        for _ in range(rnd.randrange(4)):
            before = len(stream.rows)
            stream.batch()
            assert len(stream.rows) - before <= 130
        if rnd.random() < 0.3:
            stream.restart()
    assert stream.drain() == places(builder)


def test_a_batch_that_is_repeated_is_the_same(builder: StoreBuilder) -> None:
    """After a crash Spark runs the batch of its log again, with a reader that remembers nothing, whatever is new."""
    builder.extend(mixed_rows(400))
    builder.write()
    stream = Stream(builder.root, maxOffsetsPerTrigger="150", startingOffsets="earliest")
    for turn in range(4):
        stream.batch()
        rows = stream.run()
        builder.extend(replace(row, topic=f"New{turn}") for row in mixed_rows(50))
        builder.write()
        stream.restart()
        assert stream.run() == rows


def test_the_first_batch_only_says_where_the_stream_begins(builder: StoreBuilder) -> None:
    """`latest` must mean the same if Spark asks for it again after a crash."""
    builder.extend(mixed_rows(60))
    builder.write()
    stream = Stream(builder.root, startingOffsets="")
    assert stream.reader.initialOffset() == {}
    assert stream.batch()
    assert stream.rows == []
    assert not stream.batch()
    builder.extend(mixed_rows(30))
    builder.write()
    assert stream.drain() == places(builder, 60)


@pytest.mark.parametrize("with_broker", [False, True])
def test_starting_offsets_as_json(builder: StoreBuilder, with_broker: bool) -> None:
    builder.extend(Row(queue_id=number) for number in range(3) for _ in range(10))
    builder.write()
    topics = {"T": {"0": 4, "1": -1}}
    asked = {"broker-a": topics} if with_broker else topics
    stream = Stream(builder.root, startingOffsets=json.dumps(asked))
    assert stream.drain() == [("T", 0, at) for at in range(4, 10)] + [("T", 2, at) for at in range(10)]


def test_starting_offsets_that_do_not_exist(builder: StoreBuilder) -> None:
    builder.extend(Row() for _ in range(5))
    builder.write()
    with pytest.raises(ConfigError, match="broker-a/T/0 ends at 5, it has no offset 6"):
        Stream(builder.root, startingOffsets='{"T": {"0": 6}}').batch()
    with pytest.raises(ConfigError, match="not read: U/0"):
        Stream(builder.root, startingOffsets='{"U": {"0": 1}}').batch()


def test_starting_timestamp(builder: StoreBuilder) -> None:
    builder.extend(Row(queue_id=index % 2, store_timestamp=1000 + index) for index in range(50))
    builder.write()
    assert Stream(builder.root, startingOffsets="", startingTimestamp="1031").drain() == places(builder, 31)


def test_new_topics_queues_and_brokers_begin_at_their_first_message(tmp_path: Path, builder: StoreBuilder) -> None:
    builder.extend(Row(topic="Flights") for _ in range(10))
    builder.write()
    stream = Stream(tmp_path / "*" / "store", startingOffsets="latest", subscribePattern="Fl.*", columns="")
    stream.batch()
    builder.extend([Row(topic="Flights", queue_id=1), Row(topic="Fleet"), Row(topic="Other"), Row(topic="Flights")])
    builder.write()
    later = StoreBuilder(tmp_path / "broker-b" / "store")
    later.extend(Row(topic="Flotsam", queue_id=queue_id) for queue_id in (0, 0, 1))
    later.write()
    assert sorted(stream.drain()) == sorted(
        [
            ("Flights", 1, 0),
            ("Fleet", 0, 0),
            ("Flights", 0, 10),
            ("Flotsam", 0, 0),
            ("Flotsam", 0, 1),
            ("Flotsam", 1, 0),
        ]
    )


def test_admission_gives_each_queue_its_share(builder: StoreBuilder) -> None:
    builder.extend(Row(queue_id=number) for number, count in enumerate([1000, 100, 3, 0]) for _ in range(count))
    builder.write()
    stream = Stream(builder.root)
    stream.batch(ReadMaxRows(100))
    sizes = []
    while stream.batch(ReadMaxRows(100)):
        sizes.append(len(stream.run()))
    assert sizes == [100] * 11 + [3]
    assert len(stream.rows) == 1103


def test_available_now_ends_although_the_store_grows(builder: StoreBuilder) -> None:
    builder.extend(mixed_rows(200))
    builder.write()
    stream = Stream(builder.root, maxOffsetsPerTrigger="70")
    stream.reader.prepareForTriggerAvailableNow()
    for _ in range(20):
        builder.extend(mixed_rows(10))
        builder.append(Row(topic="Newer"))
        builder.write()
        if not stream.batch():
            break
    else:
        pytest.fail("it goes on for ever")
    assert stream.places == places(builder)[:200]
    stream.restart()
    stream.reader.prepareForTriggerAvailableNow()
    assert stream.drain() == places(builder)


def test_expired_messages_stop_the_stream_or_are_counted(
    builder: StoreBuilder, caplog: pytest.LogCaptureFixture
) -> None:
    builder.extend(Row(topic=topic, body=b"x" * 400) for _ in range(150) for topic in ("T", "U"))
    builder.write()
    stream, lenient = Stream(builder.root), Stream(builder.root, failOnDataLoss="false")
    for each in (stream, lenient):
        each.batch()
        each.batch(ReadMaxRows(10))
    (builder.root / "commitlog" / f"{0:020d}").unlink()
    left = [row for row in builder.rows if row.physical_offset >= 1 << 16]
    first = {topic: min(row.queue_offset for row in left if row.topic == topic) for topic in ("T", "U")}
    with pytest.raises(MessagesLost) as caught:
        stream.batch()
    for topic in ("T", "U"):
        assert f"broker-a/{topic}/0 [5, {first[topic]}) expired" in str(caught.value)
    with caplog.at_level(logging.WARNING):
        assert lenient.drain()[10:] == places(builder)[-len(left) :]
    counted = [record.args[5] for record in caplog.records if isinstance(record.args, tuple) and len(record.args) == 7]
    assert sum(int(str(count)) for count in counted) == first["T"] + first["U"] - 10


def test_a_topic_made_again_is_noticed(builder: StoreBuilder, caplog: pytest.LogCaptureFixture) -> None:
    builder.extend(Row() for _ in range(20))
    builder.write()
    stream, lenient = Stream(builder.root), Stream(builder.root, failOnDataLoss="false")
    stream.drain()
    lenient.drain()
    shutil.rmtree(builder.root / "consumequeue" / "T")
    with pytest.raises(MessagesLost, match=r"broker-a/T/0 .* deleted with its queue"):
        stream.batch()
    again = StoreBuilder(builder.root)
    again.extend(Row(body=b"again") for _ in range(4))
    again.write()
    with pytest.raises(MessagesLost, match=r"broker-a/T/0 \[20, 20\) is past the queue's end 4: .* created again"):
        stream.batch()
    lenient.rows.clear()
    with caplog.at_level(logging.WARNING):
        assert lenient.drain() == [("T", 0, at) for at in range(4)]
    assert "created again" in caplog.text


def test_a_log_that_was_cut_short_is_noticed(builder: StoreBuilder) -> None:
    builder.extend(Row() for _ in range(9))
    builder.write()
    stream = Stream(builder.root)
    stream.drain()
    shutil.rmtree(builder.root)
    shorter = StoreBuilder(builder.root)
    shorter.extend(Row() for _ in range(5))
    shorter.write()
    stream.restart()
    with pytest.raises(MessagesLost, match=r"broker-a/T/0 \[9, 9\) is past the queue's end 5: .* truncated"):
        stream.batch()


def test_what_a_broker_shows_later_is_not_lost(builder: StoreBuilder) -> None:
    """A killed broker's mark limits nothing after a minute; that of its next run may lie before what was read since."""
    builder.extend(Row() for _ in range(9))
    builder.write()
    for fail in ("true", "false"):
        stream = Stream(builder.root, failOnDataLoss=fail)
        stream.drain()
        confirmed = SimpleNamespace(is_limited=True, confirm_offset=stream.rows[4]["physicalOffset"])
        ConfirmMark(RealDisk(), SystemClock(), builder.root, cast(Confirmation, confirmed)).write()
        stream.restart()
        assert not stream.batch()
        (builder.root / CONFIRM_MARK).unlink()
        stream.rows.clear()
        assert stream.drain() == []
    builder.extend(Row() for _ in range(2))
    builder.write()
    assert stream.drain() == [("T", 0, 9), ("T", 0, 10)]


def test_a_broker_that_is_away_keeps_its_place(tmp_path: Path, builder: StoreBuilder) -> None:
    other = StoreBuilder(tmp_path / "broker-b" / "store")
    for port, each in enumerate((builder, other), 10_911):
        each.extend(Row(topic="T", store_port=port) for _ in range(5))
        each.write()
    stream = Stream(f"broker-a={tmp_path}/broker-a/store,broker-b={tmp_path}/broker-b/sto*")
    stream.drain()
    assert stream.start is not None
    away = Stream(f"broker-a={tmp_path}/broker-a/store")
    away.start = stream.start
    assert not away.batch()
    other.extend(Row(topic="T") for _ in range(2))
    other.write()
    stream.rows.clear()
    assert stream.drain() == [("T", 0, 5), ("T", 0, 6)]


def test_a_store_keeps_its_name_when_another_one_comes(tmp_path: Path) -> None:
    first, second = (StoreBuilder(tmp_path / name / "rocketmq") for name in ("a", "b"))
    for port, each in enumerate((first, second)):
        each.extend(Row(store_port=port, queue_id=port) for _ in range(5))
    first.write()
    stream = Stream(tmp_path / "*" / "rocketmq")
    stream.drain()
    second.write()
    stream.drain()
    assert sorted(stream.places) == [("T", port, at) for port in (0, 1) for at in range(5)]
    assert stream.start is not None and list(stream.start) == ["a", "b"]


def test_a_store_that_gets_another_name_stops_the_stream(tmp_path: Path) -> None:
    """Under the new one its messages would all come once more."""
    for port, place in enumerate(("a/disk1/store", "b/disk1/store", "b/disk2/store")):
        each = StoreBuilder(tmp_path / place)
        each.append(Row(store_port=port))
        each.write()
    hidden = (tmp_path / "b").rename(tmp_path / "elsewhere")
    stream = Stream(tmp_path / "?" / "disk?" / "store")
    stream.drain()
    hidden.rename(tmp_path / "b")
    with pytest.raises(ConfigError, match=r"a/disk1/store was 'disk1', and is .* write it as disk1="):
        stream.batch()


def test_a_batch_that_is_repeated_while_a_store_is_away(tmp_path: Path, builder: StoreBuilder) -> None:
    other = StoreBuilder(tmp_path / "broker-b" / "store")
    for port, each in enumerate((builder, other), 10_911):
        each.extend(Row(topic="T", store_port=port) for _ in range(5))
        each.write()
    stream = Stream(tmp_path / "*" / "store")
    stream.drain()
    away = (tmp_path / "broker-b").rename(tmp_path / "away")
    shutil.rmtree(away / "store")
    stream.restart()
    with pytest.raises(ConfigError, match=r"the batch reads broker-b, and path .* has no store of that name now"):
        stream.run()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"endingOffsets": "latest"}, "'endingOffsets' is for batch reads"),
        ({"endingTimestamp": "5"}, "'endingTimestamp' is for batch reads"),
        ({"startingTimestamp": "5"}, "exclude each other"),
        ({"maxOffsetsPerTrigger": "0"}, "'maxOffsetsPerTrigger': '0'"),
        ({"failOnDataLoss": "perhaps"}, "'failOnDataLoss': 'perhaps'"),
        ({"assign": '{"T": [0]}', "subscribe": "T"}, "'assign' and 'subscribe' exclude"),
    ],
)
def test_options_that_no_stream_has(builder: StoreBuilder, options: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Stream(builder.root, **options)


def test_read_limits(builder: StoreBuilder) -> None:
    assert Stream(builder.root).reader.getDefaultReadLimit() == ReadAllAvailable()
    assert Stream(builder.root, maxOffsetsPerTrigger="7").reader.getDefaultReadLimit() == ReadMaxRows(7)
