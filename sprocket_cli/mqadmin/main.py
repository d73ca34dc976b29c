"""`mqadmin`: RocketMQ's admin command, with its own command names, flags and column layouts.

Source of names, flags, layouts: RocketMQ 5.3.3, package `org.apache.rocketmq.tools.command`.  Unlike RocketMQ's stack
trace and status 0, an error is one line on stderr and exit status 1.  ``--json`` is new.

A command is declared once, with `click.command`, in a module of this folder; `commands_by_module` finds it there.
"""

from collections.abc import Mapping
from importlib import import_module
from pkgutil import walk_packages

import click

import sprocket_cli.mqadmin as package
from sprocket_cli.client_session import HELP
from sprocket_cli.mqadmin.absent import ABSENT


class CommandGroup(click.Group):
    """Group whose commands are found in upper and lower case, as RocketMQ's are (`MQAdminStartup.findSubCommand`)."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command; None if there is none.  Raises UsageError for one that has no meaning here."""
        found = super().get_command(ctx, cmd_name)
        if found is not None:
            return found
        alike = (name for name in self.commands if name.lower() == cmd_name.lower())
        command = self.commands.get(next(alike, ""))
        reason = next((text for name, text in ABSENT.items() if name.lower() == cmd_name.lower()), None)
        if command is None and reason is not None:
            raise click.UsageError(f"RocketMQ's command {cmd_name} does not exist here. {reason}")
        return command


@click.group(cls=CommandGroup, context_settings=HELP)
def main() -> None:
    """Administer a cluster: RocketMQ's command names and flags."""
    from sprocket_cli.terminal import protect_terminal

    protect_terminal()


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
    with click.Context(found, info_name=found.name, parent=context.parent) as own:
        click.echo(found.get_help(own))


def commands_by_module() -> Mapping[str, list[click.Command]]:
    """Return the commands that each module of this folder and below declares, in the order of their declaration."""
    found, prefix = {}, f"{package.__name__}."
    for module in walk_packages(package.__path__, prefix):
        if module.name != __name__:
            values = vars(import_module(module.name)).values()
            found[module.name.removeprefix(prefix)] = [value for value in values if isinstance(value, click.Command)]
    return found


for _commands in commands_by_module().values():
    for _command in _commands:
        main.add_command(_command)
