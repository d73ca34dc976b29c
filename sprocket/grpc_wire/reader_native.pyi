from typing import Any, Final

SOURCES: Final[str]

class Schema:
    def __init__(self, record: type, fields: tuple[tuple[int, str, int, Schema | None, Any], ...]) -> None: ...
    def read(self, data: bytes) -> Any: ...
