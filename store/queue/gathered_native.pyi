from typing import Final

from typing_extensions import Buffer

SOURCES: Final[str]
UNIT_BYTES: Final[int]

def gathered(
    entries: Buffer,
    position: int,
    count: int,
    segment: memoryview,
    base: int,
    end: int,
    max_bytes: int,
    join_bytes: int,
) -> tuple[int, int, list[memoryview]] | None: ...
