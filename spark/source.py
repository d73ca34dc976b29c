"""The PySpark data source ``rocketmq``: a DataFrame over the CommitLogs of one or several brokers.

    spark.read.format("rocketmq").option("subscribe", "Flights").load("/data/broker-a/store")

Options: `spark.options.KNOWN`.  Columns: `spark.columns`.  A user schema or the option `columns` prunes: only
what it names is decoded.

Filters are pushed down only with the option `filterPushdown`.  Spark 4.1 to 4.3 keep what was pushed with the
DataFrame's relation and not with the scan (`PythonDataSourceV2.setReadInfo`): a later query on the same
DataFrame without a filter, or two filters of it in one plan, would silently read too few rows.  Topics and
times can always be given as options.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

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

from spark.decode import DecodeOptions
from spark.filters import RowFilter
from spark.log_reader import read_span
from spark.options import SourceOptions, read_options
from spark.plan import Span, plan
from spark.queue_scan import FilteringQueueBatchReader, QueueBatchReader
from spark.row_batches import checked_columns, record_batch, spark_schema
from spark.sink import MessageStreamWriter, MessageWriter
from spark.sink_options import read_sink_options
from spark.stream import QueueStreamReader


@dataclass
class LogPartition(InputPartition):
    """What one task reads."""

    spans: tuple[Span, ...]


class RocketMQDataSource(DataSource):
    """The data source that ``spark.read.format("rocketmq")`` names."""

    @classmethod
    def name(cls) -> str:
        return "rocketmq"

    def schema(self) -> StructType:
        return spark_schema(read_options(self.options).columns)

    def reader(self, schema: StructType) -> DataSourceReader:
        options = read_options(self.options)
        if options.queues.are_given or options.wire is not None:
            return (FilteringQueueBatchReader if options.filter_pushdown else QueueBatchReader)(options, schema)
        return (FilteringLogReader if options.filter_pushdown else LogReader)(options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802  # Spark's name
        return QueueStreamReader(read_options(self.options), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        return MessageWriter(read_sink_options(self.options), schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802  # Spark's name
        return MessageStreamWriter(read_sink_options(self.options), schema, overwrite)


class LogReader(DataSourceReader):
    """A batch read.  Raises ConfigError for a schema that asks for something the source does not have."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._columns = checked_columns(schema)
        self._rows = RowFilter(options.topics, options.topic_pattern, options.times)

    def partitions(self) -> Sequence[InputPartition]:
        # Spark turns an empty list into one partition without a value, and reads that.
        return [LogPartition(spans) for spans in plan(self._options, self._rows)] or [LogPartition(())]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, LogPartition)
        schema = to_arrow_schema(self._schema, timezone="UTC")
        decode = DecodeOptions(
            inflate_bodies=self._options.inflate_bodies,
            inflate_max_bytes=self._options.inflate_max_bytes,
            drop_malformed=self._options.drop_malformed,
        )
        for span in partition.spans:
            options = replace(decode, broker_name=span.store.broker_name)
            for arrays, count in read_span(span, self._columns, self._rows, options):
                yield record_batch(arrays, count, schema)


class FilteringLogReader(LogReader):
    """A batch read that takes filters over.  Spark refuses it while its filter pushdown is switched off."""

    def pushFilters(self, filters: list[pushed.Filter]) -> list[pushed.Filter]:  # noqa: N802  # Spark's name
        return self._rows.take_over(filters)
