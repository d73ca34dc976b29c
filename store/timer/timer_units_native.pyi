from collections.abc import Callable
from typing import Any, Final

SOURCES: Final[str]
UNIT_BYTES: Final[int]

class UnitWriter:
    def __init__(
        self,
        topic_field: bytes,
        now_slot: int,
        slot_ms: int,
        window_ms: int,
        position: int,
        file_bytes: int,
        slot_of: Callable[[int], tuple[int, int, int] | None],
        hash_of: Callable[[bytes], int | None],
    ) -> None: ...
    def enter(self, entries: Any, segment: memoryview, base: int, end: int) -> bytes: ...
    def slots_entered(self) -> list[tuple[int, int, int, int]]: ...
    def topics_entered(self) -> list[tuple[bytes, int]]: ...

def chained(
    file: memoryview, base: int, end: int, position: int, stop: int, max_units: int
) -> tuple[list[int], int]: ...
