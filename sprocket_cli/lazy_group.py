"""A group of commands that imports each of them when it is asked for: a server does not hold the commands beside it.

Source: the pattern "Lazily Loading Subcommands" in click's documentation.
"""

from collections.abc import Mapping
from importlib import import_module
from typing import Any

import click


class LazyGroup(click.Group):
    """Group with commands that are not imported yet, beside those that it has."""

    def __init__(self, *args: Any, places: Mapping[str, str], **kwargs: Any) -> None:
        """`places` has ``module:variable`` of each command; without a variable it is the command of that name there."""
        super().__init__(*args, **kwargs)
        self._places = places

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands, without importing any."""
        return sorted({*super().list_commands(ctx), *self._places})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command, imported if need be; None if there is none."""
        place = self._places.get(cmd_name)
        if place is None:
            return super().get_command(ctx, cmd_name)
        module, _, variable = place.partition(":")
        found = vars(import_module(module))
        if variable:
            command: click.Command = found[variable]
            return command
        for each in found.values():
            if isinstance(each, click.Command) and each.name == cmd_name:
                return each
        raise LookupError(f"{place} has no command {cmd_name}")
