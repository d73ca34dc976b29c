"""`mqcontroller`: a controller, with RocketMQ's flags.  Source: RocketMQ 5.3.3, `ControllerStartup`, `ServerUtil`."""

from sprocket_cli.server.controller_command import run_controller
from sprocket_cli.server.server_commands import server_command

main = server_command(
    """Run a controller, which elects the masters of broker groups.

    -n is accepted and ignored, as in RocketMQ: controllers know no name servers.
    """,
    lambda config, file, _namesrv, overrides: config.controller_configuration(file, overrides),
    run_controller,
)
