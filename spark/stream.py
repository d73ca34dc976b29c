"""Streaming reader of the source: micro-batches whose offsets are positions in the queues.

    spark.readStream.format("rocketmq").option("subscribe", "Flights").load("/data/broker-a/store")

Offsets are `spark.queues.positions`: ``{brokerName: {topic: {queueId: queueOffset}}}``.  Only its two
offsets define a batch (`spark.queues.stream_positions`), so a batch that Spark repeats after a crash has the same rows.
With a sink that ignores a repeated batch, each row is written exactly once.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import cast

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from spark.options.source_options import SourceOptions
from spark.queue_scan import QueueScan
from spark.queues.data_loss import report_loss
from spark.queues.positions import (
    LATEST,
    OffsetsOption,
    QueueId,
    QueuePositions,
    from_queues,
    positions_object,
    positions_of,
)
from spark.queues.source import QueueSource, Snapshot
from spark.queues.stream_positions import batch_ranges, first_positions, next_step
from spark.rows.filters import RowFilter, TimeRange
from sprocket.common.errors import ConfigError

logger = logging.getLogger(__name__)

_OFFSET = "offset of the stream"


class QueueStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reader of a stream.  Raises ConfigError for a schema that the source does not have, or for options of batches."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        _check(options)
        self._options = options
        self._scan = QueueScan(options, schema, RowFilter())
        self._target: Snapshot | None = None  # of the trigger availableNow
        self._last = Snapshot()
        self._source: QueueSource | None = None  # on the driver only

    def initialOffset(self) -> dict[str, object]:  # noqa: N802  # Spark's name
        """Return no positions, so that every call returns the same.

        The first batch reads nothing; its end is where the stream begins.
        """
        return {}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802  # Spark's name
        limit = self._options.queues.max_offsets_per_trigger
        return ReadAllAvailable() if limit is None else ReadMaxRows(limit)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802  # Spark's name
        self._target = self._snapshot()

    def latestOffset(self, start: Mapping[str, object], limit: ReadLimit) -> dict[str, object]:  # noqa: N802  # Spark's name
        """Return the end of the batch that begins at `start`.

        Raises MessagesLost, with `failOnDataLoss`, if messages after `start` have expired.
        """
        self._last = now = self._target or self._snapshot(strict=not start)
        if not start:
            self._scan.warn_of_absent(now.ranges)
            return _object(self._beginning(now))
        positions = positions_of(start, _OFFSET)
        step = next_step(positions, now, limit.max_rows if isinstance(limit, ReadMaxRows) else None)
        report_loss(step.lost, self._options.queues.fail_on_data_loss)
        return _object(step.end)

    def reportLatestOffset(self) -> dict[str, object] | None:  # noqa: N802  # Spark's name
        ends = {queue: end for queue, (_, end) in self._last.ranges.items()}
        return _object(from_queues(ends, self._last.broker_names)) if ends else None

    def partitions(self, start: Mapping[str, object], end: Mapping[str, object]) -> Sequence[InputPartition]:
        begins = {queue: begin for queue, (begin, _) in self._last.ranges.items()}
        ranges = batch_ranges(positions_of(start, _OFFSET), positions_of(end, _OFFSET), begins)
        return self._scan.partitions(self._queues(), ranges)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self._scan.read(partition)

    def commit(self, end: Mapping[str, object]) -> None:
        """Do nothing: the checkpoint of the query has the offsets."""

    def stop(self) -> None:
        if self._source is not None:
            self._source.close()
            self._source = None

    def _queues(self) -> QueueSource:
        if self._source is None:
            self._source = self._scan.source()
        return self._source

    def _snapshot(self, strict: bool = True) -> Snapshot:
        return self._queues().snapshot(strict)

    def _beginning(self, now: Snapshot) -> QueuePositions:
        queues = self._options.queues
        begin_ms = self._options.times.begin_ms
        if begin_ms == TimeRange().begin_ms:
            return first_positions(now, queues.starting or OffsetsOption("startingOffsets", LATEST))
        step_back = self._options.max_clock_step_back_ms
        begins: dict[QueueId, int] = {queue: self._queues().at_time(queue, begin_ms, step_back) for queue in now.ranges}
        return from_queues(begins, now.broker_names)


def _check(options: SourceOptions) -> None:
    if options.queues.ending is not None or options.times.end_ms != TimeRange().end_ms:
        name = "endingOffsets" if options.queues.ending is not None else "endingTimestamp"
        raise ConfigError(f"option {name!r} is for batch reads: a stream ends when it is stopped, or with availableNow")
    if options.queues.starting is not None and options.times.begin_ms != TimeRange().begin_ms:
        raise ConfigError("options 'startingOffsets' and 'startingTimestamp' exclude each other in a stream")


def _object(positions: QueuePositions) -> dict[str, object]:
    return cast(dict[str, object], positions_object(positions))
