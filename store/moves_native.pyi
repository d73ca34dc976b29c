from collections.abc import Callable
from typing import Any, Final

SOURCES: Final[str]

class Moves:
    size_bytes: Final[int]
    def __init__(
        self, plain_flags: int, room_bytes: int, max_record_bytes: int, queue_of: Callable[[str, int], Any]
    ) -> None: ...
    def __len__(self) -> int: ...
    def add_units(
        self,
        file: memoryview,
        file_base: int,
        file_end: int,
        positions: Any,
        taken: int,
        max_moves: int,
        max_bytes: int,
        segment: memoryview,
        base: int,
        end: int,
        topic_field: bytes,
        slot_ms: int,
        width_ms: int,
        now_ms: int,
    ) -> tuple[int, int, list[tuple[str, int]]]: ...
    def add_made(
        self, queue: Any, body: bytes, properties: bytes, tags_code: int, born_timestamp: int, born_host: bytes
    ) -> bool: ...
    def encode(
        self, physical_offset: int, store_timestamp: int, store_host: bytes
    ) -> tuple[bytes, list[tuple[Any, bytes]]]: ...
