"""`mqbroker`: a broker, with RocketMQ's flags.  Source: RocketMQ 5.3.3, `BrokerStartup`, `ServerUtil`."""

from sprocket_cli.server.broker_command import run_broker
from sprocket_cli.server.server_commands import server_command

main = server_command(
    """Run a broker, which stores messages and delivers them to consumers.

    Name servers: -n, else namesrvAddr in the file, else $NAMESRV_ADDR.
    """,
    lambda config, file, namesrv, overrides: config.broker_configuration(file, namesrv, overrides),
    run_broker,
)
