from typing import Final

SOURCES: Final[str]
SMALL_BYTES: Final[int]

class Connection:
    def data_received(self, data: bytes) -> None: ...
    def answer_frames(
        self,
        request_code: int,
        count: int,
        frames: bytes,
        code: int,
        read_at: float,
        *,
        was_later: bool,
        at_once: bool = False,
    ) -> None: ...
