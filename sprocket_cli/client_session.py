"""Helpers of commands that ask servers: name servers, credentials, TLS, errors, JSON."""

import json
import os
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

import click

from sprocket.common.errors import ConfigError, SprocketError
from sprocket_cli.exit_codes import FAILURE, USAGE

if TYPE_CHECKING:
    from sprocket.client.admin.admin_client import AdminClient
    from sprocket.client.connection.client_instance import ClientSettings
    from sprocket.remoting.credentials import Credentials
    from sprocket.remoting.tls.settings import TlsSettings

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])
HELP = {"help_option_names": ["-h", "--help"]}

namesrv_option = click.option(
    "-n", "--namesrvAddr", "namesrv", envvar="NAMESRV_ADDR", show_envvar=True, metavar="HOST:PORT;...",
    help="Name servers, separated by ';'.",
)  # fmt: skip


def _namespace(ctx: click.Context, param: click.Parameter, value: str) -> str:
    from sprocket.remoting.message.namespaces import namespace_problem

    problem = namespace_problem(value) if value else None
    if problem is not None:
        raise click.BadParameter(problem, ctx, param)
    return value


def namespace_option_of(says: str) -> Callable[[F], F]:
    """Return the option `--namespace`, whose help is `says`."""
    return click.option("--namespace", default="", callback=_namespace, metavar="TENANT|NAME", help=says)


namespace_option = namespace_option_of("Namespace of the topic and the group.")
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
LEVELS = click.Choice(["debug", "info", "warning", "error"])
log_level_option = click.option(
    "--log-level", type=LEVELS, default="info", show_default=True, help="Level of the log on stderr."
)


class Adder(Protocol):
    """Adds options to a command."""

    def __call__(self, command: F, /) -> F: ...


def option_set(*added: Adder) -> Adder:
    """Return what adds several options to a command, in the order of its help."""

    def add(command: F) -> F:
        for each in reversed(added):
            command = each(command)
        return command

    return add


def parse_property(_context: click.Context, _parameter: click.Parameter, words: tuple[str, ...]) -> dict[str, str]:
    """Return ``name=value`` words as a map."""
    properties = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not name or not equals:
            raise click.BadParameter(f"{word!r}: allowed is name=value")
        properties[name] = value
    return properties


class CommandFailed(click.ClickException):
    """Failure of a server: it refused, or cannot be reached.  Ends the command with a message on stderr."""

    exit_code = FAILURE


class WrongUsage(CommandFailed):
    """Wrong command line or configuration.  Ends the command with a message on stderr."""

    exit_code = USAGE


@contextmanager
def wrong_usage(kind: type[Exception] = ConfigError) -> Iterator[None]:
    """Turn errors of this kind into `WrongUsage`."""
    try:
        yield
    except kind as error:
        raise WrongUsage(str(error)) from None


class ServerAddress(click.ParamType[str]):
    """Address of one server, ``host:port``."""

    name = "HOST:PORT"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return `value` without blanks around it; fail if it is not an address."""
        from sprocket.remoting.client import split_address

        address = value.strip()
        try:
            split_address(address)
        except ValueError:
            self.fail(f"{address!r}: allowed is host:port, as in 127.0.0.1:10911", param, ctx)
        return address


SERVER_ADDRESS: Final = ServerAddress()


def name_servers(namesrv: str | None) -> list[str]:
    """Return the addresses in `namesrv`.  Raises WrongUsage if there is none, or if a part is not an address."""
    from sprocket.remoting.client import split_address

    addresses = [part.strip() for part in (namesrv or "").split(";") if part.strip()]
    if not addresses:
        raise WrongUsage("no name server given: use -n host:port or set NAMESRV_ADDR")
    for address in addresses:
        try:
            split_address(address)
        except ValueError:
            form = "allowed is host:port, several separated by ';', as in 127.0.0.1:9876;192.168.0.1:9876"
            raise WrongUsage(f"name server {address!r}: {form}") from None
    return addresses


def tool_credentials() -> "Credentials | None":
    """Return the account in ``$ROCKETMQ_HOME/conf/tools.yml``, as RocketMQ's mqadmin does.  Raises ConfigError."""
    from acl.plain.files import PlainFiles

    home = os.environ.get("ROCKETMQ_HOME")
    return PlainFiles(Path(home)).tool_credentials() if home else None


