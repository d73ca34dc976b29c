"""`sprocket cluster up`, `status`, `down`: a cluster of local processes, for trials and tests."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from sprocket.common.errors import ConfigError
from sprocket_cli.client_session import (
    CommandFailed,
    WrongUsage,
    json_option,
    print_json,
    run,
    tool_credentials,
    wrong_usage,
)
from sprocket_cli.columns import fitted

if TYPE_CHECKING:
    from sprocket_cli.processes.cluster_watch import ClusterWatch, MemberStatus
    from sprocket_cli.processes.local_cluster import LocalCluster

_HEAD = ("member", "role", "address", "pid", "state", "logEnd", "slaveLag", "inSync", "epoch")
_directory_option = click.option(
    "--directory", type=click.Path(file_okay=False, path_type=Path), default="sprocket-cluster", show_default=True,
    help="Folder for configuration, logs and data.",
)  # fmt: skip


@click.command()
@click.argument("profile", required=False)
@_directory_option
@click.option(
    "--port-base",
    type=click.IntRange(1, 65535),
    help="Port of the first name server; the first broker's is 1035 higher.  [default: 9876]",
)
@click.option(
    "--tls", "tls", type=click.Path(file_okay=False, exists=True, path_type=Path), metavar="FOLDER",
    help="Accept only TLS, with the certificates of `sprocket tls init FOLDER`.",
)  # fmt: skip
@click.option("--trace", "with_trace", is_flag=True, help="Also start the brokers for traces (broker-trace).")
@json_option
def up(
    profile: str | None, directory: Path, port_base: int | None, tls: Path | None, with_trace: bool, as_json: bool
) -> None:
    """Start a cluster of local processes and wait until all members have registered and connected.

    PROFILE is one of Sprocket's (2m-2s-sync, 2m-2s-async, 2m-noslave, controller) or a folder with a configuration
    file for each server, such as RocketMQ's.  For an existing cluster, PROFILE may be left out: members that were
    killed or stopped start again with their data, and running members are not touched.  If a member does not start,
    this command stops the members that it started.
    """
    from sprocket.common.clock import SystemClock
    from sprocket_cli.processes.cluster_watch import ClusterWatch

    cluster = _opened_or_made(profile, directory, port_base, tls, with_trace)
    with wrong_usage(), cluster.held():
        watch = ClusterWatch(cluster, SystemClock(), tool_credentials())
        run(watch.bring_up(lambda line: click.echo(line, err=True)))
        _show(cluster, run(watch.status()), as_json)


@click.command()
@_directory_option
@json_option
def status(directory: Path, as_json: bool) -> None:
    """Show whether sends are confirmed, the members, the lag of slaves in bytes, and who leads in which epoch.

    Exit status 0 if sends are confirmed, and every member runs, is registered and follows its master; else 1.
    With --json, the lines about sends and missing replicas go to stderr.
    """
    from sprocket.common.clock import SystemClock
    from sprocket_cli.processes.cluster_watch import ClusterWatch

    cluster = _opened(directory)
    watch = ClusterWatch(cluster, SystemClock(), tool_credentials())
    is_well = _show_health(watch, to_stderr=as_json)
    found = run(watch.status())
    _show(cluster, found, as_json)
    if not is_well or not all(one.is_up for one in found):
        raise SystemExit(CommandFailed.exit_code)


@click.command()
@_directory_option
def down(directory: Path) -> None:
    """Stop the cluster in order; keep its data."""
    cluster = _opened(directory)
    with wrong_usage(), cluster.held():
        cluster.stop(click.echo)


def _opened(directory: Path) -> "LocalCluster":
    from sprocket_cli.processes.local_cluster import LocalCluster

    with wrong_usage():
        return LocalCluster(directory)


def _opened_or_made(
    profile: str | None, directory: Path, port_base: int | None, tls: Path | None, with_trace: bool
) -> "LocalCluster":
    from sprocket_cli.processes.local_cluster import PORT_BASE, LocalCluster, check_ports_of
    from sprocket_cli.processes.ports import PortTaken
    from sprocket_cli.processes.profile import find_profile
    from sprocket_cli.processes.tls_folder import TlsFolder

    keys = None if tls is None else TlsFolder(tls)

    if (directory / "cluster.json").exists():
        cluster = _opened(directory)
        asked = (Path(profile or cluster.profile).name, port_base or cluster.port_base)
        if asked != (cluster.profile, cluster.port_base):
            held = f"the cluster {cluster.profile} with --port-base {cluster.port_base}"
            raise WrongUsage(f"{directory} holds {held}: give another --directory, or remove it")
        if keys is not None and (cluster.tls is None or cluster.tls.path != keys.path):
            raise WrongUsage(f"{directory} holds a cluster without these keys: give another --directory, or remove it")
        return cluster
    if profile is None:
        raise click.UsageError(f"PROFILE is needed: there is no cluster in {directory}")
    try:
        found = find_profile(profile, with_trace=with_trace)
        # Check before the directory is created: it fixes the ports of its cluster.
        check_ports_of(found, port_base or PORT_BASE)
        return LocalCluster.create(directory, found, port_base or PORT_BASE, keys)
    except PortTaken as error:
        raise CommandFailed(str(error)) from None
    except (ConfigError, OSError) as error:
        raise WrongUsage(str(error)) from None


def _show_health(watch: "ClusterWatch", *, to_stderr: bool) -> bool:
    """Say first whether sends are confirmed, then what is missing.  Return whether nothing is wrong."""
    try:
        health = run(watch.health())
    except CommandFailed as error:
        click.echo(f"Whether sends are confirmed is unknown: {error.message}", err=to_stderr)
        return False
    click.echo(health.headline, err=to_stderr)
    for trouble in health.troubles:
        click.echo(f"{trouble.what}. {trouble.advice}", err=to_stderr)
    return health.confirms_sends and not health.troubles


def _show(cluster: "LocalCluster", found: "list[MemberStatus]", as_json: bool) -> None:
    from sprocket.remoting.tls.settings import TLS_VARIABLE

    if as_json:
        print_json([dict(zip(_HEAD, _row(one), strict=True)) for one in found])
        return
    rows = [tuple("" if cell is None else cell for cell in _row(one)) for one in found]
    for line in fitted(_HEAD, rows):
        click.echo(line)
    tls = "" if cluster.tls is None else f" {TLS_VARIABLE}='{cluster.tls.path}'"
    click.echo(f"Clients: NAMESRV_ADDR='{cluster.namesrv}'{tls}.  Logs: {cluster.directory / 'logs'}")


def _row(one: "MemberStatus") -> tuple[object, ...]:
    in_sync = None if one.is_in_sync is None else "yes" if one.is_in_sync else "no"
    member = one.member
    placed = (member.name, one.role, member.address, one.pid, one.state)
    return (*placed, one.log_end, one.lag_bytes, in_sync, one.master_epoch)
