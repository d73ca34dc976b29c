from collections.abc import Callable
from typing import Any, Final

SOURCES: Final[str]
MAX_RECORDS: Final[int]

def take(
    segment: memoryview,
    base: int,
    room_bytes: int,
    unusual_flags: int,
    *,
    require_seal: bool,
    queue_of: Callable[[bytes, int], Any],
) -> tuple[int, int, list[tuple[Any, bytes]]]: ...
