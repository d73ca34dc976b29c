"""PySpark data source ``rocketmq``: a DataFrame over the CommitLogs of one or several brokers.

    spark.read.format("rocketmq").option("subscribe", "Flights").load("/data/broker-a/store")

Options: `spark.options.source_options.KNOWN`.  Columns: `spark.decode.columns`.  Only the columns in a user
schema or in the option `columns` are decoded.

Filters are pushed down only with the option `filterPushdown`.  Spark 4.1 to 4.3 keep pushed filters with the
DataFrame's relation, not with the scan (`PythonDataSourceV2.setReadInfo`).  So a later query on the same DataFrame
without a filter, or two filters in one plan, would silently read too few rows.  Options for topics and times always
work.
"""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import datasource as pushed
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
)
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from spark.decode.damage import SegmentLost
from spark.decode.decoder import DecodeOptions
from spark.files.segment_lease import LeaseKeeper, SegmentLease
from spark.files.store_rights import store_rights
from spark.options.source_options import SourceOptions, read_options
from spark.read.compacted import CompactedPart, read_compacted
from spark.read.leased_plan import leased_plan
from spark.read.log_reader import read_span
from spark.read.plan import Span
from spark.rows.filters import RowFilter
from spark.rows.row_batches import checked_columns, record_batch, spark_schema
from sprocket.common.errors import ConfigError
from sprocket.remoting.message.topic_names import LIGHT_PREFIX

logger = logging.getLogger(__name__)


@dataclass
class LogPartition(InputPartition):
    """Work of one task, and the leases that it renews."""

    spans: tuple[Span, ...]
    leases: tuple[SegmentLease, ...] = ()
    compacted: CompactedPart | None = None


class RocketMQDataSource(DataSource):
    """Data source of ``spark.read.format("rocketmq")``.

    Each Python process of Spark imports this file, so special reads and writes import their modules when they start.
    """

    @classmethod
    def name(cls) -> str:
        return "rocketmq"

    def schema(self) -> StructType:
        return spark_schema(read_options(self.options).columns)

    def reader(self, schema: StructType) -> DataSourceReader:
        options = read_options(self.options)
        if options.bucket is not None and not options.queues.are_given:
            from spark.bucket.source import BucketReader, FilteringBucketReader

            return (FilteringBucketReader if options.filter_pushdown else BucketReader)(options, schema)
        if options.queues.are_given or options.wire is not None:
            from spark.queue_scan import FilteringQueueBatchReader, QueueBatchReader

            return (FilteringQueueBatchReader if options.filter_pushdown else QueueBatchReader)(options, schema)
        return (FilteringLogReader if options.filter_pushdown else LogReader)(options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802  # Spark's name
        from spark.stream import QueueStreamReader

        return QueueStreamReader(read_options(self.options), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from spark.options.sink_options import read_sink_options
        from spark.write.sink import MessageWriter

        return MessageWriter(read_sink_options(self.options), schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802  # Spark's name
        from spark.options.sink_options import read_sink_options
        from spark.write.sink import MessageStreamWriter

        return MessageStreamWriter(read_sink_options(self.options), schema, overwrite)


class LogReader(DataSourceReader):
    """Reader of a batch.  Raises ConfigError for a schema that the source does not have."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._columns = checked_columns(schema, options.reading.corrupt_column)
        _refuse_light_queues(options)
        self._rows = RowFilter(options.topics, options.topic_pattern, options.times)

    def partitions(self) -> Sequence[InputPartition]:
        # Spark would replace an empty list by one partition without a value, and read that.
        with store_rights():
            planned, leases = leased_plan(self._options, self._rows)
        found = [LogPartition((), compacted=part) for part in planned.compacted]
        found += [LogPartition(spans, leases) for spans in planned.tasks]
        return found or [LogPartition(())]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, LogPartition)
        schema = to_arrow_schema(self._schema, timezone="UTC")
        part = partition.compacted
        if part is not None:
            with store_rights():
                options = self._options.decoding(part.broker_name)
                for arrays, count in read_compacted(part, self._columns, self._rows, options):
                    yield record_batch(arrays, count, schema)
        keeper = LeaseKeeper(partition.leases)
        for span in partition.spans:
            keeper.keep()
            try:
                with store_rights():
                    for arrays, count in read_span(span, self._columns, self._rows, self._decoding(span)):
                        yield record_batch(arrays, count, schema)
                        keeper.keep()
            except FileNotFoundError as error:
                lost = SegmentLost.of(span.segment.path, span.begin, span.end)
                if self._options.queues.fail_on_data_loss:
                    raise lost from error
                logger.warning("event=segment_lost reason=%r", str(lost))

    def _decoding(self, span: Span) -> DecodeOptions:
        return self._options.decoding(span.store.broker_name)


class FilteringLogReader(LogReader):
    """Reader that applies pushed filters.  Spark refuses it while its filter pushdown is off."""

    def pushFilters(self, filters: list[pushed.Filter]) -> list[pushed.Filter]:  # noqa: N802  # Spark's name
        return self._rows.accept(filters)


def _refuse_light_queues(options: SourceOptions) -> None:
    light = sorted(topic for topic in options.topics or () if topic.startswith(LIGHT_PREFIX))
    if light:
        raise ConfigError(
            f"{', '.join(light)}: a light queue is a view of records with another topic; add the option "
            "startingOffsets=earliest to read it by its queue"
        )
