"""Stores that a broker is writing: nothing past the confirm offset, and rows that are right while it works."""

import logging
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from spark.files.confirm_limit import confirm_limit
from spark.files.segment_lease import LeaseKeeper, SegmentLease
from spark.options.reading_options import ReadingOptions
from spark.options.source_options import SourceOptions, read_options
from spark.read.leased_plan import Tasks, leased_plan
from spark.read.log_reader import read_span
from spark.rows.filters import RowFilter
from spark.rows.row_batches import spark_schema
from spark.source import LogPartition, LogReader
from sprocket.client.message import Message
from sprocket.common.errors import ConfigError, StoreError
from sprocket.sync import Producer
from sprocket.testing import Broker
from store.config.store_config import FlushDiskType, StoreConfig
from store.flush.confirm_mark import CONFIRM_MARK, decode_confirm_mark
from store.message_store import MessageStore
from store.retention.leases import Leases
from tests.clock import ManualClock
from tests.spark.conftest import read_rows
from tests.store.insides import write_confirm_mark
from tests.store.rig import message

SEGMENT_BYTES = 128 * 1024
# Segments go as soon as they are no longer written.
CLEANING = {
    "mappedFileSizeCommitLog": str(SEGMENT_BYTES),
    "fileReservedTime": "0",
    "deleteWhen": ";".join(f"{hour:02}" for hour in range(24)),
    "cleanResourceInterval": "50",
    "deleteCommitLogFilesInterval": "0",
}


# -- the confirm offset --------------------------------------------------------------------------------------


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MessageStore]:
    config = StoreConfig(
        store_path_root_dir=tmp_path, mapped_file_size_commit_log=1 << 14, flush_disk_type=FlushDiskType.ASYNC_FLUSH
    )
    store = MessageStore(config, clock=ManualClock(), notify=lambda run: run())
    store.start()
    yield store
    store.shutdown()


def mark(store: MessageStore) -> None:
    """What the store's own thread does several times a second."""
    write_confirm_mark(store)


def test_what_replicas_do_not_have_is_not_read(store: MessageStore, tmp_path: Path) -> None:
    total = 0
    for confirmed in (3, 40):
        for _ in range(confirmed):
            store.append([message(body=b"x" * 1000)])
        store.confirmation.replicated(store.wrote_offset, store.wrote_offset, is_enough=True)
        total += confirmed
        # More than a segment of it: the limit then lies in one that the log has left.
        for _ in range(30):
            store.append([message(body=b"y" * 1000)])
        mark(store)
        rows = read_rows(tmp_path)
        assert len(rows) == total
        assert rows[-1]["body"].startswith(b"x")
        assert len(read_rows(tmp_path, topics=frozenset({rows[0]["topic"]}))) == total
        store.confirmation.replicated(store.wrote_offset, store.wrote_offset, is_enough=True)
        mark(store)
        total += 30
        assert len(read_rows(tmp_path)) == total


def test_a_mark_that_a_kill_left_behind_limits_nothing(store: MessageStore, tmp_path: Path) -> None:
    store.append([message()])
    store.confirmation.replicated(0, 0, is_enough=True)
    store.append([message()])
    mark(store)
    content = (tmp_path / CONFIRM_MARK).read_bytes()
    found = decode_confirm_mark(content)
    assert isinstance(found, tuple)
    assert confirm_limit(tmp_path) == found[0]
    # Elsewhere, where no lock can be seen: fresh it counts, old it does not.
    copy = tmp_path / "copy"
    copy.mkdir()
    (copy / CONFIRM_MARK).write_bytes(content)
    assert confirm_limit(copy, ManualClock(found[1] + 1000)) == found[0]
    assert confirm_limit(copy, ManualClock(found[1] + 3_600_000)) is None


def test_a_mark_that_cannot_be_read_stops_the_read_of_a_live_store(store: MessageStore, tmp_path: Path) -> None:
    (tmp_path / CONFIRM_MARK).write_bytes(b"nonsense")
    with pytest.raises(ConfigError, match="restart the broker"):
        confirm_limit(tmp_path)


# -- leases --------------------------------------------------------------------------------------------------


def test_queries_that_begin_at_one_segment_share_a_lease(tmp_path: Path) -> None:
    lease = SegmentLease(tmp_path, 4096, 60_000)
    assert lease.hold()
    path = tmp_path / "leases" / "spark-00000000000000004096.json"
    before = path.read_bytes()
    LeaseKeeper([lease]).keep()
    assert path.read_bytes() == before  # more than half of it is left
    assert SegmentLease(tmp_path, 4096, 600_000).hold()
    assert path.read_bytes() != before
    assert list(Leases(tmp_path).list()) == [path.stem]


def test_a_lease_that_cannot_be_had_once_is_asked_for_again(tmp_path: Path) -> None:
    answers = []

    class Refused(SegmentLease):
        def hold(self) -> bool:
            answers.append(len(answers) > 0)
            return answers[-1]

    keeper = LeaseKeeper([Refused(tmp_path, 0, 0)])
    for _ in range(3):
        keeper.keep()
    assert answers == [False, True, True]


