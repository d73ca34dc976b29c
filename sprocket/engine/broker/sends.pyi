from collections.abc import Callable, Sequence
from typing import Any, Final

from sprocket.engine.remoting.header_reader import HeaderReader
from sprocket.engine.remoting.signatures import Proof

SOURCES: Final[str]
TEXT: Final[int]
INT: Final[int]
LONG: Final[int]
BOOL: Final[int]
RECORD_HEAD_BYTES: Final[int]
QUEUE_ENTRY_BYTES: Final[int]

class SendKinds:
    def __init__(
        self,
        half_topic: str,
        timer_topic: str,
        broker_name: bytes,
        takes_halves: bool,
        times_of: Callable[[], tuple[int, int, int] | None],
        has_room: Callable[[int], bool],
    ) -> None: ...

class SendReader(HeaderReader):
    def __init__(
        self, code: int, fields: tuple[Any, ...], usual_flags: int, suffix: bytes, kinds: SendKinds
    ) -> None: ...
    def read(
        self,
        frames: Sequence[Any],
        index: int,
        max_sends: int,
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
    def responses(self, encoder: Any, timed_encoder: Any) -> bytes: ...

class SendGroup:
    messages: Final[int]
    timed: Final[int]
    size_bytes: Final[int]
    def __len__(self) -> int: ...
    def add(self, sends: Sends) -> None: ...
    def queues(self) -> list[Any]: ...
    def encode(
        self, physical_offset: int, store_timestamp: int, store_host: bytes
    ) -> tuple[bytes, list[tuple[Any, bytes]]]: ...
    def by_topic(self) -> list[tuple[str, bool, int, int, int]]: ...
    def sizes_of(self, topic: str, is_fifo: bool) -> list[int]: ...
    def delays(self) -> dict[str, list[int]]: ...
