"""`sprocket spark sql`: a query over topics as tables."""

import csv
import json
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import click

from sprocket_cli.client_session import HELP, CommandFailed, WrongUsage
from sprocket_cli.spark.session import directories, fail, message_of, reading_options, source_options, spark_session

if TYPE_CHECKING:
    from pyspark.errors import PySparkException
    from pyspark.sql import DataFrame

    from spark.sql_tables import SqlTables

_TABLE_ROWS: Final = 100
_CELL: Final = 80
_NAMED_TABLES: Final = 20


@click.command(context_settings=HELP)
@click.argument("query")
@directories
@click.option(
    "--format", "form", type=click.Choice(["table", "csv", "json"]), default="table", show_default=True,
    help="json: one object per line.  Bytes are base64 in csv and json.",
)  # fmt: skip
@click.option(
    "--limit", type=click.IntRange(1), help=f"Maximum number of rows.  [default: {_TABLE_ROWS} in a table, else all]"
)
@reading_options
def sql(
    query: str, paths: tuple[str, ...], form: str, limit: int | None, since: str | None, until: str | None,
    named: tuple[str, ...],
) -> None:  # fmt: skip
    """Run QUERY, in Spark's SQL, over the stores in DIR..., and print its rows.

    Each topic with messages is a table with the topic's name; `messages` holds all topics. Put a name that is no
    identifier in backticks: select count(*) from `%DLQ%billing`. The columns are topic, queueId, queueOffset,
    physicalOffset, bornTimestamp, storeTimestamp, tags, keys, body, bodyString, and brokerName if there are several
    stores. docs/spark.md lists more columns, which a query gets by their names. Compressed bodies are inflated. Times
    are UTC.
    """
    options = source_options(since, until, named)
    with spark_session() as session:
        from pyspark.errors import PySparkException

        from spark.sql_tables import SqlTables

        tables = SqlTables(session, paths, options)
        try:
            frame = tables.query(query, is_run_once=True)
            if form == "table":
                print_table(frame, limit or _TABLE_ROWS)
            else:
                (print_csv if form == "csv" else print_json_lines)(frame if limit is None else frame.limit(limit))
        except PySparkException as error:
            raise _said(error, tables) from None


def print_table(frame: "DataFrame", max_rows: int) -> None:
    """Print the first `max_rows` rows in columns, and whether there are more."""
    from sprocket_cli.columns import fitted

    rows = [list(row) for row in texts(frame.limit(max_rows + 1), for_eyes=True).collect()]
    cells = [["NULL" if value is None else _one_line(value) for value in row] for row in rows[:max_rows]]
    for line in fitted(frame.columns, cells):
        click.echo(line)
    more = "; there are more, see --limit" if len(rows) > max_rows else ""
    click.echo(f"({len(cells):,} {'row' if len(cells) == 1 else 'rows'}{more})", err=True)


def print_csv(frame: "DataFrame") -> None:
    """Print all rows after a header line; NULL is an empty field."""
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(frame.columns)
    writer.writerows(_rows(texts(frame)))


def print_json_lines(frame: "DataFrame") -> None:
    """Print a JSON object for each row, with the names as selected.  Raises WrongUsage for two equal names."""
    from pyspark.sql import functions as sf

    names = frame.columns
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise WrongUsage(f"two columns are called {twice[0]!r}, which an object cannot have: name one of them by AS")
    unnamed = frame.toDF(*(f"c{index}" for index in range(len(names))))
    options = {"ignoreNullFields": "false"}
    values = sf.to_json(sf.struct(*unnamed.columns), options)
    for (text,) in _rows(unnamed.select(values)):
        click.echo(json.dumps(dict(zip(names, json.loads(text).values(), strict=True)), ensure_ascii=False))


def _rows(frame: "DataFrame") -> Iterator[Sequence[Any]]:
    yield from frame.toLocalIterator(prefetchPartitions=True)


def texts(frame: "DataFrame", *, for_eyes: bool = False) -> "DataFrame":
    """Return `frame` with every column as text: times in ISO 8601, nested values as JSON, bytes in base64.

    With `for_eyes`, bytes that are valid UTF-8 are text, and others are hexadecimal.
    """
    from pyspark.sql import functions as sf
    from pyspark.sql import types as st

    unnamed = frame.toDF(*(f"c{index}" for index in range(len(frame.columns))))
    columns = []
    for field in unnamed.schema.fields:
        column, kind = sf.col(field.name), field.dataType
        if isinstance(kind, st.TimestampType):
            column = sf.date_format(column, "yyyy-MM-dd'T'HH:mm:ss.SSSXXX")
        elif isinstance(kind, st.BinaryType) and for_eyes:
            column = sf.when(sf.is_valid_utf8(column.cast("string")), column.cast("string")).otherwise(
                sf.concat(sf.lit("0x"), sf.hex(column))
            )
        elif isinstance(kind, st.BinaryType):
            column = sf.replace(sf.base64(column), sf.lit("\r\n"), sf.lit(""))
        elif isinstance(kind, st.ArrayType | st.MapType | st.StructType):
            column = sf.to_json(column)
        columns.append(column.cast("string"))
    return unnamed.select(*columns)


def _one_line(text: str) -> str:
    """Return `text` as a cell: control characters escaped, at most 80 characters."""
    cut = text if len(text) <= _CELL else text[: _CELL - 1] + "…"
    return "".join(letter if letter.isprintable() else f"\\x{ord(letter):02x}" for letter in cut)


def _said(error: "PySparkException", tables: "SqlTables") -> click.ClickException:
    """Return the error for the user; for an unknown table it lists the known ones."""
    from spark.decode.columns import nearest

    condition = error.getCondition() or ""
    if condition == "TABLE_OR_VIEW_NOT_FOUND":
        name = (error.getMessageParameters() or {}).get("relationName", "").replace("`", "")
        return WrongUsage(f"there is no table {name!r}{nearest(name, tables.names)}\n{_listed(tables.names)}")
    if condition.startswith("PARSE_SYNTAX_ERROR"):
        odd = [name for name in tables.names if not name.replace("_", "a").isalnum() and name in str(error)]
        hint = f"\nPut a name like {odd[0]} in backticks: `{odd[0]}`" if odd else ""
        return WrongUsage(message_of(error) + hint)
    if condition.startswith(("UNRESOLVED", "MISSING", "DATATYPE", "INVALID", "AMBIGUOUS", "CAST")):
        return WrongUsage(message_of(error))
    try:
        fail(error)
    except CommandFailed as said:
        return said


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED_TABLES:,} more (show tables)" if len(names) > _NAMED_TABLES else ""
    return f"Tables: {', '.join(names[:_NAMED_TABLES])}{more}"
