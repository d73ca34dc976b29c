from collections.abc import Callable
from typing import Any, Final

from sprocket.engine.header_reader import HeaderReader
from sprocket.engine.signatures import Proof

SOURCES: Final[str]
TEXT: Final[int]
INT: Final[int]
LONG: Final[int]
BOOL: Final[int]
RECORD_HEAD_BYTES: Final[int]
QUEUE_ENTRY_BYTES: Final[int]

class SendReader(HeaderReader):
    def __init__(self, code: int, fields: tuple[Any, ...], usual_flags: int, suffix: bytes) -> None: ...
    def read(
        self,
        frames: list[Any],
        least: int,
        room_bytes: int,
        max_record_bytes: int,
        born_host: bytes,
        topic_of: Callable[[str], tuple[str, int, int] | None],
        queue_of: Callable[[str, int], Any],
        proof: Proof | None = None,
    ) -> Sends | None: ...

class Sends:
    def __len__(self) -> int: ...
    def responses(self, encoder: Any) -> bytes: ...

class SendGroup:
    messages: Final[int]
    size_bytes: Final[int]
    def __len__(self) -> int: ...
    def add(self, sends: Sends) -> None: ...
    def queues(self) -> list[Any]: ...
    def encode(
        self, physical_offset: int, store_timestamp: int, store_host: bytes
    ) -> tuple[bytes, list[tuple[Any, bytes]]]: ...
    def by_topic(self) -> list[tuple[str, int, int, int]]: ...
    def sizes_of(self, topic: str) -> list[int]: ...
