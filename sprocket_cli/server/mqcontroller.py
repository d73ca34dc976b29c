"""`mqcontroller`: a controller, with RocketMQ's flags.  Source: RocketMQ 5.3.3, `ControllerStartup`, `ServerUtil`."""

from pathlib import Path

import click

from sprocket_cli.client_session import HELP
from sprocket_cli.server.controller_command import run_controller
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
    """Run a controller, which elects the masters of broker groups.

    -n is accepted and ignored, as in RocketMQ: controllers know no name servers.
    """
    from sprocket_cli.server.server_config import controller_configuration

    configuration = checked(lambda: controller_configuration(file, overrides))
    if not printed_only(configuration, print_all, print_important):
        run_controller(configuration, as_json, log_level)
