from collections.abc import Callable, Sequence
from typing import Any, Final

from sprocket.engine.remoting.header_reader import HeaderReader
from sprocket.engine.remoting.signatures import Proof

SOURCES: Final[str]
TEXT: Final[int]
INT: Final[int]
LONG: Final[int]
BOOL: Final[int]
MAX_CODES: Final[int]

class PullLane:
    group: Final[str]
    topic: Final[str]
    queue_id: Final[int]
    def __init__(
        self,
        group_config: Any,
        topic_config: Any,
        queue_id: int,
        queue: Any,
        subscription: Any,
        codes: list[int] | None,
        broker_id: int,
    ) -> None: ...

class PullReader(HeaderReader):
    def __init__(
        self,
        code: int,
        fields: tuple[Any, ...],
        encoder: Any,
        lane_of: Callable[[str, str, int, str | None, str | None, bool], PullLane | None],
        group_of: Callable[[str], Any],
        topic_of: Callable[[str], Any],
        connected_of: Callable[[str], Any],
        forbidden_of: Callable[[str, str], int],
        queue_of: Callable[[str, int], Any],
        segment_at: Callable[[int], tuple[memoryview, int, int]],
    ) -> None: ...
    def read(
        self,
        frames: Sequence[Any],
        index: int,
        limits: tuple[int, int, int, int, int, int],
        join_bytes: int,
        read_bytes: int,
        proof: Proof | None = None,
    ) -> tuple[bytes, list[tuple[PullLane, int, int | None, int, int]]]: ...
