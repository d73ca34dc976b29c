from collections.abc import Callable
from typing import Any, Final

SOURCES: Final[str]
NONE: Final[int]
UNUSUAL: Final[int]
MESSAGE_ID: Final[int]
TAG: Final[int]
KEYS: Final[int]
BORN_HOST: Final[int]
TRACE: Final[int]
GROUP: Final[int]

class MessageWriter:
    def __init__(
        self,
        tags: dict[str, bytes],
        roles: dict[str, int],
        hidden: frozenset[str],
        md5: Callable[..., Any],
        hosts: tuple[Callable[[tuple[str, int]], bytes], Callable[[tuple[str, int]], bytes]],
        compressed: int,
    ) -> None: ...
    def write(self, message: Any, topic: bytes, handle: str | None) -> bytes | None: ...
