"""`mqadmin`: RocketMQ's admin command, with its own command names, flags and column layouts.

Source of names, flags, layouts: RocketMQ 5.3.3, package `org.apache.rocketmq.tools.command`.  Unlike RocketMQ's stack
trace and status 0, an error is one line on stderr and exit status 1.  ``--json`` is new.
"""

import click

from sprocket.cli.client_session import HELP
from sprocket.cli.mqadmin import (
    auth,
    broker,
    cleaning,
    cold,
    connection,
    consumer,
    message,
    offset,
    send,
    stats,
    topic,
)


@click.group(context_settings=HELP)
def main() -> None:
    """Administer a cluster: RocketMQ's command names and flags."""
    from sprocket.common.log_format import escape_unconfigured

    escape_unconfigured()


@main.command(name="help")
@click.argument("command", required=False)
@click.pass_context
def show_help(context: click.Context, command: str | None) -> None:
    """Show the flags of a command."""
    assert context.parent is not None
    if command is None:
        click.echo(main.get_help(context.parent))
        return
    found = main.get_command(context.parent, command)
    if found is None:
        raise click.UsageError(f"The sub command {command} not exist.")
    with click.Context(found, info_name=command, parent=context.parent) as own:
        click.echo(found.get_help(own))


# Each module's commands; a command that a module imports belongs to another one.
for _module in (auth, broker, cleaning, cold, connection, consumer, message, offset, send, stats, topic):
    for _command in vars(_module).values():
        if isinstance(_command, click.Command) and getattr(_command.callback, "__module__", "") == _module.__name__:
            main.add_command(_command)
