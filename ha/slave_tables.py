"""Tables that a slave sends to a master that lost its own: split into frames here, assembled there.

A table may be larger than a slave's frame.  Each piece says how many bytes of its table follow.
"""

from collections.abc import Iterator
from typing import Final

from ha.session import MAX_BODY_BYTES
from ha.table_queue import TableContent, TableUpdate, decode_table
from sprocket.common.errors import ProtocolError

PIECE_BYTES: Final = 1024 * 1024
# A broker has about ten tables.
MAX_TABLES: Final = 64


def pieces(table: TableUpdate) -> Iterator[tuple[int, bytes]]:
    """Yield (bytes that follow, piece) of one table.  Raises ProtocolError for a table that is too large."""
    body = table.encode()
    for at in range(0, len(body), PIECE_BYTES):
        piece = body[at : at + PIECE_BYTES]
        yield len(body) - at - len(piece), piece


class TableAssembly:
    """Tables of one slave, assembled from their pieces."""

    def __init__(self) -> None:
        self._begun = bytearray()
        self._missing_bytes = 0
        self.tables: list[TableContent] = []

    def add(self, missing_bytes: int, piece: memoryview) -> None:
        """Add a piece that is followed by `missing_bytes` of its table.  Raises ProtocolError."""
        size = len(self._begun) + len(piece) + missing_bytes
        is_next = not self._begun or len(piece) + missing_bytes == self._missing_bytes
        if not piece or not is_next or size > MAX_BODY_BYTES or len(self.tables) >= MAX_TABLES:
            raise ProtocolError("ha_table", f"a slave sends a piece of {len(piece)} bytes that fits no table")
        self._begun += piece
        self._missing_bytes = missing_bytes
        if not missing_bytes:
            self.tables.append(decode_table(memoryview(self._begun)))
            self._begun = bytearray()

    def finish(self) -> list[TableContent]:
        """Return the tables.  Raises ProtocolError if one of them is incomplete."""
        if self._begun:
            raise ProtocolError("ha_table", f"a slave ends its tables {self._missing_bytes} bytes too early")
        return self.tables