def tool_tls() -> "TlsSettings | None":
    """Return the TLS settings in the environment, None if there are none.  Raises ConfigError.

    Source: RocketMQ 5.3.3, ``tools.sh``: JAVA_OPT with ``-Dtls.enable=true`` and ``-Dtls.config.file=...``.
    """
    from sprocket.common.config.configuration import read
    from sprocket.remoting.tls.settings import TLS_VARIABLE, TlsSettings, file_properties, system_properties

    given = system_properties(os.environ)
    place = os.environ.get(TLS_VARIABLE)
    if place:
        given |= file_properties(Path(place))
    settings = read([TlsSettings], [], overrides=given).of(TlsSettings)
    return settings if settings.enable else None


def client_settings(namesrv: str) -> "ClientSettings":
    """Return the settings for producers and consumers of a command.  Raises ConfigError."""
    from sprocket.client.connection.client_instance import ClientSettings

    return ClientSettings(namesrv=namesrv, credentials=tool_credentials(), tls=tool_tls())


def cluster_settings(namesrv: str | None, namespace: str) -> "ClientSettings":
    """Return the settings of a client of these name servers.  Raises WrongUsage."""
    from dataclasses import replace

    with wrong_usage():
        return replace(client_settings(";".join(name_servers(namesrv))), namespace=namespace)


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run `main`; turn an error of Sprocket into a message and an exit status."""
    try:
        return _run(main)
    finally:
        main.close()  # an interrupt may have come before it began


def _run(main: Coroutine[Any, Any, T]) -> T:
    from sprocket_cli.processes import interrupts

    try:
        return interrupts.run(main)
    except ConfigError as error:
        raise WrongUsage(str(error)) from None
    except SprocketError as error:
        raise CommandFailed(failure_text(error)) from None


def failure_text(error: SprocketError) -> str:
    """Return what to tell a person: of a lack of permission, also which account signed."""
    from sprocket_cli.permission import refusal_in, refusal_text

    refusal = refusal_in(error)
    return str(error) if refusal is None else refusal_text(refusal, tool_credentials())


def with_admin(namesrv: str | None, ask: "Callable[[AdminClient], Awaitable[T]]") -> T:
    """Call `ask` with an admin client of these name servers and return its result."""
    addresses = name_servers(namesrv)

    async def session() -> T:
        from sprocket_cli.patient_admin import PatientAdminClient

        async with PatientAdminClient(addresses, credentials=tool_credentials(), tls=tool_tls()) as admin:
            return await ask(admin)

    return run(session())


def admin_session(work: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """Make a command of `work`, with -n: `work` gets a client of these name servers, and the values of the options."""

    @namesrv_option
    @wraps(work)
    def command(*, namesrv: str | None, **given: Any) -> None:
        with_admin(namesrv, lambda admin: work(admin, **given))

    return command


def print_found(found: object, lines: Iterable[str], *, as_json: bool) -> None:
    """Print `found` as JSON, otherwise `lines`, which say the same."""
    if as_json:
        print_json(found)
        return
    for line in lines:
        click.echo(line)


def print_table(head: Sequence[str], rows: Iterable[Sequence[object]], *, as_json: bool) -> None:
    """Print rows in columns, or as JSON objects whose names are those of the columns."""
    from sprocket_cli.columns import fitted

    cells = list(rows)
    print_found([dict(zip(head, row, strict=True)) for row in cells], fitted(head, cells), as_json=as_json)


def print_json(value: object) -> None:
    """Print `value`, which may hold structs, as JSON: on one line in a pipe, indented on a terminal."""
    indent = 2 if os.isatty(1) else None
    click.echo(json.dumps(value, indent=indent, ensure_ascii=False, default=_plain))


def _plain(value: object) -> object:
    from msgspec import Struct, to_builtins

    return to_builtins(value) if isinstance(value, Struct) else str(value)
