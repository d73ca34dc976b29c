"""`sprocket outbox`: the relay of a transactional outbox, and what it could not send."""

import sys
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final, TypeVar

import click

from sprocket_cli.client_session import (
    HELP,
    CommandFailed,
    cluster_settings,
    json_option,
    log_level_option,
    namespace_option,
    namesrv_option,
    print_json,
    run,
    wrong_usage,
)

if TYPE_CHECKING:
    from sprocket.outbox.database import Database

T = TypeVar("T")
# Rows of each state.
_MAX_SHOWN: Final = 100

database_option = click.option(
    "--database", "url", envvar="SPROCKET_OUTBOX_DATABASE", show_envvar=True, required=True, metavar="URL",
    help="postgresql://user@host/database, mysql://... or sqlite:///path. A password is better in the environment.",
)  # fmt: skip


@click.group(context_settings=HELP)
def outbox() -> None:
    """Send the messages that applications wrote in their database transactions; see docs/outbox.md."""


@outbox.command("run")
@database_option
@namesrv_option
@namespace_option
@click.option("--batch", type=click.IntRange(1, 10_000), default=500, show_default=True, help="Rows in one batch.")
@click.option("--poll-ms", type=click.IntRange(1), default=200, show_default=True, help="Pause when there is nothing.")
@click.option("--lease-s", type=click.IntRange(6), default=20, show_default=True, help="Lease of a batch.")
@click.option("--max-attempts", type=click.IntRange(1), default=10, show_default=True, help="Refusals of one row.")
@click.option("--metrics-port", type=click.IntRange(0, 65535), help="Serve metrics to Prometheus here.")
@click.option("--metrics-host", default="127.0.0.1", show_default=True, help="Address of the metrics.")
@json_option
@log_level_option
def run_relay(
    url: str, namesrv: str | None, namespace: str, batch: int, poll_ms: int, lease_s: int, max_attempts: int,
    metrics_port: int | None, metrics_host: str, as_json: bool, log_level: str,
) -> None:  # fmt: skip
    """Relay an outbox until SIGTERM. Several relays may share one."""
    from sprocket.client.connect import connect
    from sprocket.common.clock import SystemClock
    from sprocket.metrics.export import MetricsExport
    from sprocket.metrics.settings import ExporterType, MetricsSettings
    from sprocket.outbox.database import place_of
    from sprocket.outbox.relay import Relay, RelaySettings
    from sprocket_cli.server.server_commands import start_line
    from sprocket_cli.server.server_process import Process, log_to_stderr

    database = opened(url)
    settings = RelaySettings(
        batch_rows=batch, poll_interval_s=poll_ms / 1000, lease_s=lease_s, max_attempts=max_attempts
    )
    client = cluster_settings(namesrv, namespace)
    log_to_stderr(log_level)
    relay = Relay(database, connect(client=client), settings, SystemClock())
    kind = ExporterType.DISABLE if metrics_port is None else ExporterType.PROM
    exported = MetricsSettings(kind, metrics_port or 0, metrics_host)
    page_keys = ("--metrics-host", "--metrics-port")
    export = MetricsExport(
        exported, relay.metrics, SystemClock(), host=metrics_host, scope="outbox", page_keys=page_keys
    )

    def announce() -> str:
        port = export.port
        facts: dict[str, object] = {"outbox": place_of(url), "metricsPort": port}
        return start_line(facts, f"outbox: relaying{'' if port is None else f', metrics on port {port}'}", as_json)

    sys.exit(Process().run([lambda: relay, lambda: export], announce))


@outbox.command()
@database_option
@json_option
def status(url: str, as_json: bool) -> None:
    """Show how many messages wait, for how long, and why the oldest that could not be sent were refused."""
    from sprocket.common.clock import SystemClock
    from sprocket.outbox.relay import status_of
    from sprocket.outbox.row import OutboxRow
    from sprocket.outbox.statements import FAILED, WAITING

    async def look(database: "Database") -> None:
        found = await status_of(database, SystemClock().wall_ms())
        states = {
            state: [OutboxRow(*values) for values in await database.fetch(query, _MAX_SHOWN)]
            for state, query in (("failed", FAILED), ("waiting", WAITING))
        }
        if as_json:
            listed = {
                f"{state}Rows": [
                    {
                        "id": row.id,
                        "topic": row.topic,
                        "key": row.ordering_key,
                        "attempts": row.attempts,
                        "error": row.error,
                    }
                    for row in some
                ]
                for state, some in states.items()
            }
            print_json({"lagMessages": found.rows, "lagMs": found.age_ms, "failed": found.failed, **listed})
            return
        click.echo(f"waiting {found.rows}, the oldest for {found.age_ms / 1000:.1f} s, failed {found.failed}")
        for state, some in states.items():
            for row in some:
                key = "-" if row.ordering_key is None else row.ordering_key
                click.echo(f"{row.id}  {row.topic}  {key}  {state}, refused {row.attempts} times: {row.error}")

    _with_database(url, look)


@outbox.command()
@click.argument("row", type=int)
@database_option
def retry(row: int, url: str) -> None:
    """Let the relay try the failed ROW again; later ones of its key follow it."""
    from sprocket.outbox.statements import RETRY

    _change(url, row, RETRY)


@outbox.command()
@click.argument("row", type=int)
@database_option
def discard(row: int, url: str) -> None:
    """Delete the failed ROW, which is never sent then; later ones of its key are."""
    from sprocket.outbox.statements import DISCARD

    _change(url, row, DISCARD)


def _change(url: str, row: int, statement: str) -> None:
    from sprocket.outbox.statements import FAILED_ROW

    async def change(database: "Database") -> None:
        if not await database.fetch(FAILED_ROW, row):
            raise CommandFailed(f"row {row} is not among the failed ones; `sprocket outbox status` shows them")
        await database.execute_many(statement, [(row,)])

    _with_database(url, change)


def opened(url: str) -> "Database":
    """Return the database of `url`.  Raises WrongUsage."""
    from sprocket.client.errors import IllegalArgument
    from sprocket.outbox.database import open_database

    with wrong_usage(IllegalArgument):
        return open_database(url)


def _with_database(url: str, work: "Callable[[Database], Awaitable[T]]") -> T:
    database = opened(url)

    async def session() -> T:
        try:
            await database.create()
            return await work(database)
        finally:
            await database.close()

    return run(session())
