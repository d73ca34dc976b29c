"""`sprocket`: the group of all commands."""

from typing import Final

import click

from sprocket.cli.client_session import HELP
from sprocket.cli.commands.cluster_commands import cluster, offset, topic
from sprocket.cli.commands.dlq_commands import dlq
from sprocket.cli.commands.message_commands import consume, send
from sprocket.cli.commands.tls_commands import tls
from sprocket.cli.commands.trace_commands import trace
from sprocket.cli.commands.transaction_commands import transaction
from sprocket.cli.doctor.command import doctor
from sprocket.cli.server.dashboard_command import dashboard
from sprocket.cli.server.mqbroker import main as broker
from sprocket.cli.server.mqcontroller import main as controller
from sprocket.cli.server.mqnamesrv import main as namesrv
from sprocket.cli.server.mqproxy import main as proxy
from sprocket.cli.server.standalone import standalone
from sprocket.cli.spark.commands import spark
from sprocket.cli.spark.shell import shell as spark_shell
from sprocket.cli.spark.sql import sql
from sprocket.cli.spark.table_commands import backfill, compact, tables
from sprocket.cli.store.backup import backup, restore, verify
from sprocket.cli.store.check import check
from sprocket.cli.store.commands import store
from sprocket.cli.store.dump import dump
from sprocket.cli.store.export import export
from sprocket.cli.store.import_messages import import_
from sprocket.cli.store.repair import repair
from sprocket.cli.store.stat import stat
from sprocket.engine.choice import ENGINE

_SHELLS: Final = ("bash", "zsh", "fish")


@click.group(context_settings=HELP)
@click.version_option(
    package_name="sprocket-mq", prog_name="sprocket", message=f"%(prog)s, version %(version)s, engine {ENGINE.name}"
)
def main() -> None:
    """Sprocket, a message broker that speaks RocketMQ.

    Exit status: 0 done, 1 a server refused or cannot be reached, 2 wrong usage or configuration, 70 a bug of
    Sprocket, 74 the disk failed.
    """
    from sprocket.common.logs.line_format import escape_unconfigured

    escape_unconfigured()


@main.command()
@click.argument("shell", type=click.Choice(_SHELLS))
def completion(shell: str) -> None:
    """Print the completion script for SHELL: eval "$(sprocket completion bash)"."""
    from click.shell_completion import get_completion_class

    for program, command in _programs().items():
        variable = f"_{program.upper()}_COMPLETE"
        kind = get_completion_class(shell)
        assert kind is not None
        click.echo(kind(command, {}, program, variable).source())


def _programs() -> dict[str, click.Command]:
    from sprocket.cli.mqadmin.main import main as mqadmin

    return {
        "sprocket": main,
        "mqadmin": mqadmin,
        "mqbroker": broker,
        "mqnamesrv": namesrv,
        "mqcontroller": controller,
        "mqproxy": proxy,
    }


main.add_command(namesrv, "namesrv")
main.add_command(broker, "broker")
main.add_command(controller, "controller")
main.add_command(proxy, "proxy")
main.add_command(dashboard, "dashboard")
for _command in (check, repair, dump, stat, export, import_, backup, verify, restore):
    store.add_command(_command)
for _command in (spark_shell, sql, backfill, tables, compact):
    spark.add_command(_command)
for _command in (standalone, send, consume, topic, cluster, offset, transaction, dlq, trace, tls, store, spark, doctor):
    main.add_command(_command)
