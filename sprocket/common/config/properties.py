"""Java's ``.properties`` grammar, with the line of every entry.

Source: Java SE 17, `java.util.Properties.load(InputStream)`, which RocketMQ reads its files with.
In short: ``#`` and ``!`` start a comment line; ``=``, ``:`` or white space ends a key; a backslash at
the end of a line continues it; ``\\uXXXX``, ``\\t``, ``\\n``, ``\\r``, ``\\f`` and ``\\`` before any other
character are escapes; lines end in LF, CR or CRLF.  Bytes are ISO-8859-1, as they are in Java.
White space at the end of a value belongs to the value.
"""

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from sprocket.common.errors import ConfigError

_BLANKS = " \t\f"
_LINE_ENDS = "\r\n"
_LINES = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")
_ESCAPES = {"t": "\t", "r": "\r", "n": "\n", "f": "\f"}
_HEX_DIGITS = frozenset("0123456789abcdefABCDEF")


class Entry(NamedTuple):
    """One key and its value; `line` counts from 1 and is where the key starts."""

    key: str
    value: str
    line: int


def parse(content: bytes | str, source: str = "properties") -> list[Entry]:
    """Return the entries in the order of the file; a key may occur twice (in Java the last one wins).

    `source` names the file in errors.  Raises ConfigError for a malformed ``\\uXXXX``.
    """
    text = content.decode("iso-8859-1") if isinstance(content, bytes) else content
    return [_split(line, number, source) for line, number, _ in _logical_lines(text)]


def render(values: Mapping[str, str]) -> str:
    """Return ``key=value`` lines that `parse` reads back unchanged, with as few escapes as possible."""
    return "".join(f"{_escape(key, '=: ')}={_escape_value(value)}\n" for key, value in values.items())


def edited(content: bytes, values: Mapping[str, str], source: str = "properties") -> bytes:
    """Return `content` with `values`: each replaces the effective entry of its key, or is added at the end.

    Everything else stays byte for byte: comments, order, other entries, line ends.  Raises ConfigError as `parse` does,
    and if the result would not read back correctly.
    """
    before = {entry.key: entry.value for entry in parse(content, source)}
    values = {key: value for key, value in values.items() if before.get(key) != value}
    text = content.decode("iso-8859-1")
    lines = _LINES.findall(text)
    places = {_split(line, start, source).key: (start, end) for line, start, end in _logical_lines(text)}
    line_end = (_line_end(lines[0]) if lines else "") or "\n"
    for key in sorted(before.keys() & values.keys(), key=places.__getitem__, reverse=True):
        start, end = places[key]
        line = render({key: values[key]})[:-1]
        lines[start - 1 : end] = [line + _line_end(lines[min(end, len(lines)) - 1])]
    added = {key: value for key, value in values.items() if key not in before}
    if added and lines:
        if not _line_end(lines[-1]):
            lines[-1] += line_end
        if lines[-1].rstrip(_LINE_ENDS).endswith("\\"):
            # Ends a continuation.  LF after CR would be one line end.
            lines.append(_line_end(lines[-1]))
    lines += [render({key: value})[:-1] + line_end for key, value in added.items()]
    result = "".join(lines).encode("iso-8859-1")
    if {entry.key: entry.value for entry in parse(result, source)} != before | values:
        raise ConfigError(f"{source}: {', '.join(values)} cannot be put into this file")
    return result


def _line_end(line: str) -> str:
    return line[len(line.rstrip(_LINE_ENDS)) :]


def _logical_lines(text: str) -> Iterator[tuple[str, int, int]]:
    """Yield logical lines without comments and blank lines, each with the numbers of its first and last line."""
    pending = ""
    pending_line = 0
    continued = False
    number = 0
    for number, natural in enumerate(_natural_lines(text), 1):
        line = natural.lstrip(_BLANKS)
        if not pending and (not line or line[0] in "#!"):
            # A comment is never continued, and does not end a continuation that is still empty.
            continued = False
            continue
        if not pending and not continued:
            pending_line = number
        backslashes = len(line) - len(line.rstrip("\\"))
        if backslashes % 2:
            pending += line[:-1]
            continued = True
        else:
            yield pending + line, pending_line, number
            pending, continued = "", False
    if pending:  # A lone backslash at the very end is no entry here; Java makes an empty key of it.
        yield pending, pending_line, number


def _natural_lines(text: str) -> Iterator[str]:
    """Split at LF, CR and CRLF only; `str.splitlines` knows more line ends than Java does."""
    return iter(text.replace("\r\n", "\n").replace("\r", "\n").split("\n"))


def _split(line: str, number: int, source: str) -> Entry:
    """Cut a logical line at its first unescaped separator."""
    end = 0
    while end < len(line) and line[end] not in "=:" + _BLANKS:
        end += 2 if line[end] == "\\" else 1
    end = min(end, len(line))
    start = end
    while start < len(line) and line[start] in _BLANKS:
        start += 1
    if start < len(line) and line[start] in "=:":
        start += 1
        while start < len(line) and line[start] in _BLANKS:
            start += 1
    return Entry(_unescape(line[:end], number, source), _unescape(line[start:], number, source), number)


def _unescape(text: str, number: int, source: str) -> str:
    if "\\" not in text:
        return text
    out: list[str] = []
    position = 0
    while position < len(text):
        character = text[position]
        position += 1
        if character == "\\" and position < len(text):
            escaped = text[position]
            position += 1
            if escaped == "u":
                digits = text[position : position + 4]
                if len(digits) < 4 or not _HEX_DIGITS.issuperset(digits):
                    raise ConfigError(f"{source}:{number}: \\u{digits} is malformed: allowed are 4 hexadecimal digits")
                character = chr(int(digits, 16))
                position += 4
            else:
                character = _ESCAPES.get(escaped, escaped)
        out.append(character)
    return _join_surrogates("".join(out))


def _join_surrogates(text: str) -> str:
    """Join two escapes that form a UTF-16 pair into one character, as in a Java string."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


def _escape_value(value: str) -> str:
    """Escape the first blank of a value, which a reader would take for white space before the value."""
    escaped = _escape(value, "")
    return "\\" + escaped if escaped[:1] == " " else escaped


def _escape(text: str, specials: str) -> str:
    out: list[str] = []
    for position, character in enumerate(text):
        if character == "\\" or character in specials or (not position and character in "#!=:" and specials):
            out.append("\\" + character)
        elif character in _LINE_ENDS + "\t\f":
            out.append({"\t": "\\t", "\f": "\\f", "\r": "\\r", "\n": "\\n"}[character])
        elif " " <= character <= "~":
            out.append(character)
        else:
            units = character.encode("utf-16-be", "surrogatepass")
            out += [f"\\u{units[i]:02X}{units[i + 1]:02X}" for i in range(0, len(units), 2)]
    return "".join(out)
