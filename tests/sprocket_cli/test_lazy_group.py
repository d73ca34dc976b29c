"""A group imports a command when it is asked for, and shows all of them."""

import subprocess
import sys

import click
import pytest
from click.testing import CliRunner

from sprocket_cli.lazy_group import LazyGroup
from sprocket_cli.main import main
from sprocket_cli.spark.commands import spark
from sprocket_cli.store.commands import store


@pytest.mark.parametrize("group", [main, store, spark])
def test_each_command_is_where_the_group_says(group: click.Group) -> None:
    assert isinstance(group, LazyGroup)
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None and command.name in (name, "main"), name


def test_a_command_that_is_not_there_is_named_with_its_module() -> None:
    group = LazyGroup(places={"lost": "sprocket_cli.main"})
    with pytest.raises(LookupError, match=r"^sprocket_cli\.main has no command lost$"):
        group.get_command(click.Context(group), "lost")


def test_help_lists_commands_of_both_kinds() -> None:
    shown = CliRunner().invoke(main, ["--help"]).output
    assert "completion" in shown and "standalone" in shown
    assert "No such command 'brokers'" in CliRunner().invoke(main, ["brokers"]).output


def test_a_broker_loads_neither_other_commands_nor_a_parser_that_it_does_not_need() -> None:
    code = (
        "import sys; from sprocket_cli.main import main; import click\n"
        "main.get_command(click.Context(main), 'broker'); import broker.server\n"
        "print([name for name in sys.modules if name.startswith(('sprocket_cli.spark', 'sprocket_cli.store', 'yaml'))])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
