"""`sprocket spark backfill`, `tables`, `compact`: topics written to Parquet, Delta or Iceberg tables."""

import json
import os
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sprocket.common.errors import ConfigError, SprocketError
from sprocket.common.extras import install
from sprocket_cli.client_session import HELP, WrongUsage, json_option, option_set, print_json
from sprocket_cli.processes.stop_signals import StopSignals
from sprocket_cli.store.commands import DiskTrouble

if TYPE_CHECKING:
    from spark.files.store_directory import StoreDirectory
    from spark.tables.declaration import TableDeclaration
    from spark.tables.job import Totals
    from spark.tables.workers import Workers

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
_DIRECTORY = click.Path(file_okay=False)

_stores = click.argument("stores", metavar="STORE...", nargs=-1, required=True)

_processes = click.option(
    "--processes", type=click.IntRange(1), help="Parallel processes.  [default: number of processors]"
)


# Declaration of a table; the values have the names of keys in the YAML file of `tables`.
declaration_options = option_set(
    click.option("--topic", required=True, help="Topic name."),
    click.option("--to", type=_DIRECTORY, required=True, metavar="DIR", help="The table."),
    click.option(
        "--format", type=click.Choice(["parquet", "delta", "iceberg"]), default="parquet",
        show_default=True,
    ),
    click.option(
        "--body", "type", type=click.Choice(["binary", "text", "json", "avro", "protobuf"]), default="binary",
        show_default=True, help="Declared type of the bodies.",
    ),
    click.option("--schema", help="JSON: Spark's DDL, as 'id bigint, name string'; Avro: its JSON."),
    click.option(
        "--schema-file", "schemaFile", type=click.Path(exists=True, dir_okay=False),
        help="File with the schema; protobuf: a descriptor set.",
    ),
    click.option("--message", help="Protobuf: full name of the message."),
    click.option("--prefix", help="Prefix for the names of the body's columns."),
    click.option("--columns", help="Columns of the message, separated by commas."),
    click.option(
        "--dead-letters", "deadLetters", type=_DIRECTORY,
        help="Table for messages that do not decode.  [default: DIR_dead_letters]",
    ),
    click.option(
        "--catalog", "catalog", multiple=True, metavar="KEY=VALUE",
        help="Iceberg: property of the catalogue, as uri=...  [default: SQLite in DIR]",
    ),
    click.option("--identifier", help="Iceberg: namespace.table.  [default: rocketmq.TOPIC]"),
    click.option("--no-fail-on-data-loss", is_flag=True, help="Continue if unread messages expired."),
    click.option("--drop-malformed", "dropMalformed", is_flag=True, help="Skip damage in the log."),
    click.option(
        "--compression", type=click.Choice(["zstd", "snappy", "none"]), default="zstd", show_default=True,
        help="Compression of new files; compacted files use zstd.",
    ),
    click.option(
        "--batch-bytes", "batchBytes", type=click.IntRange(1 << 20), help="Log bytes per commit.  [default: 1 GiB]"
    ),
    click.option(
        "--compact-files", "compactFiles", type=click.IntRange(0),
        help="Merge an hour's small files from this number on; 0: never.  [default: 16]",
    ),
    click.option("--target-file-bytes", "targetFileBytes", type=click.IntRange(1024), help="Size when compacted."),
)  # fmt: skip


@click.command(context_settings=HELP)
@_stores
@declaration_options
@click.option("--follow", is_flag=True, help="Continue with new messages until a signal.")
@click.option(
    "--interval",
    type=click.FloatRange(0.05),
    help="With --follow: check for new messages every this many seconds.  [default: 10]",
)
@click.option("--spark-master", metavar="URL", help="Run the tasks on this Spark cluster, as spark://host:7077.")
@_processes
@json_option
def backfill(
    stores: tuple[str, ...], follow: bool, interval: float | None, spark_master: str | None, processes: int | None,
    as_json: bool, **given: Any,
) -> None:  # fmt: skip
    """Write a topic's messages from the logs in STORE... to the table in DIR, starting where the table ends.

    STORE is a store directory (storePathRootDir), a glob, or name=directory. The table has each message exactly once,
    even if the command is killed. A message that does not decode goes to the table of dead letters, with the reason.
    """
    with _errors():
        declaration = _declaration(given, interval)
        with _workers(processes, spark_master) as workers, StopSignals() as stopping:
            if follow:
                _log()
                _follow([declaration], _found_or_named(stores), workers, stopping)
                return
            from spark.files.store_directory import find_stores
            from spark.tables.job import TableJob

            found = find_stores(stores)
            with TableJob(declaration, found, workers) as job:
                totals = job.run_to_end(stopping.is_set)
                job.compact()
        _doubt_topic(declaration.topic, found)
    _say(declaration, totals, as_json)


@click.command(context_settings=HELP)
@click.argument("file", type=_FILE)
@_stores
@click.option("--check", is_flag=True, help="Only check FILE.")
@_processes
def tables(file: Path, stores: tuple[str, ...], check: bool, processes: int | None) -> None:
    """Write new messages in STORE... to the tables that FILE (YAML) lists, until a signal.

    A broker with tableTopicsConfigPath starts this command itself.
    """
    with _errors():
        from spark.tables.declaration import read_declarations

        declarations = read_declarations(file)
        _check_packages(declarations)
        if check:
            click.echo(f"{len(declarations)} tables")
            return
        _log()
        with _workers(processes, None) as workers, StopSignals() as stopping:
            _follow(declarations, _found_or_named(stores), workers, stopping)


