"""`sprocket replicate`: replication between clusters, its state, and the steps of a failover."""

import socket
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING, TypeVar

import click

from sprocket_cli.client_session import HELP, WrongUsage, json_option, log_level_option, print_json, run
from sprocket_cli.columns import fitted

if TYPE_CHECKING:
    from replicate.cluster import Cluster
    from replicate.config import Config
    from replicate.failover import FailoverSteps, StepReport
    from replicate.report import LinkReport

T = TypeVar("T")
_HEAD = (
    "topic", "broker", "queue", "copiedTo", "sourceEnd", "lag", "lagSeconds", "missed", "refused", "copies", "state",
)  # fmt: skip
_config_option = click.option(
    "-c", "--config", "path", required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Configuration, see docs/geo-replication.md.",
)  # fmt: skip


@click.group(context_settings=HELP)
def replicate() -> None:
    """Replicate topics and groups' offsets between clusters."""


@replicate.command("run")
@_config_option
@click.option(
    "--name",
    default=lambda: f"{socket.gethostname()}-{token_hex(4)}",
    show_default="the host's name and a random part",
    help="Name of this replicator, which no other one may have.  With a fixed one it goes on at once after a crash.",
)
@log_level_option
@json_option
def run_links(path: Path, name: str, log_level: str, as_json: bool) -> None:
    """Replicate all links of the configuration until a signal.

    Several replicators may run: one of them copies a link, the others take over when it stops.
    """
    config = _loaded(path)
    from replicate.service import Replication
    from sprocket.common.clock import SystemClock
    from sprocket_cli.server.server_commands import start_line
    from sprocket_cli.server.server_process import Process, log_to_stderr

    log_to_stderr(log_level)
    process = Process()
    links = [f"{link.source}>{link.target}" for link in config.links]
    facts: dict[str, object] = {"replicator": name, "links": links}
    sys.exit(
        process.run(
            [lambda: Replication(config, name, SystemClock(), process.fail)],
            lambda: start_line(facts, f"replicator {name}: {', '.join(links)}", as_json),
        )
    )


@replicate.command()
@_config_option
@json_option
def status(path: Path, as_json: bool) -> None:
    """Show for each queue how many messages the target lacks, and why a queue stands still.

    Exit status 0 if no queue stands still and every source answers; else 1.
    """
    reports = _with_clusters(path, _reports)
    if as_json:
        from replicate.report import as_json as json_of

        print_json([json_of(report) for report in reports])
    else:
        for report in reports:
            _show(report)
    if not all(report.source_answers and not any(queue.blocked for queue in report.queues) for report in reports):
        raise SystemExit(1)


async def _reports(config: "Config", clusters: "dict[str, Cluster]") -> "list[LinkReport]":
    from replicate.report import link_report
    from sprocket.common.clock import SystemClock

    return [await link_report(link, clusters, SystemClock()) for link in config.links]


def _show(report: "LinkReport") -> None:
    answers = "" if report.source_answers else "; the source does not answer, so more may be missing"
    click.echo(f"{report.source} > {report.target}: {report.lag} messages are not copied yet{answers}")
    rows = [
        (
            queue.topic, queue.broker, queue.queue, queue.copied_to, queue.source_end, queue.lag,
            f"{queue.lag_s:.1f}", queue.missed, queue.refused,
            "at least once" if queue.is_at_least_once else "once", queue.blocked or "ok",
        )
        for queue in report.queues
    ]  # fmt: skip
    for line in fitted(_HEAD, rows):
        click.echo(line)


@replicate.command()
@_config_option
@click.option("--to", required=True, metavar="CLUSTER", help="Cluster where applications work from now on.")
@click.option("--source-lost", is_flag=True, help="The other cluster is gone: accept that messages may be missing.")
@json_option
def failover(path: Path, to: str, source_lost: bool, as_json: bool) -> None:
    """Make the other cluster of a pair active.

    Without --source-lost it is a planned move: stop the producers first, and nothing may be missing.  Exit status 1 if
    the step is refused; the report says why and what to do.
    """
    _step(path, lambda steps: steps.fail_over(to, source_is_lost=source_lost), as_json)


@replicate.command()
@_config_option
@click.option("--finish", is_flag=True, help="Make the old cluster active again, when it lacks nothing.")
@json_option
def failback(path: Path, finish: bool, as_json: bool) -> None:
    """Bring the old cluster back after a failover: first without --finish, then with it."""
    _step(path, lambda steps: steps.finish_return() if finish else steps.begin_return(), as_json)


@replicate.command()
@_config_option
@click.option("--source-lost", is_flag=True, help="Rehearse the failover from a cluster that is gone.")
@json_option
def rehearse(path: Path, source_lost: bool, as_json: bool) -> None:
    """Report what the next step would do, and what each side lacks of the other; change nothing."""
    _step(path, lambda steps: steps.next_step(source_is_lost=source_lost), as_json, "rehearsed, nothing is changed; ")


def _step(
    path: Path, take: "Callable[[FailoverSteps], Awaitable[StepReport]]", as_json: bool, before: str = ""
) -> None:
    from replicate.protocol.steps import StepRefused

    async def work(config: "Config", clusters: "dict[str, Cluster]") -> "StepReport":
        from replicate.failover import FailoverSteps
        from sprocket.common.clock import SystemClock

        try:
            return await take(FailoverSteps(config, clusters, SystemClock()))
        except StepRefused as refused:
            raise WrongUsage(str(refused)) from None

    report = _with_clusters(path, work)
    if as_json:
        print_json(report.as_json())
    else:
        for link in report.links:
            _show(link)
            for group in link.groups:
                places = f"{group.topic}/{group.broker}/{group.queue}"
                click.echo(f"  group {group.group} {places}: {group.source_offset} is {group.target_offset} there")
        after = report.after
        said = f"refused: {report.refused}" if after is None else f"active: {after.active} ({after.phase})"
        click.echo(before + said)
    if report.after is None:
        raise SystemExit(1)


def _loaded(path: Path) -> "Config":
    from replicate.config import load_config
    from sprocket.common.errors import ConfigError

    try:
        return load_config(path)
    except ConfigError as error:
        raise WrongUsage(str(error)) from None


def _with_clusters(path: Path, work: "Callable[[Config, dict[str, Cluster]], Awaitable[T]]") -> T:
    """Call `work` with the configuration and its clusters, and return the result."""
    config = _loaded(path)

    async def session() -> T:
        from contextlib import AsyncExitStack

        from replicate.cluster import Cluster
        from sprocket.common.clock import SystemClock

        clock = SystemClock()
        async with AsyncExitStack() as stack:
            clusters = {}
            for name, each in config.clusters.items():
                cluster = Cluster(name, each.client_settings(clock), clock)
                clusters[name] = await stack.enter_async_context(cluster)
            return await work(config, clusters)

    return run(session())