def test_without_the_right_to_write_it_goes_on_and_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "leases").write_text("no directory can be made here")
    with caplog.at_level(logging.WARNING):
        assert not SegmentLease(tmp_path, 0, 60_000).hold()
    assert "segments may expire while they are read" in caplog.text


# -- a broker process ----------------------------------------------------------------------------------------


def options_of(store: Path, **reading: Any) -> SourceOptions:
    return SourceOptions(paths=(f"b={store}",), reading=ReadingOptions(**reading), min_partitions=3)


def rows_of(tasks: Tasks, options: SourceOptions) -> list[tuple[int, int]]:
    """(queue, queue offset) of every message of the topic, as Spark's tasks would read them."""
    found = []
    for task in tasks:
        for span in task:
            rows = RowFilter(topics=frozenset({"Live"}))
            for arrays, _ in read_span(span, ["queueId", "queueOffset", "body"], rows, options.decoding()):
                found += list(zip(arrays[0].to_pylist(), arrays[1].to_pylist(), strict=True))
    return found


def assert_without_gaps(rows: list[tuple[int, int]]) -> None:
    for queue in {queue for queue, _ in rows}:
        offsets = [offset for number, offset in rows if number == queue]
        assert offsets == list(range(offsets[0], offsets[0] + len(offsets)))


class Sender:
    """Sends until it is told to stop."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._stop = threading.Event()
        self.sent = 0
        self.failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> "Sender":
        self._thread.start()
        wait_until(self, lambda: self.sent > 0)
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            with Producer("live", self._broker.namesrv) as producer:
                while not self._stop.is_set():
                    self.sent += len(list(producer.send_many([Message("Live", b"m" * 900)] * 50)))
        except BaseException as error:  # the test looks at it
            self.failure = error


def test_reads_while_a_broker_appends_and_rolls(tmp_path: Path) -> None:
    properties = {"mappedFileSizeCommitLog": str(SEGMENT_BYTES), "flushDiskType": "SYNC_FLUSH"}
    with Broker(tmp_path, properties=properties) as broker:
        broker.create_topic("Live", 2)
        options = options_of(broker.store)
        with Sender(broker) as sender:
            seen = reads = 0
            while (seen < 1500 or reads < 8) and sender.failure is None:
                rows = rows_of(leased_plan(options, RowFilter())[0].tasks, options)
                assert_without_gaps(rows)
                assert len(rows) >= seen
                seen, reads = len(rows), reads + 1
        assert sender.failure is None
        assert len(list((broker.store / "commitlog").iterdir())) > 5
        broker.stop()
        assert not (broker.store / CONFIRM_MARK).exists()
        assert len(rows_of(leased_plan(options, RowFilter())[0].tasks, options)) >= sender.sent


def test_a_lease_keeps_what_a_query_planned_and_without_one_it_says_what_is_lost(tmp_path: Path) -> None:
    with Broker(tmp_path, properties=CLEANING) as broker:
        broker.create_topic("Live", 2)
        log = broker.store / "commitlog"
        with Sender(broker) as sender:
            wait_until(sender, lambda: min(names(log)) > 0)  # they expire
            options = options_of(broker.store)
            for _ in range(10):
                planned, leases = leased_plan(options, RowFilter())
                assert leases
                last = max(names(log))
                wait_until(sender, lambda last=last: max(names(log)) > last + 4 * SEGMENT_BYTES)
                if min(names(log)) <= leases[0].from_offset:
                    break  # else the broker had decided on a segment before it saw the lease
            wait_until(sender, lambda: max(names(log)) > last + 8 * SEGMENT_BYTES)
            assert min(names(log)) <= leases[0].from_offset
            assert_without_gaps(rows_of(planned.tasks, options))
            for name in Leases(broker.store).list():  # one of them came too late, perhaps
                Leases(broker.store).release(name, "spark")
            # The plan of a query that holds nothing.
            reader = LogReader(read_options({"path": str(broker.store), "leaseTime": "0"}), spark_schema(["topic"]))
            partitions = reader.partitions()
            last = max(names(log))
            wait_until(sender, lambda: min(names(log)) > last)
        with pytest.raises(StoreError, match=r"has expired since the query was planned.*failOnDataLoss=false"):
            for partition in partitions:
                assert isinstance(partition, LogPartition)
                list(reader.read(partition))
        going_on = {"path": str(broker.store), "leaseTime": "0", "failOnDataLoss": "false"}
        forgiving = LogReader(read_options(going_on), spark_schema(["topic"]))
        assert [batch for partition in partitions for batch in forgiving.read(partition)] == []


def names(log: Path) -> list[int]:
    return [int(path.name) for path in log.iterdir()]


def wait_until(sender: Sender, holds: Any) -> None:
    """Let the sender go on until it holds; a sender that failed ends the wait."""
    pause = threading.Event()
    for _ in range(3000):
        if sender.failure is not None or holds():
            break
        pause.wait(0.01)
    assert sender.failure is None
    assert holds()
