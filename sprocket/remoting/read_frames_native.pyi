from collections.abc import Sequence
from typing import Final, overload

_Frame = tuple[int, bytes, bytes]

SOURCES: Final[str]

class ReadFrames(Sequence[_Frame]):
    end: Final[int]
    def __len__(self) -> int: ...
    @overload
    def __getitem__(self, index: int) -> _Frame: ...
    @overload
    def __getitem__(self, index: slice) -> list[_Frame]: ...

def cut(data: bytes, max_frame_bytes: int, max_header_bytes: int) -> ReadFrames: ...
def start_of(frames: Sequence[_Frame], index: int) -> tuple[int, bytes]: ...
