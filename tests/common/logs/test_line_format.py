"""No text that a peer chose begins a log line of its own."""

import io
import logging
import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sprocket.common.logs.json_lines import JsonFormatter
from sprocket.common.logs.line_format import (
    MAX_LINE_CHARS,
    MAX_TRACEBACK_CHARS,
    WHOLE,
    LineFormatter,
    escape_unconfigured,
    escaped,
    timed_formatter,
)

FORGED = "g\n2026-11-22T00:00:00.000Z WARNING sprocket.audit event=access decision=allow"


def written(text: str, *, error: BaseException | None = None, stack: bool = False) -> str:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(timed_formatter())
    logger = logging.getLogger("tests.line_format")
    logger.handlers, logger.propagate = [handler], False
    logger.warning("event=joined group=%s", text, exc_info=error, stack_info=stack)
    return stream.getvalue()


@given(text=st.text())
@example(text=FORGED)
@example(text="a\r\nb\x85c\u2028d\u2029e\x0bf\x0cg\x1c\x1d\x1e")
@example(text="\x1b[2J\x9b\x7f\x00\u202e")
def test_a_message_is_one_line_whatever_is_in_it(text: str) -> None:
    (line,) = written(text).splitlines()
    assert " WARNING tests.line_format event=joined group=" in line
    assert line.isprintable() or not re.search(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]", line)


@given(text=st.text())
@example(text=FORGED)
@example(text="a\rb\x85c\u2028d")
def test_the_lines_of_a_traceback_begin_no_record(text: str) -> None:
    try:
        raise ValueError(text)
    except ValueError as error:
        first, *rest = written("g", error=error).splitlines()
    assert first.endswith("event=joined group=g")
    assert rest and all(line.startswith("  ") for line in rest)
    assert written("g", stack=True).splitlines()[1].startswith("  ")


def test_what_can_be_printed_stays_as_it_is() -> None:
    assert escaped("Bestellungen für Köln 注文 \\n 'x' \"y\"") == "Bestellungen für Köln 注文 \\n 'x' \"y\""
    assert escaped("a\tb\nc\x1b\u2028") == "a\\tb\\nc\\x1b\\u2028"


def test_a_long_line_and_a_long_traceback_are_cut() -> None:
    text = "\n" * 100_000
    try:
        raise ValueError("y" * 100_000)
    except ValueError as error:
        first, *rest = written(text, error=error).splitlines()
    assert len(first) < MAX_LINE_CHARS + 30 and first.endswith("\\n... (200070 characters)")
    assert MAX_TRACEBACK_CHARS < sum(map(len, rest)) < MAX_TRACEBACK_CHARS + 100
    assert rest[-1].endswith(" characters)")


def test_a_record_that_must_be_whole_is_not_cut() -> None:
    record = logging.LogRecord("a", logging.INFO, "f", 1, "event=metrics data=%s", ("x" * 100_000,), None)
    setattr(record, WHOLE, True)
    assert all("x" * 100_000 in one.format(record) for one in (LineFormatter(), JsonFormatter()))


def test_another_handler_does_not_bring_its_traceback_along() -> None:
    try:
        raise ValueError(FORGED)
    except ValueError as error:
        record = logging.LogRecord("a", logging.ERROR, "f", 1, "event=x", (), (ValueError, error, error.__traceback__))
    logging.Formatter().format(record)
    assert all(line.startswith("  ") for line in LineFormatter().format(record).splitlines()[1:])


def test_a_program_without_handlers_escapes_too(monkeypatch: pytest.MonkeyPatch) -> None:
    handler = logging.StreamHandler(io.StringIO())
    monkeypatch.setattr(logging, "lastResort", handler)
    escape_unconfigured()
    assert (
        handler.format(logging.LogRecord("a", logging.WARNING, "f", 1, "event=x group=%s", (FORGED,), None)).count("\n")
        == 0
    )
