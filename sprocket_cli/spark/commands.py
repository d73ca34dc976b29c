"""`sprocket spark`: the group of its commands, and `report`.  Needs the extra ``spark``."""

from pathlib import Path
from typing import Final

import click

from sprocket.common.clock import SystemClock
from sprocket.remoting.message.topic_names import TRACE_TOPIC
from sprocket_cli.client_session import HELP, WrongUsage
from sprocket_cli.lazy_group import LazyGroup
from sprocket_cli.spark.session import directories, reading_options, source_options, spark_session
from sprocket_cli.store.commands import DiskTrouble

# Where each command is, but for `report`.
_COMMANDS: Final = {
    "backfill": "sprocket_cli.spark.table_commands:backfill",
    "compact": "sprocket_cli.spark.table_commands:compact",
    "shell": "sprocket_cli.spark.shell:shell",
    "sql": "sprocket_cli.spark.sql:sql",
    "tables": "sprocket_cli.spark.table_commands:tables",
}


@click.group(cls=LazyGroup, places=_COMMANDS, context_settings=HELP)
def spark() -> None:
    """Query store directories (storePathRootDir) with Spark, also those of running brokers.

    DIR is a store directory, a glob, or name=directory to choose the broker's name.
    """


@spark.command(context_settings=HELP)
@directories
@click.option(
    "--out", type=click.Path(dir_okay=False, path_type=Path), default=Path("report.html"), show_default=True,
    help="File of the page.",
)  # fmt: skip
@click.option("--trace-topic", default=TRACE_TOPIC, show_default=True, help="Topic with the traces of clients.")
@reading_options
def report(
    paths: tuple[str, ...], out: Path, trace_topic: str, since: str | None, until: str | None, named: tuple[str, ...]
) -> None:
    """Write one HTML page about the stores in DIR...: traffic, sizes, latency, consumers, retries, dead letters.

    The page contains its charts and needs no network. It names the figures that are missing and why.
    """
    options = source_options(since, until, named)
    if not out.resolve().parent.is_dir():
        raise WrongUsage(f"--out {out}: there is no directory {out.resolve().parent}")
    with spark_session() as session:
        from spark.report.page import store_page
        from spark.report.survey import survey
        from spark.report.texts import count_text

        findings = survey(session, paths, options, trace_topic)
        restricted = " and ".join(f"{name} {value}" for name, value in options.items())
        page = store_page(findings, SystemClock().wall_ms(), f"Restricted to {restricted}." if restricted else "")
    try:
        page.save(out)
    except OSError as error:
        raise DiskTrouble(f"--out {out}: {error.strerror or error}") from None
    click.echo(f"{count_text(findings.messages, 'message')} of {count_text(len(findings.topics), 'topic')}: {out}")
