"""Topics with a batch ConsumeQueue by queue offset: ranges that begin and end inside a record, and what was sent."""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from spark.files.store_directory import StoreDirectory
from spark.options.source_options import read_options
from spark.queue_scan import QueueBatchReader
from spark.queues import reader
from spark.queues.data_loss import MessagesLost
from spark.queues.positions import QueueId
from spark.queues.ranges import QueueRange, QueueSelection, StoreQueues
from spark.queues.source import packed
from spark.rows.row_batches import spark_schema
from sprocket.common.errors import ConfigError, CorruptRecord
from sprocket.remoting.message.record import SysFlag
from store.config.store_config import StoreConfig
from store.message_store import MessageStore
from store.queue.logic_queue import QueueType
from tests.clock import ManualClock
from tests.spark.decode.test_record_kinds import BATCH, inner
from tests.spark.naive_reader import default_columns
from tests.spark.queues.test_queue_ranges import ranges_of, read
from tests.spark.store_builder import Row, StoreBuilder
from tests.spark.test_stream import Stream
from tests.store.rig import message
from tests.tiers import seeds

TOPIC = "Batched"
Messages = dict[int, dict[str, Any]]


class Writer:
    """Batches of any size in queues of their own, among messages of another topic; `sent` is each by queue offset."""

    def __init__(self, root: Path, seed: int, **shape: int) -> None:
        self.builder = StoreBuilder(root, **shape)
        self.rnd = random.Random(seed)
        self.sent: dict[int, Messages] = {0: {}, 1: {}}
        self.plain: list[Row] = []

    def write(self, records: int, most: int = 9) -> None:
        for _ in range(records):
            if self.rnd.random() < 0.3:
                self.plain.append(self.builder.append(Row(topic="Plain", body=self.rnd.randbytes(30))))
            else:
                self.batch(self.rnd.randrange(2), self.rnd.randint(1, most))
        self.builder.write()

    def batch(self, queue_id: int, count: int, index: bool = True) -> None:
        """A record of `count` messages; one that is alone may not be a batch at all, or be one that stays closed."""
        rows = [
            Row(TOPIC, queue_id, self.rnd.randbytes(20), {"TAGS": f"t{n % 3}", "KEYS": f"k{n}"}) for n in range(count)
        ]
        stored_ms = 1_700_000_000_000 + 10 * len(self.builder.rows)
        if count == 1 and self.rnd.random() < 0.5:
            record = Row(TOPIC, queue_id, rows[0].body, rows[0].properties, store_timestamp=stored_ms)
        else:
            body = b"".join(inner(row.body, dict(row.properties)) for row in rows)
            record = Row(TOPIC, queue_id, body, {"INNER_NUM": str(count)}, store_timestamp=stored_ms, sys_flag=BATCH)
        record = self.builder.append_batch(record, count, index)
        if index:
            for place, row in enumerate(rows):
                columns = {**default_columns(record), "body": row.body, "tags": row.tags, "keys": row.keys}
                offset = record.queue_offset + place
                self.sent[queue_id][offset] = {**columns, "queueOffset": offset}

    def expected(self, *ranges: tuple[int, int, int]) -> list[dict[str, Any]]:
        """What was sent within ranges of (queue id, begin, end), in the order of the log."""
        rows = [row for queue_id, begin, end in ranges for at, row in self.sent[queue_id].items() if begin <= at < end]
        return sorted(rows, key=lambda row: (row["physicalOffset"], row["queueOffset"]))

    @property
    def places(self) -> list[tuple[Any, ...]]:
        plain = [default_columns(row) for row in self.plain]
        every = sorted([*self.sent[0].values(), *self.sent[1].values(), *plain], key=lambda row: row["physicalOffset"])
        return [(row["topic"], row["queueId"], row["queueOffset"]) for row in every]


@pytest.fixture
def writer(tmp_path: Path) -> Writer:
    writer = Writer(tmp_path / "broker-a" / "store", 3, segment_bytes=1 << 14, queue_entries=20)
    writer.builder.start_queue_at(TOPIC, 1, 5_000_000_000)
    return writer


def queue(number: int, begin: int, end: int) -> QueueRange:
    return QueueRange(QueueId("b", TOPIC, number), begin, end)


