"""Flags that the commands for servers share, and what they do before and after the run."""

import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import click

from sprocket_cli.client_session import HELP, LEVELS, option_set, wrong_usage

if TYPE_CHECKING:
    from sprocket.common.config.configuration import Configuration


_FILE = click.Path(dir_okay=False, path_type=Path)


# RocketMQ's -c, -p and -m, and Sprocket's own --set, --json and --log-level.
configuration_flags = option_set(
    click.option("-c", "--configFile", "file", type=_FILE, help="Configuration file in .properties grammar."),
    click.option("-p", "--printConfigItem", "print_all", is_flag=True, help="Print all keys and exit."),
    click.option(
        "-m", "--printImportantConfig", "print_important", is_flag=True, help="Print important keys and exit."
    ),
    click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Set one key; overrides the file."),
    click.option("--json", "as_json", is_flag=True, help="Print the start line as JSON."),
    click.option(
        "--log-level",
        type=LEVELS,
        default="info",
        show_default=True,
        help="Level of the log; logLevels sets components apart.",
    ),
)


namesrv_flag = click.option("-n", "--namesrvAddr", "namesrv", metavar="HOST:PORT;...", help="Name servers.")


def checked(read: "Callable[[], Configuration]") -> "Configuration":
    """Return the configuration that `read` returns; print its notices on stderr.  A ConfigError becomes WrongUsage."""
    with wrong_usage():
        configuration = read()
    for notice in configuration.notices:
        click.echo(f"Warning: {notice}", err=True)
    return configuration


def printed_only(configuration: "Configuration", print_all: bool, print_important: bool) -> bool:
    """Print the configuration if -p or -m asks for it; return whether one does."""
    from sprocket.common.config.configuration import printed

    if print_all or print_important:
        for line in printed(configuration, important_only=not print_all):
            click.echo(line)
    return print_all or print_important


def server_command(
    about: str,
    read: "Callable[[ModuleType, Path | None, str | None, tuple[str, ...]], Configuration]",
    run: "Callable[[Configuration, bool, str], None]",
) -> click.Command:
    """Return the command of a server, with RocketMQ's flags.

    `read` makes the configuration with a function of `server_config`, from file, name servers and overrides.
    """

    @click.command(context_settings=HELP, help=about)
    @configuration_flags
    @namesrv_flag
    def main(
        file: Path | None, namesrv: str | None, overrides: tuple[str, ...], print_all: bool, print_important: bool,
        as_json: bool, log_level: str,
    ) -> None:  # fmt: skip
        from sprocket_cli.server import server_config

        configuration = checked(lambda: read(server_config, file, namesrv, overrides))
        if not printed_only(configuration, print_all, print_important):
            run(configuration, as_json, log_level)

    return main


def start_line(facts: dict[str, object], sentence: str, as_json: bool) -> str:
    """Return the start line of a server: `sentence`, or `facts` as JSON for a program that waits for it."""
    return json.dumps(facts, ensure_ascii=False, default=str) if as_json else sentence
