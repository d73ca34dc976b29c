"""Search for the next record after damage."""

import re
import struct
from collections.abc import Iterator
from typing import Final

from sprocket.remoting.message.record import MAGIC_AT, MAGIC_BLANK, MAGIC_V1, MAGIC_V2, PHYSICAL_OFFSET_AT
from store.scan.heads import Buffer

_PHYSICAL_OFFSET: Final = struct.Struct(">q")
_NUMBERS: Final = [struct.pack(">i", magic) for magic in (MAGIC_V1, MAGIC_V2)]
_MAGIC_BYTES: Final = 4
# One search for the bytes that both have is several times as fast as one for either number.
_COMMON: Final = _NUMBERS[0][:-1]
assert all(number.startswith(_COMMON) for number in _NUMBERS)
_MAGIC: Final = re.compile(re.escape(_COMMON) + b"[" + b"".join(re.escape(number[-1:]) for number in _NUMBERS) + b"]")
_BLANK_MAGIC: Final = re.compile(re.escape(struct.pack(">i", MAGIC_BLANK)))


def record_starts(data: Buffer, base: int, begin: int, end: int) -> Iterator[int]:
    """Yield the positions in [`begin`, `end`) that have the magic number and the own physical offset of a record.

    `base` is the physical offset of byte 0.  Bytes of a body may imitate a record: the caller checks each.
    """
    last = len(data) - PHYSICAL_OFFSET_AT - _PHYSICAL_OFFSET.size
    for match in _MAGIC.finditer(data, begin + MAGIC_AT, min(end - 1, last) + MAGIC_AT + _MAGIC_BYTES):
        at = match.start() - MAGIC_AT
        if _PHYSICAL_OFFSET.unpack_from(data, at + PHYSICAL_OFFSET_AT)[0] == base + at:
            yield at


def blank_starts(data: Buffer, begin: int, end: int) -> Iterator[int]:
    """Yield the positions in [`begin`, `end`) that have the magic number of a blank."""
    for match in _BLANK_MAGIC.finditer(data, begin + MAGIC_AT, end - 1 + MAGIC_AT + _MAGIC_BYTES):
        yield match.start() - MAGIC_AT
