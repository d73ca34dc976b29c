"""Batch reads of archives: the tasks of a query, and the rows of one task."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import datasource as pushed
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from spark.bucket.plan import BucketPart, BucketTable, plan
from spark.bucket.reader import read_rows
from spark.options.source_options import SourceOptions
from spark.rows.filters import RowFilter
from spark.rows.row_batches import checked_columns, record_batch


@dataclass
class BucketPartition(InputPartition):
    """Work of one task; None if there is nothing to read."""

    part: BucketPart | BucketTable | None


class BucketReader(DataSourceReader):
    """Reader of a batch.  Raises ConfigError for a schema that the source does not have."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._columns = checked_columns(schema, options.reading.corrupt_column)
        self._rows = RowFilter(options.topics, options.topic_pattern, options.times)

    def partitions(self) -> Sequence[InputPartition]:
        options = self._options
        assert options.bucket is not None
        parts = plan(options.bucket, self._rows, options.min_partitions, options.max_clock_step_back_ms)
        # Spark would replace an empty list by one partition without a value, and read that.
        return [BucketPartition(part) for part in parts] or [BucketPartition(None)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, BucketPartition)
        part = partition.part
        if part is None:
            return
        schema = to_arrow_schema(self._schema, timezone="UTC")
        for arrays, count in read_rows(part, self._columns, self._rows, self._options.decoding(part.broker_name)):
            yield record_batch(arrays, count, schema)


class FilteringBucketReader(BucketReader):
    """Reader that applies pushed filters.  Spark refuses it while its filter pushdown is off."""

    def pushFilters(self, filters: list[pushed.Filter]) -> list[pushed.Filter]:  # noqa: N802  # Spark's name
        return self._rows.accept(filters)
