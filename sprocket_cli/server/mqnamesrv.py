"""`mqnamesrv`: a name server, with RocketMQ's flags.  Source: RocketMQ 5.3.3, `NamesrvStartup`, `ServerUtil`."""

from sprocket_cli.server.namesrv_command import run_namesrv
from sprocket_cli.server.server_commands import server_command

main = server_command(
    """Run a name server: brokers register with it, and clients ask it for the routes of topics.

    -n is accepted and ignored, as in RocketMQ: name servers do not know each other.
    """,
    lambda config, file, _namesrv, overrides: config.namesrv_configuration(file, overrides),
    run_namesrv,
)