@pytest.mark.parametrize("seed", seeds(3))
def test_any_range_is_what_was_sent(tmp_path: Path, seed: int) -> None:
    writer = Writer(tmp_path, seed, segment_bytes=1 << 14, queue_entries=20)
    writer.builder.start_queue_at(TOPIC, 1, 5_000_000_000)
    writer.write(250)
    bounds = {number: (min(sent), max(sent) + 1) for number, sent in writer.sent.items()}
    found = ranges_of(tmp_path, QueueSelection(topics=frozenset({TOPIC})))
    assert found == {(TOPIC, number): bounds[number] for number in bounds}
    for _ in range(12):
        ranges = []
        for number, (begin, end) in bounds.items():
            first = writer.rnd.randrange(begin, end)
            ranges.append((number, first, writer.rnd.randint(first, min(end, first + writer.rnd.choice([3, 1000])))))
        assert read(tmp_path, *[queue(*each) for each in ranges]) == writer.expected(*ranges)
    # Tasks cut batches wherever their share ends.
    for share in (7, 40):
        packs = packed([queue(number, *bounds[number]) for number in bounds], share, at_least=True)
        rows = [row for pack in packs for row in read(tmp_path, *pack)]
        order = sorted(rows, key=lambda row: (row["physicalOffset"], row["queueOffset"]))
        assert order == writer.expected(*[(number, *bounds[number]) for number in bounds])


def test_records_of_more_messages_than_a_chunk(writer: Writer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "CHUNK_ROWS", 16)
    for count in (3, 20, 9, 9, 2, 7, 5, 4, 40):
        writer.batch(0, count)
    writer.builder.write()
    for each in [(0, 0, 99), (0, 19, 21), (0, 30, 98), (0, 41, 43)]:
        assert read(writer.builder.root, queue(*each)) == writer.expected(each)


def test_a_queue_whose_begin_has_expired(writer: Writer) -> None:
    writer.write(400)
    root = writer.builder.root
    oldest, second, left, *_ = sorted((root / "commitlog").iterdir())
    oldest.unlink()
    second.unlink()
    min((root / "batchconsumequeue" / TOPIC / "1").iterdir()).unlink()
    for number, sent in writer.sent.items():
        standing = [at for at, row in sent.items() if row["physicalOffset"] >= int(left.name)]
        begin, end = ranges_of(root)[TOPIC, number]
        assert (begin, end) == (standing[0], max(sent) + 1)
        assert read(root, queue(number, begin, end)) == writer.expected((number, begin, end))
        with pytest.raises(MessagesLost, match=rf"b/Batched/{number} \["):
            read(root, queue(number, begin - 2, end))
        rows = read(root, queue(number, begin - 2, begin + 5), fail=False)
        assert rows == writer.expected((number, begin, begin + 5))
    with pytest.raises(MessagesLost, match=rf"\[{end - 1}, {end + 3}\) deleted|\[{end}, {end + 3}\) deleted"):
        read(root, queue(1, end - 1, end + 3))


def test_offsets_that_no_entry_has_are_no_loss(writer: Writer) -> None:
    """RocketMQ leaves a message that was sent without its number out of the queue."""
    for index in (True, False, True, True, False, True):
        writer.batch(0, 4, index)
    writer.builder.write()
    root = writer.builder.root
    assert ranges_of(root) == {(TOPIC, 0): (0, 24)}
    for begin in range(24):
        for end in (begin + 1, 13, 24):
            assert read(root, queue(0, begin, end)) == writer.expected((0, begin, end))


@pytest.mark.parametrize(("number", "found"), [(200, "batch ConsumeQueue b/Batched/0"), (2, "holds 3 messages, not 2")])
def test_a_wrong_number_of_messages_is_damage(writer: Writer, number: int, found: str) -> None:
    for _ in range(6):
        writer.batch(0, 3)
    writer.builder.write()
    path = next((writer.builder.root / "batchconsumequeue" / TOPIC / "0").iterdir())
    content = bytearray(path.read_bytes())
    content[46 * 3 + 36 : 46 * 3 + 38] = number.to_bytes(2, "big")
    path.write_bytes(content)
    with pytest.raises(CorruptRecord, match=found):
        read(writer.builder.root, queue(0, 0, 18))


