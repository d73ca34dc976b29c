"""`sprocket function`: deploy code to the cluster, run it on this machine, and see what it does."""

import getpass
import os
import re
import socket
import sys
import time
from collections.abc import Awaitable, Callable
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

import click

from sprocket_cli.client_session import (
    HELP,
    CommandFailed,
    WrongUsage,
    cluster_settings,
    json_option,
    log_level_option,
    namespace_option_of,
    namesrv_option,
    print_found,
    run,
    wrong_usage,
)  # fmt: skip
from sprocket_cli.columns import fitted

if TYPE_CHECKING:
    from sprocket.client.connection.client_instance import ClientSettings
    from sprocket.functions.deployments import Deployment, Registry, Status

T = TypeVar("T")
_ROUTE_ATTEMPTS: Final = 15
_MIN_MEMORY_MB: Final = 128
_namespace_option = namespace_option_of(
    "Namespace of the deployments, and of all topics and groups of their functions."
)
_key_option = click.option(
    "--key", type=click.Path(dir_okay=False, path_type=Path), help="File with the key that signs and proves code."
)


@click.group(context_settings=HELP)
def function() -> None:
    """Deploy functions to the cluster, run them, and see what they do."""


def _at_cluster(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command `cluster`, the settings of its client, by the options that every command has."""

    @namesrv_option
    @_namespace_option
    @wraps(command)
    def wrapped(*, namesrv: str | None, namespace: str, **given: object) -> None:
        command(cluster=cluster_settings(namesrv, namespace), **given)

    return wrapped


def _with_registry(
    cluster: "ClientSettings", ask: "Callable[[Registry], Awaitable[T]]", *, create: bool = False
) -> T:  # fmt: skip
    """Call `ask` with the deployments of the cluster; with `create` their topics are created first."""

    async def session() -> T:
        from sprocket.client.connect import connect
        from sprocket.client.connection.backoff import Backoff
        from sprocket.functions.deployments import NothingDeployed, Registry, create_registry

        async with connect(client=cluster) as mq:
            if create:
                await create_registry(mq.admin, cluster.namespace)
            backoff = Backoff(0.1)
            for attempts_left in reversed(range(_ROUTE_ATTEMPTS if create else 1)):
                registry = Registry(mq)
                try:
                    await registry.start()
                    break
                except NothingDeployed as error:
                    if not attempts_left:
                        raise CommandFailed(str(error)) from None
                    await backoff.pause()  # name servers hear of a new topic a moment later
            return await ask(registry)

    return run(session())


@function.command()
@click.argument("source", type=click.Path(path_type=Path))
@click.option("--name", help="Name of the deployment; without it that of the file or directory.")
@click.option("--instances", type=click.IntRange(1, 256), help="Processes on each machine (1).")
@click.option("--memory-mb", type=click.IntRange(0), help="Address space of a process; 0: no limit (0).")
@click.option("--cpus", type=click.IntRange(0), help="Processors that a process may use; 0: all (0).")
@_key_option
@_at_cluster
def deploy(source: Path, name: str | None, key: Path | None, cluster: "ClientSettings", **limits: int | None) -> None:
    """Store SOURCE, a .py file or a package, as the next version, which all machines then run.

    The code is imported here once, to find its functions. Limits that are not given stay as they were.
    """
    import msgspec

    from sprocket.functions.deployments import Deployment, Version, create_topics, described, sign
    from sprocket.functions.package import digest, pack, read_key

    with wrong_usage():
        secret = None if key is None else read_key(key)
        module, package = pack(source.resolve())
        functions = described(package, module)
    if 0 < (limits["memory_mb"] or 0) < _MIN_MEMORY_MB:
        raise WrongUsage(f"--memory-mb {limits['memory_mb']}: a process needs {_MIN_MEMORY_MB} before its own data")
    chosen = name or module
    if not re.fullmatch(r"[A-Za-z0-9_-]{1,64}", chosen):
        raise WrongUsage(f"--name {chosen!r}: allowed are up to 64 letters, digits, hyphens and underscores")

    async def store(registry: "Registry") -> int:
        registry.check_groups(chosen, functions)
        await create_topics(registry.admin, functions, cluster.namespace)
        old = registry.table.get(chosen) or Deployment(chosen, 0, [])
        number = old.last_number + 1
        by = f"{getpass.getuser()}@{socket.gethostname()}"
        version = Version(number, digest(package), module, functions, round(time.time() * 1000), by)
        if secret is not None:
            version = msgspec.structs.replace(version, signature=sign(secret, chosen, version))
        changes = {field: value for field, value in limits.items() if value is not None}
        await registry.deploy(msgspec.structs.replace(old, **changes).with_version(version), package)
        return number

    number = _with_registry(cluster, store, create=True)
    click.echo(f"{chosen} version {number}: {', '.join(one.name for one in functions)}")


@function.command("list")
@json_option
@_at_cluster
def list_(as_json: bool, cluster: "ClientSettings") -> None:
    """Show what is deployed."""

    async def ask(registry: "Registry") -> list["Deployment"]:
        return [one for _, one in sorted(registry.table.items())]

    found, rows = _with_registry(cluster, ask), []
    for one in found:
        current = one.version(one.current)
        names = ", ".join(declared.name for declared in current.functions)
        rows.append((one.name, one.current, "stopped" if one.is_stopped else "deployed", names, current.deployed_by))
    print_found(found, fitted(("name", "version", "state", "functions", "deployed by"), rows), as_json=as_json)


@function.command()
@click.argument("name")
@json_option
@_at_cluster
def status(name: str, as_json: bool, cluster: "ClientSettings") -> None:
    """Show which versions of NAME run where, and what they have done."""
    reports = _reports(name, cluster)
    counts = ("inputs", "outputs", "failures", "dead_letters")
    rows = [
        (one.machine, "all" if one.is_machine else one.index, one.version, one.state,
         "" if one.is_machine else one.partitions, *(one.counts.get(field, "") for field in counts))
        for one in reports
    ]  # fmt: skip
    head = ("machine", "instance", "version", "state", "partitions", "inputs", "outputs", "failures", "dead letters")
    errors = [f"{one.machine} {'' if one.is_machine else one.index}: {one.error}" for one in reports if one.error]
    print_found(reports, [*fitted(head, rows), *errors], as_json=as_json)


@function.command()
@click.argument("name")
@_at_cluster
def logs(name: str, cluster: "ClientSettings") -> None:
    """Print the ends of the logs of NAME, of all machines."""
    for one in _reports(name, cluster):
        if one.is_machine:
            click.echo(f"=== {one.machine}: {one.state}\n{one.log}")


def _reports(name: str, cluster: "ClientSettings") -> "list[Status]":
    """Return the last report of each instance of a deployment; one that is silent is lost."""
    from sprocket.functions.deployments import LOST_MS

    reports = _with_registry(cluster, lambda registry: registry.reports(name))
    for one in reports:
        if one.at_ms < time.time() * 1000 - LOST_MS:
            one.state = "lost"
    return reports


def _switch(word: str, is_stopped: bool, about: str) -> None:
    """Add a command that stops or starts a deployment."""

    @function.command(word, help=about)
    @click.argument("name")
    @_at_cluster
    def switch(name: str, cluster: "ClientSettings") -> None:
        _with_registry(cluster, lambda registry: registry.change(name, is_stopped=is_stopped))
        click.echo(f"{name}: {'stopped' if is_stopped else 'started'}")


_switch("stop", True, "End all instances of NAME; `start` lets them go on where they were.")
_switch("start", False, "Run NAME again, after `stop`.")


@function.command()
@click.argument("name")
@click.option("--version", "number", type=click.IntRange(1), help="Version; without it the one before.")
@_at_cluster
def rollback(name: str, number: int | None, cluster: "ClientSettings") -> None:
    """Let an older version of NAME be the current one. The state stays as it is."""

    async def store(registry: "Registry") -> int:
        found = registry.find(name)
        chosen = found.version(found.before if number is None else number).number
        await registry.change(name, current=chosen, is_stopped=False)
        return chosen

    click.echo(f"{name}: version {_with_registry(cluster, store)}")


@function.command()
@click.argument("name")
@_at_cluster
def delete(name: str, cluster: "ClientSettings") -> None:
    """Remove NAME, its code and its reports. Its topics stay, also its changelog with the state."""
    _with_registry(cluster, lambda registry: registry.delete(name))
    click.echo(f"{name}: deleted")


@function.command("run")
@click.argument("names", nargs=-1)
@click.option("--trust-cluster", is_flag=True, help="Run whatever code the cluster has, without a proof.")
@_key_option
@click.option("--dir", "directory", type=click.Path(file_okay=False, path_type=Path), default="sprocket-functions",
              show_default=True, help="Directory for code and logs.")  # fmt: skip
@click.option("--machine", help="Name of this machine in reports; without it that of the host.")
@click.option("--metrics-port", type=click.IntRange(0, 65535), default=0,
              help="Port on 127.0.0.1 of the first instance's metrics; the next ones follow; 0: none.")  # fmt: skip
@log_level_option
@_at_cluster
def run_(
    names: tuple[str, ...], trust_cluster: bool, key: Path | None, directory: Path, machine: str | None,
    metrics_port: int, log_level: str, cluster: "ClientSettings",
) -> None:  # fmt: skip
    """Run the deployments NAMES on this machine, without names all, and follow changes.

    This runs code that the cluster has, with the rights of this user. Say which you trust: `--key FILE` runs code that
    was signed with the same key, `--trust-cluster` whatever those have deployed who may send to its topics.
    """
    from sprocket.client.connect import connect
    from sprocket.common.clock import SystemClock
    from sprocket.functions.package import read_key
    from sprocket_cli.server.function_processes import FunctionProcesses, Machine
    from sprocket_cli.server.server_process import Process, log_to_stderr

    if metrics_port and len(names) != 1:
        raise WrongUsage(
            "--metrics-port needs the NAME of one deployment, whose instances have the ports from there on"
        )
    if trust_cluster == (key is not None):
        raise WrongUsage("this runs code that the cluster has: pass --key FILE or --trust-cluster, one of them")
    with wrong_usage():
        secret = None if key is None else read_key(key)
    log_to_stderr(log_level)
    place = Machine(machine or socket.gethostname(), cluster, directory.absolute(), secret, metrics_port)
    processes = FunctionProcesses(connect(client=cluster), place, names, SystemClock())
    sys.exit(Process().run([lambda: processes], lambda: f"functions: {', '.join(names) or 'all'}"))


@function.command(hidden=True)
@click.argument("arguments")
@_at_cluster
def instance(arguments: str, cluster: "ClientSettings") -> None:
    """Run one instance; `run` starts it."""
    import msgspec

    from sprocket.common.clock import SystemClock
    from sprocket.functions.deployments import Status
    from sprocket.functions.instance import Instance, InstanceArguments, limit
    from sprocket.functions.package import load_functions
    from sprocket_cli.server.server_process import Process, log_to_stderr

    # What functions print goes to the log: nobody reads the pipe after its first line, and a full one blocks.
    pipe = os.dup(1)
    os.dup2(2, 1)
    sys.stdout = sys.stderr

    def ready() -> str:
        os.write(pipe, b"ready\n")
        os.close(pipe)
        return "ready"

    given = msgspec.json.decode(arguments, type=InstanceArguments)
    log_to_stderr("info")
    limit(given.memory_mb, given.cpus, given.index)
    with wrong_usage():
        functions = load_functions(Path(given.code), given.module)
    clock, process = SystemClock(), Process()
    status = Status(given.deployment, given.machine, given.index, given.version, "running", 0, os.getpid())
    made = Instance(functions, cluster, status, clock, process.fail, given.metrics_port)
    sys.exit(process.run([lambda: made], ready))
