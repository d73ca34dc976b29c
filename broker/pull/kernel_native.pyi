from collections.abc import Callable
from typing import Any, Final

from broker.plan.table import Plan, PlanTable, Refused
from broker.pull.planner import PullPlan
from broker.pull.pull_frames import Note
from sprocket.remoting.framing import Frames
from sprocket.remoting.header_reader_native import HeaderReader
from store.queue.kernel_reads import KernelReads

SOURCES: Final[str]
TEXT: Final[int]
INT: Final[int]
LONG: Final[int]
BOOL: Final[int]
MAX_CODES: Final[int]

class PullKernel(HeaderReader):
    def __init__(
        self,
        code: int,
        fields: tuple[Any, ...],
        encoder: Any,
        plan_of: Callable[[int, str, str, int, bool, str | None, str | None, int, bool], PullPlan | Refused],
        table: PlanTable[bytes, Plan],
        reads: KernelReads,
        max_response_bytes: int,
        max_read_bytes: int,
    ) -> None: ...
    def read(self, frames: Frames, index: int, proof: object | None = None) -> tuple[bytes, list[Note]]: ...
