"""fastjson's pretty format: the JSON of RocketMQ's configuration files, and of what `mqadmin` prints.

Source: RocketMQ 5.3.3, `RemotingSerializable.toJson(pretty)` with fastjson 1.2.83.
"""

from collections.abc import Mapping
from functools import cache
from typing import Generic, TypeVar

import msgspec

from sprocket.remoting.codec.fastjson import dumps

T = TypeVar("T")


def pretty(value: object) -> bytes:
    """Return `value` in fastjson's pretty format: tabs, fields in alphabetical order, nulls left out.

    fastjson writes a map with numbers as keys on one line, except for the closing brace, and a set on one line.
    Give a Java array, or a set of objects, as a tuple.
    """
    pieces: list[bytes] = []
    _write(value, b"\n", pieces)
    return b"".join(pieces)


class EntryTexts(Generic[T]):
    """The `pretty` texts of the entries of a table, so that a write encodes only changed entries.

    Use it from one thread at a time.
    """

    def __init__(self, field: str) -> None:
        self._empty = b'\n\t"%b":{}' % field.encode()
        self._begin = self._empty[:-1]
        self._texts: dict[str, bytes] = {}

    def clear(self) -> None:
        """Forget all entries."""
        self._texts.clear()

    def update(self, entries: Mapping[str, T | None]) -> None:
        """Add or change entries; an entry whose value is None is removed.  The order is that of a dictionary."""
        for name, value in entries.items():
            if value is None:
                self._texts.pop(name, None)
            else:
                pieces = [b"\n\t\t" + dumps(name) + b":"]
                _write(value, b"\n\t\t", pieces)
                self._texts[name] = b"".join(pieces)

    def within(self, struct: msgspec.Struct) -> bytes:
        """Return the `pretty` text of `struct`, whose table is empty, with these entries in the table."""
        text = pretty(struct)
        if not self._texts:
            return text
        before, _, after = text.rpartition(self._empty)
        return b"".join((before, self._begin, b",".join(self._texts.values()), b"\n\t}", after))


@cache  # asking msgspec takes longer than writing the struct
def _fields(struct: type[msgspec.Struct]) -> tuple[tuple[str, bytes], ...]:
    """Return each attribute with its encoded key, in the order of the keys."""
    fields = sorted(msgspec.structs.fields(struct), key=lambda field: field.encode_name)
    return tuple((field.name, dumps(field.encode_name) + b":") for field in fields)


def _write(value: object, line: bytes, pieces: list[bytes]) -> None:
    if type(value) is int:
        pieces.append(b"%d" % value)
    elif isinstance(value, msgspec.Struct):
        _write_struct(value, line, pieces)
    elif isinstance(value, Mapping):
        _write_members(value, line, pieces)
    elif isinstance(value, list):
        _write_items(value, line, pieces)
    elif isinstance(value, tuple):
        _write_row(value, line, pieces)
    else:
        pieces.append(dumps(value))


def _write_struct(struct: msgspec.Struct, line: bytes, pieces: list[bytes]) -> None:
    inner = line + b"\t"
    before, between = b"{" + inner, b"," + inner
    is_empty = True
    for name, key in _fields(type(struct)):
        value = getattr(struct, name)
        if value is None:
            continue
        if type(value) is int:
            pieces.append(b"%b%b%d" % (before, key, value))
        else:
            pieces.append(before + key)
            _write(value, inner, pieces)
        before, is_empty = between, False
    pieces.append(b"{}" if is_empty else line + b"}")


def _write_members(members: Mapping[str | int, object], line: bytes, pieces: list[bytes]) -> None:
    inner = line + b"\t"
    separator = b""
    pieces.append(b"{")
    for key, value in members.items():
        if value is None:
            continue
        if type(value) is int and type(key) is int:
            pieces.append(b"%b%d:%d" % (separator, key, value))
            separator = b","
            continue
        pieces.append(separator)
        separator = b","
        pieces.append(b"%d:" % key if isinstance(key, int) else inner + dumps(key) + b":")
        _write(value, inner, pieces)
    pieces.append(line + b"}" if separator else b"}")


def _write_row(items: tuple[object, ...], line: bytes, pieces: list[bytes]) -> None:
    pieces.append(b"[")
    for index, item in enumerate(items):
        if index:
            pieces.append(b",")
        _write(item, line, pieces)
    pieces.append(b"]")


def _write_items(items: list[object], line: bytes, pieces: list[bytes]) -> None:
    inner = line + b"\t"
    pieces.append(b"[")
    for index, item in enumerate(items):
        pieces.append(b"," + inner if index else inner)
        _write(item, inner, pieces)
    pieces.append(line + b"]" if items else b"]")
