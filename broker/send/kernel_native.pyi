from collections.abc import Callable, Sequence
from typing import Any, Final

from broker.plan.table import Plan, PlanTable, Refused
from broker.quota.quotas import Quotas
from broker.send.planner import SendPlan
from sprocket.remoting.header_reader_native import HeaderReader

SOURCES: Final[str]
TEXT: Final[int]
INT: Final[int]
LONG: Final[int]
BOOL: Final[int]
SIZES: Final[tuple[int, int]]

class SendKernel:
    def __init__(
        self,
        readers: dict[int, SendReader],
        plan_of: Callable[[str, int], SendPlan | Refused],
        table: PlanTable[bytes, Plan],
        max_sends: int,
    ) -> None: ...
    def configure(
        self,
        suffix: bytes,
        quotas: Quotas | None,
        half_topic: str,
        timer_topic: str,
        broker_name: bytes,
        takes_halves: bool,
        times_of: Callable[[], tuple[int, int, int] | None],
        has_room: Callable[[int], bool],
        waiting_queue: Callable[[str, int], Any],
    ) -> None: ...
    def intake(
        self,
        begin: Callable[[], SendTurn | None],
        store: Callable[[SendTurn], bool],
        store_or_serve: Callable[[SendTurn], None],
        end_later: Callable[[], None],
        host_of: Callable[[str, int], bytes],
        failed: Callable[[Any], None],
        max_messages: int,
        max_bytes: int,
    ) -> SendIntake: ...
    def begin(self, version: int, room_bytes: int, max_record_bytes: int) -> SendTurn: ...

class SendReader(HeaderReader):
    def __init__(self, code: int, fields: tuple[Any, ...], plain_flags: int) -> None: ...

class SendRead:
    code: Final[int]
    channel: Final[Any]
    read_at: Final[float]
    was_later: Final[bool]
    def __len__(self) -> int: ...
    def whole_frames(self) -> list[Any]: ...

class SendTurn:
    reads: Final[list[SendRead]]
    size_bytes: Final[int]
    timed: Final[int]
    version: Final[int]
    def __len__(self) -> int: ...
    def encode(
        self, physical_offset: int, store_timestamp: int, store_host: bytes
    ) -> tuple[bytes, list[tuple[Any, bytes]]]: ...
    def take_batch(
        self,
        topic: str,
        queue: Any,
        sys_flag: int,
        born_timestamp: int,
        reconsume_times: int,
        born_host: bytes,
        content: bytes,
        common: bytes,
        common_tag: bytes | None,
        is_fifo: bool,
        max_messages: int,
        max_properties_bytes: int,
        max_record_bytes: int,
    ) -> bool: ...
    def batch_place(self, host_hex: bytes) -> tuple[int, str]: ...
    def spend(self) -> None: ...
    def wait(self) -> None: ...
    def prepare(self, encoder: Any, timed_encoder: Any) -> None: ...
    def answer(
        self,
        code: int,
        encoder: Any,
        timed_encoder: Any,
        at_once: bool,
        refuse: Callable[[SendRead, Exception], None],
        failed: Callable[[], None],
    ) -> None: ...
    def by_topic(self) -> list[tuple[str, bool, int, int, int]]: ...
    def sizes_of(self, topic: str, is_fifo: bool) -> list[int]: ...
    def delays(self) -> dict[str, list[int]]: ...

class SendIntake:
    def serve(self, code: int, frames: Sequence[Any], index: int, channel: Any, proof: Any = None, /) -> int: ...
    def settle(self) -> None: ...
