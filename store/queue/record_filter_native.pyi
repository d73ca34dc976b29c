from collections.abc import Callable
from typing import Any, Final

SOURCES: Final[str]
MAX_NAMES: Final[int]
UNIT_BYTES: Final[int]
BLOCK_ENTRIES: Final[int]

class ValueBlock:
    revision: Final[int]
    def __init__(self, revision: int) -> None: ...

class ValueChooser:
    names: Final[tuple[bytes, ...]]
    def __init__(self, names: tuple[bytes, ...], decide: Callable[[memoryview], bool]) -> None: ...
    def choose(
        self, entries: Any, segment: memoryview, base: int, end: int, limit: int, block: ValueBlock, at: int
    ) -> tuple[list[int], int]: ...
