from collections.abc import Callable, Sequence
from typing import Any, Final

from sprocket.engine.remoting.header_reader import HeaderReader

SOURCES: Final[str]
TEXT: Final[int]
INT: Final[int]
LONG: Final[int]
BOOL: Final[int]
RECORD_HEAD_BYTES: Final[int]
QUEUE_ENTRY_BYTES: Final[int]

class AckReader(HeaderReader):
    def __init__(self, code: int, fields: tuple[Any, ...]) -> None: ...
    def read(
        self,
        frames: Sequence[Any],
        index: int,
        max_acks: int,
        room_bytes: int,
        max_record_bytes: int,
        born_timestamp: int,
        queue: Any,
        tags_code: int,
        lane_of: Callable[[str, str, int, str], tuple[Any, int, int, tuple[bytes, bytes, bytes, bytes]] | None],
    ) -> Acks | None: ...

class Acks:
    def __len__(self) -> int: ...
    def lanes_served(self) -> list[tuple[Any, int]]: ...
    def encode(
        self, physical_offset: int, store_timestamp: int, store_host: bytes
    ) -> tuple[bytes, list[tuple[Any, bytes]]]: ...
    def responses(self, encoder: Any) -> bytes: ...
