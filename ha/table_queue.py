"""Tables that wait to be sent to one slave: each waits until the log that it requires has been sent.

The queue is bounded.  A slave that lags too far gets what fits, and later all tables again.
"""

import struct
from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Final, NamedTuple

from ha.session import MAX_BODY_BYTES
from sprocket.common.errors import ProtocolError

# The master looks for changes five times a second, so this is at least 12 s of changes.
MAX_WAITING: Final = 64
_LENGTH: Final = struct.Struct(">B")


@dataclass(frozen=True, slots=True)
class TableUpdate:
    """Content of a table, or its changes, as it was when the log ended at `position`; `mark` is its fingerprint."""

    position: int
    name: str
    content: bytes
    mark: Hashable = None

    def encode(self) -> bytes:
        """Return the body of a frame.  Raises ProtocolError for a table above the limit of a frame."""
        name = self.name.encode()
        if len(name) + len(self.content) >= MAX_BODY_BYTES:
            raise ProtocolError("ha_table", f"the table {self.name} has {len(self.content)} bytes")
        return _LENGTH.pack(len(name)) + name + self.content


class TableContent(NamedTuple):
    """Name and content of a table that the receiver installs."""

    name: str
    content: bytes


def decode_table(body: memoryview) -> TableContent:
    """Decode the body that `TableUpdate.encode` made.  Raises ProtocolError."""
    length = body[0] if body else 0
    if len(body) < _LENGTH.size + length or not length:
        raise ProtocolError("ha_table", f"a table of {len(body)} bytes without a name")
    stop = _LENGTH.size + length
    try:
        name = str(body[_LENGTH.size : stop], "ascii")
    except UnicodeDecodeError:
        raise ProtocolError("ha_table", "a table's name is not ASCII") from None
    return TableContent(name, bytes(body[stop:]))


class TableQueue:
    """Tables to send to one slave, in the order in which the slave applies them."""

    def __init__(self) -> None:
        self._waiting: deque[TableUpdate] = deque()
        self._is_complete = False
        self._marks: dict[str, Hashable] = {}
        self._awaited_changes = 0  # the count for which the tables of this slave were compared last

    def mark(self, table: str) -> Hashable:
        """Return the fingerprint of a table as this slave has it or will get it next; None if that is not known."""
        return self._marks.get(table)

    def await_changes(self, count: int) -> bool:
        """Note that somebody waits for `count` changes in all; return whether that differs from before."""
        before, self._awaited_changes = self._awaited_changes, count
        return before != count

    @property
    def is_empty(self) -> bool:
        """Whether no table waits."""
        return not self._waiting

    @property
    def wants_all(self) -> bool:
        """Whether the slave needs every table: it is new, or changes were dropped."""
        return not self._is_complete and not self._waiting

    def begin(self, tables: list[TableUpdate]) -> None:
        """Queue every table."""
        self._waiting.extend(tables)
        self._is_complete = True

    def add(self, update: TableUpdate) -> None:
        """Queue a change, or drop it and all later ones until `wants_all` if too many wait."""
        if self._is_complete and len(self._waiting) < MAX_WAITING:
            self._waiting.append(update)
        else:
            self._is_complete = False

    def hurry(self, update: TableUpdate, table: str, mark: Hashable) -> None:
        """Put `table`, whose fingerprint is `mark` then, before all that requires log.

        A whole table takes the place of its queued versions; changes follow those that are queued.
        """
        self._marks[table] = mark
        if update.name == table:
            self._waiting = deque(one for one in self._waiting if one.name != table)
        place = next((at for at, one in enumerate(self._waiting) if one.position), len(self._waiting))
        self._waiting.insert(place, update)

    def take(self, sent_offset: int) -> list[TableUpdate]:
        """Remove and return the tables whose log has been sent up to `sent_offset`."""
        due = []
        while self._waiting and self._waiting[0].position <= sent_offset:
            due.append(update := self._waiting.popleft())
            if update.mark is not None:
                self._marks[update.name] = update.mark
        return due
