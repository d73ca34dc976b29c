"""Formatter of log lines: no text from a peer can begin a line, control a terminal, or fill the log.

Group names, KV values and remarks come from peers and may hold line breaks, or megabytes.  They are escaped and cut
here, once, for every logger of a process.
"""

import logging
import re
from time import gmtime
from typing import Final

# Control characters (C0, DEL, C1), line and paragraph separators, and characters that reverse the text direction.
CONTROL: Final = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
_TIMED: Final = "%(asctime)s.%(msecs)03dZ %(levelname)s %(name)s %(message)s"
_TIME: Final = "%Y-%m-%dT%H:%M:%S"
# Of a message with its time and logger, and of a traceback; a longer one is cut.
MAX_LINE_CHARS: Final = 4_096
MAX_TRACEBACK_CHARS: Final = 32_768
# A record with this attribute (`extra={WHOLE: True}`) is not cut: metrics that are exported to the log.
WHOLE: Final = "is_whole"
# Before every line of a traceback: a line that begins a record never begins with a space.
_INDENT: Final = "  "


def escaped(text: str) -> str:
    """Return `text` with its control characters as escapes of Python, such as ``\\n``."""
    return CONTROL.sub(_escape, text)


def cut(text: str, max_chars: int) -> str:
    """Return the first `max_chars` characters of `text`, and how many there were if that is more."""
    return text if len(text) <= max_chars else f"{text[:max_chars]}... ({len(text)} characters)"


def _escape(found: re.Match[str]) -> str:
    return found.group().encode("unicode_escape").decode()


class LineFormatter(logging.Formatter):
    """Formatter that writes a record as one line, and its traceback as indented lines below it."""

    def __init__(self, text: str = "%(message)s", time: str | None = None) -> None:
        super().__init__(text, time)
        self.converter = gmtime

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 # the name that logging gives it
        text = escaped(super().formatMessage(record))
        return text if hasattr(record, WHOLE) else cut(text, MAX_LINE_CHARS)

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
    return "\n".join(_INDENT + escaped(line) for line in cut(text, MAX_TRACEBACK_CHARS).split("\n"))


def timed_formatter() -> LineFormatter:
    """Return the formatter of servers: time in UTC, level, logger, message."""
    return LineFormatter(_TIMED, _TIME)


def escape_unconfigured() -> None:
    """Escape warnings that logging writes to stderr for a program without a configured handler."""
    if logging.lastResort is not None:
        logging.lastResort.setFormatter(LineFormatter())
