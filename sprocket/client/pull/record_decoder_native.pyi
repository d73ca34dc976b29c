from typing import Any, Final

SOURCES: Final[str]
LAYOUT: Final[dict[str, int]]

class RecordDecoder:
    def __init__(self, message_type: type) -> None: ...
    def run(self, data: bytes, at: int, queue: Any, topic: str, offset_delta: int, messages: list[Any]) -> int: ...
