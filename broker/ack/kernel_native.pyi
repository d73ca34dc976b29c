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
MAX_COMMON_CHARS: Final[int]

class AckKind:
    topic: str
    group: str
    queue_id: int
    broker_name: str
    def __init__(
        self,
        topic: str,
        group: str,
        queue_id: int,
        broker_name: str,
        topic_config: Any,
        pattern: tuple[bytes, tuple[bytes, ...], bytes, tuple[bytes, ...]],
    ) -> None: ...

class AckReader(HeaderReader):
    def __init__(
        self,
        code: int,
        fields: tuple[Any, ...],
        kind_of: Callable[[str, str, int, str], AckKind | None],
        topic_of: Callable[[str], Any],
        bounds_of: Callable[[AckKind, int, int], tuple[int, int] | None],
    ) -> None: ...
    def read(
        self,
        frames: Sequence[Any],
        index: int,
        max_acks: int,
        room_bytes: int,
        max_record_bytes: int,
        now_ms: int,
        slot_ms: int,
        max_delay_ms: int,
        queue: Any,
        tags_code: int,
    ) -> Acks | None: ...

class Acks:
    def __len__(self) -> int: ...
    def lanes_served(self) -> list[tuple[str, str, int, int, int]]: ...
    def encode(
        self, physical_offset: int, store_timestamp: int, store_host: bytes
    ) -> tuple[bytes, list[tuple[Any, bytes]]]: ...
    def responses(self, encoder: Any) -> bytes: ...
