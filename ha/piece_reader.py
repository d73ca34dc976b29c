"""Reader of pieces from a connection: a head of fixed size, then a content whose size the head tells."""

from abc import ABC, abstractmethod
from typing import Generic, TypeVar

Piece = TypeVar("Piece")


class PieceReader(ABC, Generic[Piece]):
    """Reader of pieces with heads of `head_bytes`, however the bytes are split.

    A piece is returned as soon as it is complete.  If one read brought all of it, it is a view of that read's buffer,
    not a copy, and is valid only as long as the buffer.
    """

    def __init__(self, head_bytes: int) -> None:
        self._head_bytes = head_bytes
        self._rest = bytearray()

    @property
    def pending_bytes(self) -> int:
        """Bytes of an incomplete piece."""
        return len(self._rest)

    def feed(self, data: bytes | memoryview) -> list[Piece]:
        """Add `data` and return the pieces that are complete.  Raises ProtocolError for a head that is not valid."""
        view = memoryview(data)
        pieces: list[Piece] = []
        if self._rest:
            view = view[self._complete(view) :]
            pieces, at = self._cut(memoryview(self._rest))
            if not at:
                return []
            # The returned views keep the old buffer.
            self._rest = bytearray()
        more, at = self._cut(view)
        self._rest += view[at:]
        return pieces + more

    def _complete(self, view: memoryview) -> int:
        """Append to the incomplete piece what it lacks, as far as `view` has it; return how many bytes were used."""
        rest, used = self._rest, 0
        for _ in range(2):  # first the head, then the content whose size the head tells
            wanted = self._head_bytes
            if len(rest) >= wanted:
                wanted += self._content_bytes(rest)
            part = view[used : used + wanted - len(rest)]
            rest += part
            used += len(part)
        return used

    @abstractmethod
    def _content_bytes(self, head: bytearray) -> int:
        """Return the size of the content after a head.  Raises ProtocolError."""

    @abstractmethod
    def _cut(self, view: memoryview) -> tuple[list[Piece], int]:
        """Return the complete pieces at the begin of `view`, and where they end.  Raises ProtocolError."""
