"""Table as a DataFrame by its list of files, so Spark needs no package for Delta or Iceberg."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql.pandas.types import from_arrow_schema

from spark.tables.formats.table_place import existing_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def table_frame(
    spark: "SparkSession", directory: Path | str, catalog: Sequence[tuple[str, str]] = (), identifier: str = ""
) -> "DataFrame":
    """Return the current rows of the table at `directory`, each once, also while a writer runs.

    Columns that were added later are null in older files; `day` and `hour` are left out.  Raises ConfigError without a
    table.
    """
    table = existing_table(Path(directory), catalog, identifier)
    schema = from_arrow_schema(table.schema)
    paths = [str(table.root / each.path) for each in table.files()]
    if not paths:
        return spark.createDataFrame([], schema)
    return spark.read.schema(schema).parquet(*paths)
