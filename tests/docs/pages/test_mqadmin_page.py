"""docs/mqadmin.md shows every command, and names those of RocketMQ that do not exist here."""

import re
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages

import click

import sprocket_cli.mqadmin as package
from docs.pages.mqadmin_page import command_of, page
from sprocket_cli.mqadmin.absent import ABSENT
from sprocket_cli.mqadmin.main import COMMANDS, main

ROOT = Path(__file__).resolve().parents[3]


def test_page_is_up_to_date() -> None:
    assert (ROOT / "docs" / "mqadmin.md").read_text(encoding="utf-8") == page(), "run `make docs`"


def test_the_page_shows_every_command_and_every_flag() -> None:
    shown = page()
    for name in (each for names in COMMANDS.values() for each in names):
        command = command_of(name, click.Context(main))
        part = shown.partition(f"\n### {command.name}\n")[2].partition("\n#")[0]
        flags = {f"`{flag}`" for option in command.params for flag in option.opts} - {"`-n`", "`--namesrvAddr`"}
        assert part and flags <= set(re.findall(r"`[^`]+`", part)), command.name


def test_each_command_is_in_the_table_once() -> None:
    modules = {
        found.name.removeprefix(f"{package.__name__}.")
        for found in walk_packages(package.__path__, f"{package.__name__}.")
    }
    declared = {
        (module, value.name)
        for module in modules - {"main"}
        for value in vars(import_module(f"{package.__name__}.{module}")).values()
        if isinstance(value, click.Command)
    }
    assert declared == {(module, name) for module, names in COMMANDS.items() for name in names}
    names = [name.lower() for names in COMMANDS.values() for name in names]
    assert len(names) == len(set(names)) > 40
    assert not {name.lower() for name in ABSENT} & set(names), "take it out of sprocket_cli/mqadmin/absent.py"
