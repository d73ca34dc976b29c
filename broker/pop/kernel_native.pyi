from collections.abc import Callable, Sequence
from typing import Any, Final

from sprocket.engine.remoting.header_reader import HeaderReader

SOURCES: Final[str]
TEXT: Final[int]
INT: Final[int]
LONG: Final[int]
BOOL: Final[int]
MAX_CODES: Final[int]
LIMITS: Final[tuple[int, int, int]]
RECORD_HEAD_BYTES: Final[int]
QUEUE_ENTRY_BYTES: Final[int]

class PopLane:
    group: str
    topic: str
    subscriptions: Any
    def __init__(
        self,
        group_config: Any,
        topic_config: Any,
        queues: list[Any],
        codes: list[int] | None,
        kind: bytes,
        form: tuple[tuple[bytes, ...], tuple[bytes, ...]],
        subscriptions: Any,
    ) -> None: ...

class Pops:
    messages: int
    missed: int
    def __init__(
        self,
        limits: tuple[int, int, int, int, int, int],
        queue: Any,
        room_bytes: int,
        max_record_bytes: int,
        now_ms: int,
        slot_ms: int,
        max_delay_ms: int,
        tags_code: int,
    ) -> None: ...
    def __len__(self) -> int: ...
    @property
    def response_bytes(self) -> int: ...
    def frames(self) -> bytes: ...
    def encode(
        self, physical_offset: int, store_timestamp: int, store_host: bytes
    ) -> tuple[bytes, list[tuple[Any, bytes]]]: ...

class PopReader(HeaderReader):
    def __init__(
        self,
        code: int,
        fields: tuple[Any, ...],
        encoder: Any,
        join_bytes: int,
        lane_of: Callable[[str, str, str | None, str | None], PopLane | None],
        group_of: Callable[[str], Any],
        topic_of: Callable[[str], Any],
        queues_of: Callable[[str, range], list[Any]],
        offsets_of: Callable[[str, str, range], list[int]],
        retry_reads_of: Callable[[PopLane, int], int],
        segment_at: Callable[[int], tuple[Any, int, int]],
    ) -> None: ...
    def take(
        self,
        frames: Sequence[Any],
        index: int,
        pops: Pops,
        draw: int,
        is_retry_first: bool,
        revive_queue_id: int,
    ) -> tuple[PopLane, int, int, int, int, list[tuple[int, int, int]]] | None: ...
