from collections.abc import Callable, Sequence
from typing import Any, Final

from sprocket.remoting.header_reader_native import HeaderReader
from store.moves_native import Moves

SOURCES: Final[str]
TEXT: Final[int]
INT: Final[int]
LONG: Final[int]
BOOL: Final[int]
QUEUE_ENTRY_BYTES: Final[int]

class HalfRecords:
    def __init__(
        self, queue: Any, segment_at: Callable[[int], tuple[memoryview, int, int]], cold_end: int, log_end: int
    ) -> None: ...

class EndReader(HeaderReader):
    def __init__(self, code: int, fields: tuple[Any, ...]) -> None: ...
    def read(
        self,
        frames: Sequence[Any],
        index: int,
        max_ends: int,
        moves: Moves,
        records: HalfRecords,
        topic_field: bytes,
        half_offset: int,
        done: set[int],
    ) -> Ends | None: ...

class Ends:
    moves: Final[Moves]
    offsets: Final[list[int]]
    def __len__(self) -> int: ...
    def topics(self) -> list[str]: ...
    def by_topic(self) -> dict[str, list[Any]]: ...
    def waiting(self) -> int: ...
    def responses(self, encoder: Any) -> bytes: ...