def test_times_and_leases_find_the_record(writer: Writer) -> None:
    writer.write(300)
    queues = StoreQueues(StoreDirectory(writer.builder.root, "b"), QueueSelection())
    queues.ranges()
    for number, sent in writer.sent.items():
        for row in writer.builder.rows[::17]:
            later = [
                at for at, each in sent.items() if each["storeTimestamp"] >= default_columns(row)["storeTimestamp"]
            ]
            expected = min(later, default=max(sent) + 1)
            assert queues.at_time(QueueId("b", TOPIC, number), row.store_timestamp) == expected
        at = sorted(sent)[len(sent) // 2]
        segment = queues.first_segment([queue(number, at, at + 1)])
        assert segment == sent[at]["physicalOffset"] // (1 << 14) * (1 << 14)


def test_assign_and_offsets_as_options(writer: Writer) -> None:
    writer.write(100)
    options = read_options({
        "path": str(writer.builder.root), "assign": f'{{"{TOPIC}": [1]}}',
        "startingOffsets": f'{{"{TOPIC}": {{"1": 5000000005}}}}',
        "endingOffsets": f'{{"{TOPIC}": {{"1": 5000000017}}}}',
    })  # fmt: skip
    reader = QueueBatchReader(options, spark_schema(options.columns))
    rows = [row for task in reader.partitions() for batch in reader.read(task) for row in batch.to_pylist()]
    assert [row["queueOffset"] for row in rows] == list(range(5_000_000_005, 5_000_000_017))


@pytest.mark.parametrize("assign, absent", [("[1, 77]", f"{TOPIC}/77"), ("[1]", "")])
def test_an_assigned_queue_that_is_not_there_is_named(
    writer: Writer, caplog: pytest.LogCaptureFixture, assign: str, absent: str
) -> None:
    writer.write(30)
    options = read_options({"path": str(writer.builder.root), "assign": f'{{"{TOPIC}": {assign}}}'})
    assert QueueBatchReader(options, spark_schema(options.columns)).partitions()
    stream = Stream(writer.builder.root, assign=f'{{"{TOPIC}": {assign}}}')
    stream.batch()
    said = [record.getMessage() for record in caplog.records if "nothing_to_read" in record.msg]
    assert len(said) == (2 if absent else 0)
    assert all(f"name={absent} " in each for each in said)


def test_a_stream_cuts_batches_where_its_limit_says(writer: Writer) -> None:
    writer.write(20)
    stream = Stream(writer.builder.root, maxOffsetsPerTrigger="7")
    for _ in range(4):
        writer.write(15, most=20)
        for _ in range(writer.rnd.randrange(12)):
            before = len(stream.rows)
            stream.batch()
            assert len(stream.rows) - before <= 7
            again = stream.run()
            assert again == stream.rows[before:] or len(stream.rows) == before
        if writer.rnd.random() < 0.5:
            stream.restart()
    assert stream.drain() == writer.places


def test_files_of_both_kinds_are_refused(writer: Writer) -> None:
    writer.batch(0, 4)
    writer.builder.append(Row(topic=TOPIC))
    writer.builder.write()
    with pytest.raises(ConfigError, match=r"Batched/0 has files in both .*another queue\.type"):
        ranges_of(writer.builder.root)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MessageStore]:
    config = StoreConfig(store_path_root_dir=tmp_path, mapped_file_size_commit_log=1 << 14)
    types = {TOPIC: QueueType.BATCH}
    store = MessageStore(config, clock=ManualClock(), notify=lambda run: run(), queue_type_of=types.get)
    store.start()
    yield store
    store.shutdown()


def test_what_the_store_writes(store: MessageStore, tmp_path: Path) -> None:
    flags = int(SysFlag.INNER_BATCH | SysFlag.NEED_UNWRAP)
    bodies: list[bytes] = []
    for count in [1, 5, 2, 40, 3] * 8:
        own = [b"%d" % (len(bodies) + place) for place in range(count)]
        bodies += own
        body = b"".join(inner(each, {}) for each in own)
        store.append([message(TOPIC, 0, body, sys_flag=flags, properties=b"INNER_NUM\x01%d\x02" % count)])
    assert ranges_of(tmp_path, QueueSelection(topics=frozenset({TOPIC}))) == {(TOPIC, 0): (0, len(bodies))}
    for begin, end in [(0, len(bodies)), (3, 9), (100, 101), (300, 408)]:
        assert [row["body"] for row in read(tmp_path, queue(0, begin, end))] == bodies[begin:end]
