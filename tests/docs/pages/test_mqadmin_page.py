"""docs/mqadmin.md shows every command, and names those of RocketMQ that do not exist here."""

import re
from pathlib import Path

import click

from docs.pages.mqadmin_page import page
from sprocket_cli.mqadmin.absent import ABSENT
from sprocket_cli.mqadmin.main import commands_by_module, main

ROOT = Path(__file__).resolve().parents[3]


def test_page_is_up_to_date() -> None:
    assert (ROOT / "docs" / "mqadmin.md").read_text(encoding="utf-8") == page(), "run `make docs`"


def test_the_page_shows_every_command_and_every_flag() -> None:
    shown = page()
    for command in main.commands.values():
        if command.name == "help":
            continue
        part = shown.partition(f"\n### {command.name}\n")[2].partition("\n#")[0]
        flags = {f"`{flag}`" for option in command.params for flag in option.opts} - {"`-n`", "`--namesrvAddr`"}
        assert part and flags <= set(re.findall(r"`[^`]+`", part)), command.name


def test_no_command_is_declared_twice_or_absent() -> None:
    names = [str(command.name).lower() for commands in commands_by_module().values() for command in commands]
    assert len(names) == len(set(names)) > 40
    assert not {name.lower() for name in ABSENT} & set(names), "take it out of sprocket_cli/mqadmin/absent.py"
    assert {*names, "help"} == {name.lower() for name in main.list_commands(click.Context(main))}
