"""What the demo tells to do with its data are commands that exist."""

import io
import shlex
from pathlib import Path

import click
from rich.console import Console

from examples.demo.__main__ import tell_how_to_explore
from sprocket_cli.main import main


def test_each_command_is_one_of_sprocket_with_arguments_that_it_takes(tmp_path: Path) -> None:
    (tmp_path / "broker-b" / "store").mkdir(parents=True)
    said = io.StringIO()
    tell_how_to_explore(Console(file=said), tmp_path)
    commands = [shlex.split(line, comments=True) for line in said.getvalue().splitlines() if line.startswith("  ")]
    assert commands.pop() == ["rm", "-r", str(tmp_path)]
    for program, *arguments in commands:
        assert Path(program).name == "sprocket"
        command: click.Command | None = main
        while isinstance(command, click.Group):
            context = click.Context(command)
            command = command.get_command(context, arguments.pop(0))
        assert command is not None
        command.make_context("sprocket", arguments)
    assert len(commands) == 3
