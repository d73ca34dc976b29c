"""`sprocket`: the group of all commands."""

from importlib import import_module
from typing import Final

import click

from sprocket.engine.choice import ENGINE
from sprocket_cli.client_session import HELP
from sprocket_cli.lazy_group import LazyGroup

# Where each command is.
_COMMANDS: Final = {
    "broker": "sprocket_cli.commands.broker_commands:broker",
    "cluster": "sprocket_cli.commands.cluster_commands:cluster",
    "consume": "sprocket_cli.commands.message_commands:consume",
    "controller": "sprocket_cli.server.mqcontroller:main",
    "dashboard": "sprocket_cli.server.dashboard_command:dashboard",
    "dlq": "sprocket_cli.commands.dlq_commands:dlq",
    "doctor": "sprocket_cli.doctor.command:doctor",
    "function": "sprocket_cli.commands.function_commands:function",
    "init": "sprocket_cli.commands.init_command:init",
    "namesrv": "sprocket_cli.server.mqnamesrv:main",
    "namespace": "sprocket_cli.commands.namespace_commands:namespace",
    "offset": "sprocket_cli.commands.cluster_commands:offset",
    "outbox": "sprocket_cli.commands.outbox_commands:outbox",
    "proxy": "sprocket_cli.server.mqproxy:main",
    "quota": "sprocket_cli.commands.quota_commands:quota",
    "replicate": "sprocket_cli.commands.replicate_commands:replicate",
    "schedule": "sprocket_cli.commands.schedule_commands:schedule",
    "send": "sprocket_cli.commands.message_commands:send",
    "spark": "sprocket_cli.spark.commands:spark",
    "standalone": "sprocket_cli.server.standalone:standalone",
    "store": "sprocket_cli.store.commands:store",
    "tls": "sprocket_cli.commands.tls_commands:tls",
    "token": "sprocket_cli.commands.token_commands:token",
    "topic": "sprocket_cli.commands.cluster_commands:topic",
    "trace": "sprocket_cli.commands.trace_commands:trace",
    "transaction": "sprocket_cli.commands.transaction_commands:transaction",
}
_SHELLS: Final = ("bash", "zsh", "fish")


@click.group(cls=LazyGroup, places=_COMMANDS, context_settings=HELP)
@click.version_option(
    package_name="sprocket-mq", prog_name="sprocket", message=f"%(prog)s, version %(version)s, engine {ENGINE.name}"
)
def main() -> None:
    """Sprocket, a message broker that speaks RocketMQ.

    Exit status: 0 done, 1 a server refused or cannot be reached, 2 wrong usage or configuration, 70 a bug of
    Sprocket, 74 the disk failed.
    """
    from sprocket_cli.terminal import protect_terminal

    protect_terminal()


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
    places = {
        "mqadmin": "sprocket_cli.mqadmin.main",
        "mqbroker": "sprocket_cli.server.mqbroker",
        "mqnamesrv": "sprocket_cli.server.mqnamesrv",
        "mqcontroller": "sprocket_cli.server.mqcontroller",
        "mqproxy": "sprocket_cli.server.mqproxy",
    }
    return {"sprocket": main, **{program: import_module(module).main for program, module in places.items()}}
