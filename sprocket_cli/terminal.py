"""Output of commands: no text from a server or a message can control the user's terminal.

Names, remarks, properties and bodies come from others, and every command prints some.  So their control characters are
escaped once, in the streams of the process: always in stderr, and in stdout if it is a terminal, because a file or a
pipe gets bodies as they are.  The escapes are those of JSON, so JSON keeps its meaning.
"""

import sys
from typing import Any, TextIO

from sprocket.common.logs.line_format import CONTROL, escape_unconfigured


class EscapedStream:
    """A stream of text that escapes control characters, except line breaks and tabs.  All else is the inner one's."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write `text`; return its length."""
        self._stream.write(visible(text))
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def visible(text: str) -> str:
    """Return `text` with its control characters as escapes of JSON, such as ``\\u001b``."""
    return CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}" if found[0] not in "\n\t" else found[0], text)


def protect_terminal() -> None:
    """Escape what this process writes from now on, and what logging writes without a handler."""
    escape_unconfigured()
    sys.stderr = _escaped(sys.stderr)
    if sys.stdout.isatty():
        sys.stdout = _escaped(sys.stdout)


def _escaped(stream: Any) -> Any:
    return stream if isinstance(stream, EscapedStream) else EscapedStream(stream)
