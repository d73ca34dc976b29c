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
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_type, to_arrow_schema
from pyspark.sql.types import StructField, StructType

from spark.columns import COLUMN_TYPES, column_names
from spark.decode import DecodeOptions
from spark.filters import RowFilter
from spark.log_reader import read_span
from spark.options import SourceOptions, read_options
from spark.plan import Span, plan
from sprocket.common.errors import ConfigError


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
        return (FilteringLogReader if options.filter_pushdown else LogReader)(options, schema)


class LogReader(DataSourceReader):
    """A batch read.  Raises ConfigError for a schema that asks for something the source does not have."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._columns = _checked_columns(schema)
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
                yield _batch(arrays, count, schema)


class FilteringLogReader(LogReader):
    """A batch read that takes filters over.  Spark refuses it while its filter pushdown is switched off."""

    def pushFilters(self, filters: list[pushed.Filter]) -> list[pushed.Filter]:  # noqa: N802  # Spark's name
        return self._rows.take_over(filters)


def spark_schema(columns: Sequence[str]) -> StructType:
    """The Spark schema of these columns."""
    return StructType([StructField(name, from_arrow_type(COLUMN_TYPES[name])) for name in columns])


def _checked_columns(schema: StructType) -> list[str]:
    columns = column_names(schema.fieldNames())
    for field, name in zip(schema.fields, columns, strict=True):
        known = from_arrow_type(COLUMN_TYPES[name])
        if field.dataType != known:
            raise ConfigError(
                f"column {name!r} is {known.simpleString()}, not {field.dataType.simpleString()}: "
                "read it as that and cast"
            )
    return columns


def _batch(arrays: list[pa.Array], count: int, schema: pa.Schema) -> pa.RecordBatch:
    if not arrays:  # a schema without columns, as for count(*)
        return pa.RecordBatch.from_struct_array(pa.array([{}] * count, pa.struct([])))
    return pa.RecordBatch.from_arrays(
        [
            array if array.type == field.type else array.cast(field.type)
            for array, field in zip(arrays, schema, strict=True)
        ],
        schema=schema,
    )
