"""`sprocket replicate`: replication between clusters, its state, and the steps of a failover."""

import socket
import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING, TypeVar

import click

from sprocket_cli.client_session import HELP, json_option, log_level_option, print_json, run, wrong_usage
from sprocket_cli.columns import fitted

if TYPE_CHECKING:
    from replicate.cluster import Cluster
    from replicate.config import Config
    from replicate.failover import FailoverSteps, StepReport
    from replicate.report import LinkReport, QueueReport

T = TypeVar("T")
_HEAD = (
    "topic", "broker", "queue", "copiedTo", "sourceEnd", "lag", "lagSeconds", "missed", "refused", "copies", "state",
)  # fmt: skip
_GROUP_HEAD = "group", "topic", "broker", "queue", "sourceOffset", "targetOffset"
_config_option = click.option(
    "-c", "--config", "path", required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Configuration, see docs/geo-replication.md.",
)  # fmt: skip
_pair_option = click.option(
    "--pair", nargs=2, metavar="HOME OTHER",
    help="Of three and more clusters: the one where applications work in peace, and the one that takes over.",
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

    Exit status 0 if all clusters answer, no queue stands still, and a replicator copies each link or the link rests
    since a failover; else 1.
    """
    reports = _with_clusters(path, _reports)
    if as_json:
        from replicate.report import as_json as json_of

        print_json([json_of(report) for report in reports])
    else:
        for report in reports:
            _show(report, report.queues)
    if not all(map(_is_well, reports)):
        raise SystemExit(1)


async def _reports(config: "Config", clusters: "dict[str, Cluster]") -> "list[LinkReport]":
    from replicate.report import link_reports
    from sprocket.common.clock import SystemClock

    return await link_reports(config, clusters, SystemClock())


def _is_well(report: "LinkReport") -> bool:
    stands = any(queue.blocked for queue in report.queues)
    return report.source_answers and not stands and (report.is_copied or bool(report.rests))


def _show(report: "LinkReport", queues: "Sequence[QueueReport]") -> None:
    click.echo(_summary(report))
    rows = [
        (
            queue.topic, queue.broker, queue.queue, queue.copied_to, queue.source_end, queue.lag,
            f"{queue.lag_s:.1f}", queue.missed, queue.refused,
            "at least once" if queue.is_at_least_once else "once", queue.blocked or "ok",
        )
        for queue in queues
    ]  # fmt: skip
    for line in fitted(_HEAD, rows) if rows else ():
        click.echo(line)


def _summary(report: "LinkReport") -> str:
    link = f"{report.source} > {report.target}"
    if report.failure:
        return f"{link}: not known, {report.target} does not answer: {report.failure}"
    count = report.lag
    missing = "nothing is missing" if not count else f"{count} message{'s are' if count > 1 else ' is'} not copied yet"
    parts = [missing] if report.source_answers else [missing, "the source does not answer, so more may be missing"]
    if report.rests:
        parts.append(f"the link rests, as {report.rests}")
    elif report.is_old:
        parts.append("not known whether a replicator copies: one that is older than this command does not say so")
    elif report.is_copied:
        parts.append(f"replicator {report.replicator} copies")
    elif report.replicator:
        parts.append(f"no replicator copies: {report.replicator} was here last, {report.silent_s:.0f} s ago")
    else:
        parts.append("no replicator has copied anything yet; start `sprocket replicate run`")
    if report.uncounted:
        others = ", ".join(report.uncounted)
        parts.append(
            f"no offsets of groups are written, as {report.source} also gets messages of {others}: write all links "
            "into one configuration"
        )
    if report.unplaced:
        parts.append(
            f"groups without an offset in some queue of {report.target}, as their place there is not known: "
            f"{report.unplaced}"
        )
    return f"{link}: {'; '.join(parts)}"


def _show_groups(report: "LinkReport") -> None:
    if report.groups:
        click.echo(f"Offsets of groups in {report.source}, and where the groups would go on in {report.target}:")
        rows = [
            (group.group, group.topic, group.broker, group.queue, group.source_offset, group.target_offset)
            for group in report.groups
        ]
        for line in fitted(_GROUP_HEAD, rows):
            click.echo(line)


@replicate.command()
@_config_option
@click.option("--to", required=True, metavar="CLUSTER", help="Cluster where applications work from now on.")
@click.option("--source-lost", is_flag=True, help="The other cluster is gone: accept that messages may be missing.")
@_pair_option
@json_option
def failover(path: Path, to: str, source_lost: bool, pair: tuple[str, str] | None, as_json: bool) -> None:
    """Make the other cluster of a pair active.

    Without --source-lost it is a planned move: stop the producers first, and nothing may be missing.  Exit status 1 if
    the step is refused; the report says why and what to do.
    """
    _step(path, pair, lambda steps: steps.fail_over(to, source_is_lost=source_lost), as_json)


@replicate.command()
@_config_option
@click.option("--finish", is_flag=True, help="Make the old cluster active again, when it lacks nothing.")
@_pair_option
@json_option
def failback(path: Path, finish: bool, pair: tuple[str, str] | None, as_json: bool) -> None:
    """Bring the old cluster back after a failover: first without --finish, then with it."""
    _step(path, pair, lambda steps: steps.finish_return() if finish else steps.begin_return(), as_json)


@replicate.command()
@_config_option
@click.option("--source-lost", is_flag=True, help="Rehearse the failover from a cluster that is gone.")
@_pair_option
@json_option
def rehearse(path: Path, source_lost: bool, pair: tuple[str, str] | None, as_json: bool) -> None:
    """Report what the next step would do, and what each side lacks of the other; change nothing."""
    _step(path, pair, lambda steps: steps.next_step(source_is_lost=source_lost), as_json, is_rehearsal=True)


def _step(
    path: Path, pair: tuple[str, str] | None, take: "Callable[[FailoverSteps], Awaitable[StepReport]]", as_json: bool,
    *, is_rehearsal: bool = False,
) -> None:  # fmt: skip
    from replicate.protocol.steps import StepRefused

    async def work(config: "Config", clusters: "dict[str, Cluster]") -> "StepReport":
        from replicate.failover import FailoverSteps
        from sprocket.common.clock import SystemClock

        with wrong_usage(StepRefused):
            return await take(FailoverSteps(config, clusters, SystemClock(), pair=pair))

    report = _with_clusters(path, work)
    if as_json:
        print_json(report.as_json())
    else:
        for link in report.links:
            _show(link, [queue for queue in link.queues if queue.lag or queue.missed or queue.refused or queue.blocked])
            if link.source == report.before.active:
                _show_groups(link)
        click.echo(_outcome(report, is_rehearsal))
    if report.after is None:
        raise SystemExit(1)


def _outcome(report: "StepReport", is_rehearsal: bool) -> str:
    """Return what the step did or would do, and what comes next."""
    from replicate.protocol.steps import Phase

    after = report.after
    if after is None:
        return f"{'rehearsal: the next step would be refused' if is_rehearsal else 'refused'}: {report.refused}"
    if after.phase is Phase.FAILED_OVER:
        step, done = f"failover --to {after.active}", f"{after.active} is active"
        then = f"Start the applications there. When {after.home} is back: sprocket replicate failback"
    elif after.phase is Phase.RETURNING:
        step, done = "failback", f"{after.active} is active, and {after.home} gets what it lacks"
        then = (
            "When status shows that nothing is missing, stop the producers, then: sprocket replicate failback --finish"
        )
    else:
        step, done, then = "failback --finish", f"{after.active} is active as in peace", "Start the applications there."
    if is_rehearsal:
        return f"rehearsal: the next step is `{step}`, and it is possible: {done} then. Nothing is changed."
    return f"{done} now. {then}"


def _loaded(path: Path) -> "Config":
    from replicate.config import load_config

    with wrong_usage():
        return load_config(path)


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
