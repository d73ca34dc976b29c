"""`sprocket spark shell`: a Python shell with Spark and the tables."""

import code
import sys
from typing import TYPE_CHECKING, Any, Final

import click

from sprocket_cli.client_session import HELP
from sprocket_cli.spark.session import directories, reading_options, source_options, spark_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from spark.sql_tables import SqlTables

_NAMED: Final = 12


@click.command(context_settings=HELP)
@directories
@reading_options
def shell(paths: tuple[str, ...], since: str | None, until: str | None, named: tuple[str, ...]) -> None:
    """Start a Python shell with Spark and the stores in DIR...; IPython if it is installed.

    Input from a pipe is run as a program.
    """
    options = source_options(since, until, named)
    with spark_session() as session:
        from spark.sql_tables import SqlTables

        tables = SqlTables(session, paths, options)
        names = namespace(session, tables)
        if sys.stdin.isatty():
            interact(banner(session.version, tables.names), names)
        else:
            exec(compile(sys.stdin.read(), "<stdin>", "exec"), names)


def namespace(session: "SparkSession", tables: "SqlTables") -> dict[str, Any]:
    """Return the names that the shell defines."""
    from pyspark.sql import functions

    def sql(text: str) -> "DataFrame":
        """Return the result of a query over topics as tables, as in `sprocket spark sql`."""
        return tables.query(text)

    def table(name: str, *columns: str) -> "DataFrame":
        """Return the messages of a topic; with `columns`, only these."""
        return tables.table(name, columns)

    return {
        "spark": session,
        "sql": sql,
        "table": table,
        "tables": tables.names,
        "F": functions,
        "__name__": "__main__",
    }


def banner(version: str, tables: list[str]) -> str:
    """Return the greeting of the shell."""
    shown = ", ".join(tables[:_NAMED]) + (f" and {len(tables) - _NAMED:,} more" if len(tables) > _NAMED else "")
    example = tables[1] if len(tables) > 1 else tables[0]
    return "\n".join(
        (
            f"Spark {version} over the store; tables: {shown}",
            f'  sql("select tags, count(*) from `{example}` group by tags").show()',
            f'  table("{example}", "keys", "properties").show()   a DataFrame; without columns, the usual ones',
            "  tables, spark, F: names of all tables, the session, pyspark.sql.functions",
        )
    )


def interact(greeting: str, names: dict[str, Any]) -> None:
    """Read and run lines until the user leaves."""
    try:
        import IPython
    except ImportError:
        code.interact(greeting, local=names, exitmsg="")
        return
    from traitlets.config import Config

    config = Config()
    config.TerminalInteractiveShell.banner1 = greeting + "\n"
    config.TerminalInteractiveShell.confirm_exit = False
    IPython.start_ipython(argv=[], user_ns=names, config=config)
