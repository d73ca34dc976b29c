"""Formatter of JSON lines: one object for each record.

Keys and values come from the template of the record (``event=joined group=%s``), never from the finished text.  A group
named ``g reason=x`` therefore adds no key.
"""

import json
import logging
import re
from functools import lru_cache
from time import gmtime, strftime
from typing import Final

from sprocket.common.logs.line_format import MAX_LINE_CHARS, MAX_TRACEBACK_CHARS, WHOLE, cut

_PAIR: Final = re.compile(r"(?:(?<=\s)|^)([A-Za-z_][\w.]*)=('[^']*'|\"[^\"]*\"|\S*)")
_SPECIFIER: Final = re.compile(r"%(?!%)[#0\- +]*\d*(?:\.\d+)?[a-zA-Z]")
_OWN: Final = frozenset(("time", "level", "logger", "message", "traceback"))


class JsonFormatter(logging.Formatter):
    """Formatter that writes a record as one line of JSON in ASCII, with all values as strings."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line.  Control characters are escapes of JSON."""
        seconds, milliseconds = divmod(int(record.created * 1000), 1000)
        line = {
            "time": f"{strftime('%Y-%m-%dT%H:%M:%S', gmtime(seconds))}.{milliseconds:03d}Z",
            "level": record.levelname,
            "logger": record.name,
        }
        # First, so that a record with wrong arguments fails here as it does in every formatter.
        message = record.getMessage()
        line.update(_pairs(record))
        line["message"] = message
        if not hasattr(record, WHOLE):
            line = {key: cut(value, MAX_LINE_CHARS) for key, value in line.items()}
        below = []
        if record.exc_info:
            below.append(self.formatException(record.exc_info))
        if record.stack_info:
            below.append(self.formatStack(record.stack_info))
        if below:
            line["traceback"] = cut("\n".join(below), MAX_TRACEBACK_CHARS)
        return json.dumps(line)


def _pairs(record: logging.LogRecord) -> dict[str, str]:
    """Return the keys and values of a record; none if it does not begin with an event."""
    template = record.msg
    arguments = record.args or ()
    if not isinstance(template, str) or not isinstance(arguments, tuple) or not template.startswith("event="):
        return {}
    pairs = {}
    for key, text, first, count in _parsed(template):
        own = arguments[first : first + count]
        # The quotes of a repr belong to lines of text: a string of JSON has its own.
        value = str(own[0]) if text == "%r" else text % own if arguments else text
        pairs[f"{key}_" if key in _OWN else key] = value
    return pairs


@lru_cache(maxsize=2_048)
def _parsed(template: str) -> tuple[tuple[str, str, int, int], ...]:
    """Return for each pair of a template: key, template of the value, index of its first argument, their number."""
    found = []
    for match in _PAIR.finditer(template):
        text = match.group(2)
        if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"":
            text = text[1:-1]
        first = len(_SPECIFIER.findall(template, 0, match.start()))
        found.append((match.group(1), text, first, len(_SPECIFIER.findall(text))))
    return tuple(found)
