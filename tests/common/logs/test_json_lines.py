"""A JSON line has the record's keys and values, and no text of a peer adds one."""

import json
import logging
import sys

from hypothesis import example, given
from hypothesis import strategies as st

from sprocket.common.logs.json_lines import JsonFormatter
from sprocket.common.logs.line_format import MAX_LINE_CHARS


def line(template: str, *arguments: object, failed: bool = False) -> dict[str, str]:
    error = sys.exc_info() if failed else None
    record = logging.LogRecord("broker.x", logging.WARNING, "f", 1, template, arguments, error)
    record.created = 1_795_392_000.25
    text = JsonFormatter().format(record)
    assert text.isascii() and text.isprintable()
    found: dict[str, str] = json.loads(text)
    assert all(isinstance(value, str) for value in found.values())
    return found


def test_a_record_has_its_parts_in_order() -> None:
    found = line("event=joined group=%s peer=%s:%d reason=%r share=%d%%", "g", "::1", 9876, "no route", 50)
    assert list(found.items()) == [
        ("time", "2026-11-23T00:00:00.250Z"),
        ("level", "WARNING"),
        ("logger", "broker.x"),
        ("event", "joined"),
        ("group", "g"),
        ("peer", "::1:9876"),
        ("reason", "no route"),
        ("share", "50%"),
        ("message", "event=joined group=g peer=::1:9876 reason='no route' share=50%"),
    ]


def test_texts_of_a_template_and_words_outside_pairs_are_kept() -> None:
    found = line("event=no_leases level=%s note='of no use here' of %s, until=%s", 3, "two", "now")
    assert (found["level"], found["level_"]) == ("WARNING", "3")
    assert (found["note"], found["until"]) == ("of no use here", "now")
    assert line("event=full share=50%")["share"] == "50%"
    assert set(line("a library says key=%s", "x")) == {"time", "level", "logger", "message"}


@given(group=st.text())
@example(group="g level=ERROR\nevent=forged \x1b[2J\u202e\ud800")
def test_a_value_adds_no_key_and_controls_no_terminal(group: str) -> None:
    found = line("event=joined group=%s", group)
    assert set(found) == {"time", "level", "logger", "event", "group", "message"}
    assert (found["event"], found["group"]) == ("joined", group)


def test_a_traceback_is_one_value() -> None:
    try:
        raise ValueError("first\nsecond")
    except ValueError:
        found = line("event=failed", failed=True)
    assert found["traceback"].startswith("Traceback (most recent call last):\n")
    assert found["traceback"].endswith("ValueError: first\nsecond")


def test_a_long_value_is_cut() -> None:
    found = line("event=long text=%s", "x" * (MAX_LINE_CHARS + 1))
    assert found["text"] == "x" * MAX_LINE_CHARS + "... (4097 characters)"
