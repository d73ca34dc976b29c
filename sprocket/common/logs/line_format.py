"""Formatter of log lines: no text from a peer can begin a line or control a terminal.

Group names, KV values and remarks come from peers and may hold line breaks.  They are escaped here, once, for every
logger of a process.
"""

import logging
import re
from time import gmtime
from typing import Final

# Control characters (C0, DEL, C1), line and paragraph separators, and characters that reverse the text direction.
_CONTROL: Final = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
_TIMED: Final = "%(asctime)s.%(msecs)03dZ %(levelname)s %(name)s %(message)s"
_TIME: Final = "%Y-%m-%dT%H:%M:%S"
# Before every line of a traceback: a line that begins a record never begins with a space.
_INDENT: Final = "  "


def escaped(text: str) -> str:
    """Return `text` with its control characters as escapes of Python, such as ``\\n``."""
    return _CONTROL.sub(_escape, text)


def _escape(found: re.Match[str]) -> str:
    return found.group().encode("unicode_escape").decode()


class LineFormatter(logging.Formatter):
    """Formatter that writes a record as one line, and its traceback as indented lines below it."""

    def __init__(self, text: str = "%(message)s", time: str | None = None) -> None:
        super().__init__(text, time)
        self.converter = gmtime

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 # the name that logging gives it
        return escaped(super().formatMessage(record))

    def format(self, record: logging.LogRecord) -> str:
        # A formatter before this one may have kept its own text of the traceback in the record.
        record.exc_text = None
        return super().format(record)

    def formatException(self, ei: object) -> str:  # noqa: N802 # the name that logging gives it
        return _indented(super().formatException(ei))  # type: ignore[arg-type] # as logging hands it over

    def formatStack(self, stack_info: str) -> str:  # noqa: N802 # the name that logging gives it
        return _indented(super().formatStack(stack_info))


def _indented(text: str) -> str:
    # Only by "\n": other line breaks are escaped.
    return "\n".join(_INDENT + escaped(line) for line in text.split("\n"))


def timed_formatter() -> LineFormatter:
    """Return the formatter of servers: time in UTC, level, logger, message."""
    return LineFormatter(_TIMED, _TIME)


def escape_unconfigured() -> None:
    """Escape warnings that logging writes to stderr for a program without a configured handler."""
    if logging.lastResort is not None:
        logging.lastResort.setFormatter(LineFormatter())