@click.command(context_settings=HELP)
@click.argument("directory", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--target-file-bytes", type=click.IntRange(1024), default=128 << 20, show_default=True)
@click.option(
    "--min-files", "--least-files", "min_files", type=click.IntRange(2), default=2, show_default=True,
    help="Skip an hour with fewer small files.",
)  # fmt: skip
@click.option("--catalog", multiple=True, metavar="KEY=VALUE", help="Iceberg: a property of the catalogue.")
@click.option("--identifier", default="", help="Iceberg: namespace.table.")
@json_option
def compact(
    directory: Path, target_file_bytes: int, min_files: int, catalog: tuple[str, ...], identifier: str, as_json: bool
) -> None:
    """Merge the small files of each hour of the table in DIRECTORY.  Stop its writer first."""
    with _errors():
        from spark.tables.formats.table_place import existing_table, only_writer
        from spark.tables.write_trouble import writing_to

        with writing_to(directory), only_writer(directory):
            table = existing_table(directory, _pairs(catalog), identifier)
            gone = table.compact(target_file_bytes, min_files)
            left = len(table.files())
    if as_json:
        print_json({"compacted": gone, "files": left})
    else:
        click.echo(f"{gone} files compacted; {left} files now")


def _doubt_topic(topic: str, stores: "Sequence[StoreDirectory]") -> None:
    """Warn on stderr if none of `stores` knows `topic`: the name may be misspelt."""
    from spark.read.known_topics import unknown_topic

    unknown = unknown_topic(stores, topic)
    if unknown is not None:
        click.echo(f"Warning: {unknown}", err=True)


def _declaration(given: dict[str, Any], interval: float | None) -> "TableDeclaration":
    """Return the declaration that the options give.  Raises ConfigError."""
    from spark.tables.declaration import BODY_KEYS, declaration_of

    given |= {"catalog": dict(_pairs(given["catalog"])) or None, "intervalSeconds": interval}
    given["failOnDataLoss"] = not given.pop("no_fail_on_data_loss")
    entry = {name: value for name, value in given.items() if value is not None}
    body = {name: entry.pop(name) for name in BODY_KEYS if name in entry}
    declaration = declaration_of({**entry, "body": body}, Path())
    _check_packages([declaration])
    return declaration


def _check_packages(declarations: "Sequence[TableDeclaration]") -> None:
    """Raise ConfigError if a table's format needs a package that is not installed."""
    from spark.tables.optional_package import optional_package

    packages = {"delta": "deltalake", "iceberg": "pyiceberg"}
    for declaration in declarations:
        name = packages.get(declaration.format)
        if name is not None:
            optional_package(name, f"a table of format {declaration.format}")


def _follow(
    declarations: "Sequence[TableDeclaration]", stores: "Sequence[StoreDirectory]", workers: "Workers",
    stopping: StopSignals,
) -> None:  # fmt: skip
    from spark.tables.follow import Follower
    from sprocket.common.clock import SystemClock

    with Follower(declarations, stores, workers, SystemClock()) as follower:
        named = ", ".join(f"{each.topic} in {each.directory}" for each in declarations)
        print(f"Following {named}", flush=True)
        follower.run(stopping.wait)


def _found_or_named(stores: Sequence[str]) -> "list[StoreDirectory]":
    """Return the stores.  One given as ``name=directory`` need not exist yet: its broker may be starting."""
    from spark.files.store_directory import StoreDirectory, find_stores

    named = [each.partition("=") for each in stores]
    if all(equals and "/" not in name and "*" not in path for name, equals, path in named):
        return [StoreDirectory(Path(path).absolute(), name) for name, _, path in named]
    return find_stores(stores)


@contextmanager
def _workers(processes: int | None, spark_master: str | None) -> "Iterator[Workers]":
    if spark_master is not None:
        from spark.session import close, session
        from spark.tables.workers import SparkWorkers

        spark = session(spark_master, "sprocket tables")
        try:
            yield SparkWorkers(spark)
        finally:
            close(spark)
        return
    from spark.tables.workers import LocalWorkers

    with LocalWorkers(processes or os.cpu_count() or 1, _begin_worker, (os.getpid(),)) as workers:
        yield workers


def _begin_worker(parent: int) -> None:
    """Ignore Ctrl-C and a closed terminal, which the parent handles; end when the parent ends."""
    from sprocket.common.processes.bound import end_with_parent

    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    end_with_parent(parent)


def _log() -> None:
    from sprocket_cli.server.server_process import log_to_stderr

    log_to_stderr("info")


@contextmanager
def _errors() -> Iterator[None]:
    """Turn errors into a message and an exit status."""
    try:
        yield
    except ConfigError as error:
        raise WrongUsage(str(error)) from None
    except ImportError as error:
        raise WrongUsage(f"this needs the extra spark ({error}): {install('spark')}") from None
    except (SprocketError, OSError) as error:
        raise DiskTrouble(str(error)) from None


def _pairs(words: Sequence[str]) -> list[tuple[str, str]]:
    pairs = []
    for word in words:
        key, equals, value = word.partition("=")
        if not equals:
            raise ConfigError(f"--catalog {word!r}: allowed is KEY=VALUE")
        pairs.append((key, value))
    return pairs


def _say(declaration: "TableDeclaration", totals: "Totals", as_json: bool) -> None:
    facts = {
        "topic": declaration.topic,
        "table": str(declaration.directory),
        "messages": totals.rows,
        "deadLetters": totals.dead_rows,
        "files": totals.files,
        "commits": totals.commits,
        "logBytes": totals.log_bytes,
    }
    if as_json:
        click.echo(json.dumps(facts))
        return
    dead = f", {totals.dead_rows:,} not decoded in {declaration.dead_letter_directory}" if totals.dead_rows else ""
    click.echo(
        f"{totals.rows:,} messages of {declaration.topic} in {totals.files} files: {declaration.directory}{dead}"
    )
