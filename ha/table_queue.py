"""Tables on their way to one slave: each waits until the log that it stands on has been sent.

What is queued is bounded.  A slave that is too far behind for it gets what fits, and later all tables anew.
"""

import struct
from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Final, NamedTuple

from ha.session import MOST_BODY_BYTES
from sprocket.common.errors import ProtocolError

# At five a second, what changes in so many seconds.
MOST_WAITING: Final = 64
_LENGTH: Final = struct.Struct(">B")


@dataclass(frozen=True, slots=True)
class TableUpdate:
    """The content of a table, or what changed in it, as it was when the log ended at `position`."""

    position: int
    name: str
    content: bytes

    def encode(self) -> bytes:
        """The body of a frame.  Raises ProtocolError for one that no slave would take."""
        name = self.name.encode()
        if len(name) + len(self.content) >= MOST_BODY_BYTES:
            raise ProtocolError("ha_table", f"the table {self.name} has {len(self.content)} bytes")
        return _LENGTH.pack(len(name)) + name + self.content


class TableContent(NamedTuple):
    """What a slave is to apply."""

    name: str
    content: bytes


def decode_table(body: memoryview) -> TableContent:
    """What `encode` made.  Raises ProtocolError."""
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
    """What one slave has not been sent yet, in the order in which it is to be applied."""

    def __init__(self) -> None:
        self._waiting: deque[TableUpdate] = deque()
        self._is_complete = False
        # Of the topics as the slave has them, or gets them next; None before the first.
        self.topics_mark: Hashable = None

    @property
    def wants_all(self) -> bool:
        """Whether the slave needs every table: it is new, or something was left out."""
        return not self._is_complete and not self._waiting

    def begin(self, tables: list[TableUpdate]) -> None:
        """Every table."""
        self._waiting.extend(tables)
        self._is_complete = True

    def add(self, update: TableUpdate) -> None:
        """What changed since the last time.  Left out, until `wants_all`, if there is too much."""
        if self._is_complete and len(self._waiting) < MOST_WAITING:
            self._waiting.append(update)
        else:
            self._is_complete = False

    def hurry(self, update: TableUpdate) -> None:
        """A whole table that goes before all else, in the place of what is queued of it."""
        self._waiting = deque(one for one in self._waiting if one.name != update.name)
        self._waiting.appendleft(update)

    def take(self, sent_offset: int) -> list[TableUpdate]:
        """Those whose log has been sent."""
        due = []
        while self._waiting and self._waiting[0].position <= sent_offset:
            due.append(self._waiting.popleft())
        return due
