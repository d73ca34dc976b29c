"""Files of ``config/``: JSON exactly as RocketMQ writes it, so that a data directory moves both ways.

Source: RocketMQ 5.3.3, `ConfigManager`, `RemotingSerializable.toJson(pretty)` with fastjson 1.2.83.
"""

import errno
import logging
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Generic, TypeVar

import msgspec

from sprocket.common.atomic_file import read_file_or_backup, replace_file
from sprocket.common.errors import DiskFailed, DiskFull, ProtocolError, StoreError
from sprocket.remoting.codec.fastjson import dumps, loads

logger = logging.getLogger(__name__)

T = TypeVar("T")


def _ignore(_: DiskFailed) -> None:
    pass


class ConfigFile(Generic[T]):
    """One file that holds one struct and is replaced whole; the content before is kept as ``.bak``.

    `failed` hears of a write whose outcome is unknown.
    """

    def __init__(self, path: Path, content_type: type[T], failed: Callable[[DiskFailed], None] = _ignore) -> None:
        self.path = path
        self._type = content_type
        self._failed = failed
        # Whether the table in memory has changed since its content was taken for `save`.
        self.is_unsaved = False

    def load(self) -> T | None:
        """The content, or that of ``.bak`` if the file is missing, empty or broken; None if there is neither.

        Raises `StoreError` when there is a file and none that can be read.
        """
        backup = self.path.with_name(self.path.name + ".bak")
        reason = ""
        for path in (self.path, backup):
            content = read_file_or_backup(path)
            if content is None:
                continue
            try:
                return loads(content, self._type)
            except ProtocolError as error:
                reason = f"{path}: {error.detail}"
                logger.warning("event=config_file_broken path=%s detail=%r", path, error.detail)
        if reason:
            raise StoreError(f"{reason}; repair the file or remove it together with {backup.name}")
        return None

    def is_newer_than(self, other: "ConfigFile[T]") -> bool:
        """Whether this file was written after the other one, or is there and the other is not."""
        mine, theirs = self._written_ns(), other._written_ns()
        return mine is not None and (theirs is None or mine > theirs)

    def _written_ns(self) -> int | None:
        try:
            return self.path.stat().st_mtime_ns
        except OSError:
            return None

    def take_unsaved(self) -> bool:
        """Whether there is something to save; who is told so must `save` it."""
        is_unsaved, self.is_unsaved = self.is_unsaved, False
        return is_unsaved

    def save(self, content: bytes) -> None:
        """`write` what changed.  What cannot be written stays unsaved."""
        try:
            self.write(content)
        except Exception:
            self.is_unsaved = True
            raise

    def write(self, content: bytes) -> None:
        """Replace the file durably by `content` (see `pretty`).  May run in any thread.

        Raises `DiskFull` or `DiskFailed`; the file holds what it held before.
        """
        try:
            replace_file(self.path, content)
        except OSError as error:
            detail = f"write {self.path}: {error.strerror or error}"
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise DiskFull(detail) from error
            failure = DiskFailed(detail)
            self._failed(failure)
            raise failure from error


def pretty(value: object) -> bytes:
    """`value` as fastjson's pretty format has it: tabs, fields in alphabetical order, nulls left out.

    A map whose keys are numbers stands on one line but for its closing brace, and a set stands on one line
    entirely: that is how fastjson does it.  A Java array, or a set of objects, is a tuple here.
    """
    pieces: list[bytes] = []
    _write(value, b"\n", pieces)
    return b"".join(pieces)


class EntryTexts(Generic[T]):
    """The `pretty` texts of the entries of a table, so that a write encodes no more than what has changed.

    One thread at a time may use it.
    """

    def __init__(self, field: str) -> None:
        self._empty = b'\n\t"%b":{}' % field.encode()
        self._begin = self._empty[:-1]
        self._texts: dict[str, bytes] = {}

    def clear(self) -> None:
        """Forget all entries."""
        self._texts.clear()

    def update(self, entries: Mapping[str, T | None]) -> None:
        """Add, change or, where it is None, remove entries; the order is that of a dictionary."""
        for name, value in entries.items():
            if value is None:
                self._texts.pop(name, None)
            else:
                pieces = [b"\n\t\t" + dumps(name) + b":"]
                _write(value, b"\n\t\t", pieces)
                self._texts[name] = b"".join(pieces)

    def within(self, struct: msgspec.Struct) -> bytes:
        """`struct`, whose table is empty, as `pretty` has it with these entries in the table."""
        text = pretty(struct)
        if not self._texts:
            return text
        before, _, after = text.rpartition(self._empty)
        return b"".join((before, self._begin, b",".join(self._texts.values()), b"\n\t}", after))


@cache  # asking msgspec takes longer than writing the struct
def _fields(struct: type[msgspec.Struct]) -> tuple[tuple[str, bytes], ...]:
    """Attribute, and the key that is written, in the order of the keys."""
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
