"""`mqnamesrv`: a name server, with RocketMQ's flags.  Source: RocketMQ 5.3.3, `NamesrvStartup`, `ServerUtil`."""

from pathlib import Path

import click

from sprocket_cli.client_session import HELP
from sprocket_cli.server.namesrv_command import run_namesrv
from sprocket_cli.server.server_commands import checked, configuration_flags, namesrv_flag, printed_only


@click.command(context_settings=HELP)
@configuration_flags
@namesrv_flag
def main(
    file: Path | None,
    namesrv: str | None,
    print_all: bool,
    print_important: bool,
    overrides: tuple[str, ...],
    as_json: bool,
    log_level: str,
) -> None:
    """Run a name server: brokers register with it, and clients ask it for the routes of topics.

    -n is accepted and ignored, as in RocketMQ: name servers do not know each other.
    """
    from sprocket_cli.server.server_config import namesrv_configuration

    configuration = checked(lambda: namesrv_configuration(file, overrides))
    if not printed_only(configuration, print_all, print_important):
        run_namesrv(configuration, as_json, log_level)
