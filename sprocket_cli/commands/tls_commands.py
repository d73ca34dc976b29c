"""`sprocket tls`: the certificates of a cluster."""

import datetime
from pathlib import Path

import click

from sprocket.common.errors import ConfigError
from sprocket_cli.client_session import HELP, CommandFailed, WrongUsage

_folder = click.argument("directory", type=click.Path(file_okay=False, path_type=Path))
_days = click.option(
    "--days", type=click.IntRange(1, 3650), default=730, show_default=True, help="Validity of certificates, days."
)


@click.group(context_settings=HELP)
def tls() -> None:
    """Make and renew the certificates of a cluster."""


@tls.command("init")
@_folder
@click.option(
    "--host", "hosts", multiple=True, metavar="NAME",
    help="Name or address of servers; repeatable. localhost, 127.0.0.1 and ::1 are always included.",
)  # fmt: skip
@_days
@click.option(
    "--client-auth", type=click.Choice(["require", "optional", "none"]), default="require", show_default=True,
    help="Whether servers require a client's certificate.",
)  # fmt: skip
@click.option("--force", is_flag=True, help="Replace all files, including the authority.")
def init(directory: Path, hosts: tuple[str, ...], days: int, client_auth: str, force: bool) -> None:
    """Make an authority in DIRECTORY, and certificates for name servers, brokers and a client.

    Files of TLS keys for Sprocket and for RocketMQ's servers, clients and tools are added. `sprocket cluster up PROFILE
    --tls DIRECTORY` runs a cluster that accepts only TLS. Keep ca.key secret: its holder can impersonate every member.
    """
    from sprocket.remoting.tls.settings import TLS_VARIABLE
    from sprocket_cli.processes.tls_folder import AUTHORITY_DAYS, HOSTS, TlsFolder

    folder = TlsFolder(directory)
    present = folder.present()
    if present and not force:
        raise WrongUsage(f"{present[0]} is there already: --force replaces all, sprocket tls renew keeps the authority")
    now = _now()
    try:
        folder.create([*HOSTS, *(host for host in hosts if host not in HOSTS)], now, days, client_auth)
    except (OSError, ValueError) as error:
        raise CommandFailed(str(error)) from None
    click.echo(f"{folder.authority_file}: the authority, until {_until(now, AUTHORITY_DAYS)}")
    click.echo(f"Certificates for {', '.join([*HOSTS, *hosts])}: until {_until(now, days)}")
    click.echo(f"A cluster: sprocket cluster up PROFILE --tls {directory}")
    click.echo(f"Commands: export {TLS_VARIABLE}={folder.path}")
    click.echo(f"Servers and Java: see the first lines of {folder.path}/*.properties")


@tls.command()
@_folder
@_days
def renew(directory: Path, days: int) -> None:
    """Issue all certificates in DIRECTORY again, by the same authority and for the same hosts.

    Servers use them within a second, without a restart and without closing connections.
    """
    from sprocket_cli.processes.tls_folder import TlsFolder

    now = _now()
    try:
        renewed = TlsFolder(directory).renew(now, days)
    except (ConfigError, OSError, ValueError) as error:
        raise CommandFailed(str(error)) from None
    click.echo(f"{', '.join(renewed)}: until {_until(now, days)}")


@tls.command()
@_folder
@click.argument("name")
@_days
@click.option("--force", is_flag=True, help="Replace an existing certificate of that name.")
def client(directory: Path, name: str, days: int, force: bool) -> None:
    """Issue a certificate for a client with the name NAME."""
    from sprocket_cli.processes.tls_folder import SERVERS, TlsFolder

    folder = TlsFolder(directory)
    if name in (*SERVERS, "ca") or "/" in name or not name:
        raise WrongUsage(f"{name!r} cannot be a client's name")
    if folder.properties(name).exists() and not force:
        raise WrongUsage(f"{folder.properties(name)} is there already: --force replaces it")
    now = _now()
    try:
        folder.add_client(name, now, days)
    except (ConfigError, OSError, ValueError) as error:
        raise CommandFailed(str(error)) from None
    click.echo(f"{folder.properties(name)}: until {_until(now, days)}")


def _now() -> datetime.datetime:
    from sprocket.common.clock import SystemClock

    return datetime.datetime.fromtimestamp(SystemClock().wall_ms() / 1000, datetime.UTC)


def _until(now: datetime.datetime, days: int) -> str:
    return f"{now + datetime.timedelta(days=days):%Y-%m-%d}"
