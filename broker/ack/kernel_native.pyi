from collections.abc import Callable
from typing import Any, Final

from broker.ack.ack_frames import AckedPop
from broker.ack.planner import AckPlan
from broker.plan.table import Plan, PlanTable, Refused
from sprocket.remoting.framing import Frames
from sprocket.remoting.header_reader_native import HeaderReader

SOURCES: Final[str]
TEXT: Final[int]
INT: Final[int]
LONG: Final[int]
BOOL: Final[int]
SIZES: Final[tuple[int, int, int]]

class AckKernel(HeaderReader):
    def __init__(
        self,
        code: int,
        fields: tuple[Any, ...],
        encoder: Any,
        plan_of: Callable[[str, str, int, str], AckPlan | Refused | None],
        table: PlanTable[bytes, Plan],
        bounds_of: Callable[[AckPlan, int, int], tuple[int, int] | None],
        tags_code: int,
    ) -> None: ...
    def read(
        self,
        frames: Frames,
        index: int,
        max_acks: int,
        room_bytes: int,
        max_record_bytes: int,
        now_ms: int,
        queue: Any,
        proof: object | None = None,
    ) -> Acks | None: ...

class Acks:
    def __len__(self) -> int: ...
    def pops(self) -> list[AckedPop]: ...
    def encode(
        self, physical_offset: int, store_timestamp: int, store_host: bytes
    ) -> tuple[bytes, list[tuple[Any, bytes]]]: ...
    def responses(self) -> bytes: ...
