from collections.abc import Callable
from typing import Any, Final

SOURCES: Final[str]

class SendHeader:
    def __init__(self, texts: tuple[bytes, ...]) -> None: ...
    def prefix(
        self, opaque: int, sys_flag: int, born_ms: int, flag: int, properties: str, body_bytes: int
    ) -> bytes | None: ...

class Preparer:
    def __init__(self, message_type: type, request_type: type, code: int, max_body_bytes: int) -> None: ...
    def request(self, message: Any, new_id: Callable[[], str]) -> Any: ...
