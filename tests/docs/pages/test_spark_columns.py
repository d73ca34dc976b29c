"""docs/spark.md lists the columns of the data source with their types."""

import re
from pathlib import Path

from spark.decode.columns import COLUMN_TYPES, DEFAULT_COLUMNS
from spark.rows.row_batches import spark_schema

PAGE = Path(__file__).resolve().parents[3] / "docs" / "spark.md"
ROW = re.compile(r"^\| `(\w+)` \| `([^`]+)` \| (yes|no) \| \S.* \|$", re.MULTILINE)


def test_the_table_of_columns_is_the_schema() -> None:
    part = PAGE.read_text(encoding="utf-8").partition("\n## Columns\n")[2].partition("\n## ")[0]
    schema = spark_schema(tuple(COLUMN_TYPES))
    expected = [
        (field.name, field.dataType.simpleString(), "yes" if field.name in DEFAULT_COLUMNS else "no")
        for field in schema.fields
    ]
    assert ROW.findall(part) == expected
