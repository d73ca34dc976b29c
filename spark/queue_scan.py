"""Batch reads by queue offset: the ranges of a query, and the rows of one task."""

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
from pyspark.sql import datasource as pushed
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from spark.files.store_directory import find_stores
from spark.options.source_options import SourceOptions
from spark.queues.data_loss import report_loss
from spark.queues.positions import EARLIEST, LATEST, OffsetsOption, QueueId
from spark.queues.ranges import QueueRange, QueueSelection
from spark.queues.source import DirectoryQueues, QueueSource, ReadTask, packed, read_task
from spark.queues.stream_positions import query_ranges
from spark.read.known_topics import check_topics
from spark.rows.filters import RowFilter, TimeRange
from spark.rows.row_batches import checked_columns, record_batch
from spark.wire.pull import Subscription
from spark.wire.source import WireQueues

logger = logging.getLogger(__name__)


@dataclass
class QueuePartition(InputPartition):
    """Work of one task; None if there is nothing to read."""

    task: ReadTask | None


class QueueScan:
    """Part that batch reads and streams share: the columns, and the rows of a partition."""

    def __init__(self, options: SourceOptions, schema: StructType, rows: RowFilter) -> None:
        self.options = options
        self.rows = rows
        self._schema = schema
        self._selection = QueueSelection(options.topics, options.topic_pattern, options.queues.assigned)
        self._columns = checked_columns(schema, options.reading.corrupt_column)

    def source(self) -> QueueSource:
        """Return the queues that the options name."""
        options = self.options
        if options.wire is not None:
            return WireQueues(options.wire, self._selection, options.subscription or Subscription())
        if options.bucket is not None:
            from spark.bucket.queues import BucketQueues

            return BucketQueues(options.bucket, self._selection)
        return DirectoryQueues(options.paths, self._selection, options.reading.lease_ms)

    def warn_of_absent(self, queues: Iterable[QueueId]) -> None:
        """Log a warning for each named topic and queue that does not exist.

        It is no error, because a broker creates a queue's files with its first message.
        """
        for name in self._selection.absent(queues):
            logger.warning("event=nothing_to_read name=%s reason='no queue of that name has a message'", name)

    def partitions(self, source: QueueSource, ranges: Sequence[QueueRange]) -> list[QueuePartition]:
        """Return `ranges` divided among tasks; without ranges, one empty partition."""
        options = self.options
        packs = packed(ranges, options.min_partitions, at_least=options.queues.min_partitions is not None)
        # Spark would replace an empty list by one partition without a value, and read that.
        return [QueuePartition(task) for task in source.tasks(packs)] or [QueuePartition(None)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, QueuePartition)
        if partition.task is None:
            return
        schema = to_arrow_schema(self._schema, timezone="UTC")
        decode = self.options.decoding()
        fail = self.options.queues.fail_on_data_loss
        for arrays, count in read_task(partition.task, self._columns, self.rows, decode, fail):
            yield record_batch(arrays, count, schema)


class QueueBatchReader(DataSourceReader):
    """Reader of a batch by queue offset.  Raises ConfigError for a schema that the source does not have."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        # Queues select the topics: a record of a light queue has another topic.
        self._rows = RowFilter(times=options.times)
        self._scan = QueueScan(options, schema, self._rows)

    def partitions(self) -> Sequence[InputPartition]:
        options = self._options
        source = self._scan.source()
        try:
            if options.wire is None and options.bucket is None:
                named = (options.topics or frozenset()) | (options.queues.assigned or {}).keys()
                check_topics(find_stores(options.paths), named)
            now = source.snapshot()
            self._scan.warn_of_absent(now.ranges)
            starting = options.queues.starting or OffsetsOption("startingOffsets", EARLIEST)
            ending = options.queues.ending or OffsetsOption("endingOffsets", LATEST)
            ranges, lost = query_ranges(now, starting, ending)
            report_loss(lost, options.queues.fail_on_data_loss)
            times = self._rows.times_to_read()
            if times.begin_ms >= times.end_ms:
                ranges = []
            return self._scan.partitions(source, [self._within(source, each, times) for each in ranges])
        finally:
            source.close()

    def _within(self, source: QueueSource, wanted: QueueRange, times: TimeRange) -> QueueRange:
        """Return `wanted` without the ends that have no row within `times`.

        This holds if no store timestamp is more than `maxClockStepBack` below an earlier one.
        """
        step_back = self._options.max_clock_step_back_ms
        begin, end = wanted.begin, wanted.end
        if times.begin_ms > TimeRange().begin_ms:
            begin = max(begin, source.at_time(wanted.queue, times.begin_ms - step_back, 0))
        if times.end_ms < TimeRange().end_ms:
            end = min(end, source.at_time(wanted.queue, times.end_ms + step_back, 0, is_end=True))
        return replace(wanted, begin=begin, end=max(begin, end))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self._scan.read(partition)


class FilteringQueueBatchReader(QueueBatchReader):
    """Reader that applies pushed filters.  Spark refuses it while its filter pushdown is off."""

    def pushFilters(self, filters: list[pushed.Filter]) -> list[pushed.Filter]:  # noqa: N802  # Spark's name
        return self._rows.accept(filters)
