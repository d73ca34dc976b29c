"""Tables that a slave gives to a master that lost everything: cut into frames here, put together there.

A table may be larger than a slave's frame.  Each piece says how many bytes of its table are still to come.
"""

from collections.abc import Iterator
from typing import Final

from ha.session import MOST_BODY_BYTES
from ha.table_queue import TableContent, TableUpdate, decode_table
from sprocket.common.errors import ProtocolError

PIECE_BYTES: Final = 1024 * 1024
# A broker has about ten.
MAX_TABLES: Final = 64


def pieces(table: TableUpdate) -> Iterator[tuple[int, bytes]]:
    """Yield (bytes still to come, piece) of one table.  Raises ProtocolError for one that is too large."""
    body = table.encode()
    for at in range(0, len(body), PIECE_BYTES):
        piece = body[at : at + PIECE_BYTES]
        yield len(body) - at - len(piece), piece


class TableAssembly:
    """Tables of one slave, as their pieces arrive."""

    def __init__(self) -> None:
        self._begun = bytearray()
        self._missing_bytes = 0
        self.tables: list[TableContent] = []

    def add(self, missing_bytes: int, piece: memoryview) -> None:
        """Add a piece after which `missing_bytes` of its table are missing.  Raises ProtocolError."""
        size = len(self._begun) + len(piece) + missing_bytes
        is_next = not self._begun or len(piece) + missing_bytes == self._missing_bytes
        if not piece or not is_next or size > MOST_BODY_BYTES or len(self.tables) >= MAX_TABLES:
            raise ProtocolError("ha_table", f"a slave gives a piece of {len(piece)} bytes that fits no table")
        self._begun += piece
        self._missing_bytes = missing_bytes
        if not missing_bytes:
            self.tables.append(decode_table(memoryview(self._begun)))
            self._begun = bytearray()

    def finish(self) -> list[TableContent]:
        """Return the tables.  Raises ProtocolError if one of them is not whole."""
        if self._begun:
            raise ProtocolError("ha_table", f"a slave ends its tables {self._missing_bytes} bytes too early")
        return self.tables
