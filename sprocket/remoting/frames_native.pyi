from collections.abc import Sequence
from typing import Any, Final

from sprocket.remoting.signatures_native import SigningKey

SOURCES: Final[str]
TEXT: Final[int]
INT: Final[int]
LONG: Final[int]
BOOL: Final[int]
BYTES: Final[int]
DECIMAL: Final[int]
HEX: Final[int]

class HeaderDecoder:
    def __init__(
        self, request_type: type, header_type: type, code: int, fields: tuple[Any, ...], languages: tuple[str, ...]
    ) -> None: ...
    def request(self, serialization: int, header: bytes, body: bytes, channel: Any) -> Any: ...
    def signed_request(self, serialization: int, header: bytes, body: bytes, channel: Any, key: SigningKey) -> Any: ...
    def run(self, frames: Sequence[Any], at: int, serialization: int, channel: Any, run: list[Any]) -> int: ...

class ResponseEncoder:
    def __init__(
        self,
        values: tuple[tuple[bytes, bytes, bytes, int], ...],
        json_opaque: bytes,
        json_end: bytes,
        binary_begin: bytes,
        binary_middle: bytes,
        binary_end: bytes,
    ) -> None: ...
    def frame(
        self, serialization: int, opaque: int, values: tuple[bytes | int, ...], body_bytes: int
    ) -> bytes | None: ...
