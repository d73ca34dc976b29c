from collections.abc import Callable
from typing import Any, Final

from broker.plan.table import Plan, PlanTable, Refused
from broker.pop.planner import PopPlan
from broker.pop.pop_frames import Note
from sprocket.remoting.framing import Frames
from sprocket.remoting.header_reader_native import HeaderReader
from store.queue.kernel_reads import KernelReads
from store.queue.logic_queue import LogicQueue

SOURCES: Final[str]
TEXT: Final[int]
INT: Final[int]
LONG: Final[int]
BOOL: Final[int]
LIMITS: Final[tuple[int, int, int, int]]
SIZES: Final[tuple[int, int]]

class Pops:
    @property
    def messages(self) -> int: ...
    @property
    def missed(self) -> int: ...
    def __len__(self) -> int: ...
    @property
    def response_bytes(self) -> int: ...
    def frames(self) -> bytes: ...
    def encode(
        self, physical_offset: int, store_timestamp: int, store_host: bytes
    ) -> tuple[bytes, list[tuple[Any, bytes]]]: ...

class PopKernel(HeaderReader):
    def __init__(
        self,
        code: int,
        fields: tuple[Any, ...],
        encoder: Any,
        join_bytes: int,
        plan_of: Callable[[str, str, int, bool, str | None, str | None], PopPlan | Refused],
        table: PlanTable[bytes, Plan],
        offsets_of: Callable[[str, str, range], list[int]],
        retry_reads_of: Callable[[PopPlan, int], int],
        reads: KernelReads,
        tags_code: int,
    ) -> None: ...
    def begin(self, queue: LogicQueue, room_bytes: int, max_record_bytes: int, now_ms: int) -> Pops: ...
    def take(
        self,
        frames: Frames,
        index: int,
        pops: Pops,
        draw: int,
        revive_queue_id: int,
        proof: object | None = None,
    ) -> Note | None: ...
