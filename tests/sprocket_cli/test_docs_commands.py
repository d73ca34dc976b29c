"""Every command that docs/ and the README name exists, or the page marks it as RocketMQ's own.

The mark is a comment in the page, ``<!-- RocketMQ's own mqadmin: haStatus, updateBrokerConfig -->``, beside the words
that tell the reader.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from sprocket_cli.main import main as sprocket
from sprocket_cli.mqadmin.main import main as mqadmin

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
_FENCED = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
_INDENTED = re.compile(r"^ {4,}.*$", re.MULTILINE)
_SPAN = re.compile(r"`([^`]+)`")
# `sprocket replication 1` is a text that a handshake signs.
_NO_COMMANDS = {"replication"}
_MARK = re.compile(r"<!-- RocketMQ's own mqadmin: ([\w, ]+) -->")


def code_of(page: str) -> Iterator[str]:
    """Yield what the page shows as code: fenced and indented blocks, and spans."""
    yield from _FENCED.findall(page)
    rest = _FENCED.sub("", page)
    yield from _INDENTED.findall(rest)
    yield from _SPAN.findall(rest)


def commands_in(page: str, program: str) -> set[str]:
    """Return the commands of `program` that the page's code names."""
    named = re.compile(rf"(?<![\w/.-])(?<!from )(?<!import ){program}\s+([a-z][A-Za-z-]*)")
    return {name for code in code_of(page) for name in named.findall(code)}


def marked_in(page: str) -> set[str]:
    return {name.strip() for names in _MARK.findall(page) for name in names.split(",")}


def known(group: click.Command) -> set[str]:
    assert isinstance(group, click.Group)
    return set(group.list_commands(click.Context(group)))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_of_a_page_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    missing = commands_in(text, "mqadmin") - known(mqadmin)
    assert sorted(missing - marked_in(text)) == [], "correct the page, or mark the command as RocketMQ's own"
    assert sorted(marked_in(text) - missing) == [], "stale mark: ours has it, or no text names it"
    assert sorted(commands_in(text, "sprocket") - known(sprocket) - _NO_COMMANDS) == []


def test_commands_are_found_in_code_and_nowhere_else() -> None:
    page = (
        "mqadmin in words, `mqadmin a -n x`, `see mqadmin\nb`\n\n    mqadmin c\n\n```\n$ mqadmin d\n```\n`x/mqadmin e`"
    )
    assert commands_in(page, "mqadmin") == {"a", "b", "c", "d"}
    assert marked_in("<!-- RocketMQ's own mqadmin: f, gH -->") == {"f", "gH"}


def test_the_docs_name_commands() -> None:
    """Guards the test itself: a wrong root would find nothing and pass."""
    named = {name for page in PAGES for name in commands_in(page.read_text(encoding="utf-8"), "mqadmin")}
    assert len(named) > 10
