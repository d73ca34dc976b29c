from collections.abc import Callable, Sequence
from typing import Any, Final

from broker.plan.table import Plan, PlanTable, Refused
from broker.transaction.planner import EndPlan
from sprocket.remoting.header_reader_native import HeaderReader
from store.moves_native import Moves
from store.queue.kernel_reads import KernelReads

SOURCES: Final[str]
TEXT: Final[int]
INT: Final[int]
LONG: Final[int]
BOOL: Final[int]
QUEUE_ENTRY_BYTES: Final[int]

class EndKernel(HeaderReader):
    def __init__(
        self,
        code: int,
        fields: tuple[Any, ...],
        encoder: Any,
        plan_of: Callable[[int, str, int], EndPlan | Refused],
        table: PlanTable[bytes, Plan],
        reads: KernelReads,
    ) -> None: ...
    def read(
        self,
        frames: Sequence[Any],
        index: int,
        max_ends: int,
        moves: Moves,
        queue: Any,
        log_end: int,
        topic_field: bytes,
        half_offset: int,
        done: set[int],
    ) -> Ends | None: ...

class Ends:
    moves: Final[Moves]
    offsets: Final[list[int]]
    def __len__(self) -> int: ...
    def topics(self) -> list[str]: ...
    def by_topic(self) -> dict[str, list[Any]]: ...
    def waiting(self) -> int: ...
    def responses(self) -> bytes: ...
