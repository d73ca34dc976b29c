"""Schemas and record batches for Spark, and the check of a user's schema."""

from collections.abc import Sequence

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import StructField, StructType

from spark.decode.columns import column_names, column_type
from sprocket.common.errors import ConfigError


def spark_schema(columns: Sequence[str]) -> StructType:
    """Return the Spark schema of these columns."""
    return StructType([StructField(name, from_arrow_type(column_type(name))) for name in columns])


def checked_columns(schema: StructType, corrupt_column: str | None = None) -> list[str]:
    """Return the columns of `schema`.  Raises ConfigError for a column that the source does not have with that type.

    `corrupt_column`, if given, must be one of them; otherwise damage would be skipped silently.
    """
    columns = column_names(schema.fieldNames(), corrupt_column)
    if corrupt_column is not None and corrupt_column not in columns:
        raise ConfigError(
            f"mode=PERMISSIVE needs the column {corrupt_column!r} (string) in the schema, for texts about damage; "
            "mode=DROPMALFORMED leaves damage out"
        )
    for field, name in zip(schema.fields, columns, strict=True):
        known = from_arrow_type(column_type(name))
        if field.dataType != known:
            raise ConfigError(
                f"column {name!r} is {known.simpleString()}, not {field.dataType.simpleString()}: "
                "read it as that and cast"
            )
    return columns


def record_batch(arrays: list[pa.Array], count: int, schema: pa.Schema) -> pa.RecordBatch:
    """Return `count` rows of these columns, in the types of `schema`."""
    if not arrays:  # a schema without columns, as for count(*)
        return pa.RecordBatch.from_struct_array(pa.array([{}] * count, pa.struct([])))
    return pa.RecordBatch.from_arrays(
        [
            array if array.type == field.type else array.cast(field.type)
            for array, field in zip(arrays, schema, strict=True)
        ],
        schema=schema,
    )
