"""`mqbroker`: a broker, with RocketMQ's flags.  Source: RocketMQ 5.3.3, `BrokerStartup`, `ServerUtil`."""

from pathlib import Path

import click

from sprocket_cli.client_session import HELP
from sprocket_cli.server.broker_command import run_broker
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
    """Run a broker, which stores messages and delivers them to consumers.

    Name servers: -n, else namesrvAddr in the file, else $NAMESRV_ADDR.
    """
    from sprocket_cli.server.server_config import broker_configuration

    configuration = checked(lambda: broker_configuration(file, namesrv, overrides))
    if not printed_only(configuration, print_all, print_important):
        run_broker(configuration, as_json, log_level)
