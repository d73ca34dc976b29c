from typing import Final

from sprocket.remoting.signatures_native import Proof

SOURCES: Final[str]
SMALL_BYTES: Final[int]

class Connection:
    proofs: dict[int, Proof]
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
    def proof_of(self, code: int) -> Proof | None: ...
