"""Chooses records by their properties, which a ConsumeQueue does not hold.

Source: RocketMQ 5.3.3, `MessageFilter.isMatchedByCommitLog`, `MessageDecoder.decodeProperties`.
"""

import struct
from collections.abc import Callable
from typing import Final

from remoting.message_record import FIXED_IPV4, MAGIC_V2, SysFlag

# Of a record with two IPv4 hosts: magic, sys_flag and the length of the body.
_BEFORE_BODY: Final = struct.Struct(">4xi28xi44xi")
_LENGTH: Final = struct.Struct(">i")
_SHORT_LENGTH: Final = struct.Struct(">h")
assert _BEFORE_BODY.size == FIXED_IPV4.size
_IPV6_MORE_BYTES: Final = 12
_HOSTS_V6: Final = int(SysFlag.BORN_HOST_V6 | SysFlag.STORE_HOST_V6)
_BORN_HOST_V6: Final = int(SysFlag.BORN_HOST_V6)
_STORE_HOST_V6: Final = int(SysFlag.STORE_HOST_V6)
# One read takes no more than this many operations, so that nobody else waits for long.
_MOST_OPERATIONS: Final = 16_000


class RecordFilter:
    """Wants the records whose encoded properties `matches`, which takes about `operations` comparisons for each."""

    __slots__ = ("_matches", "most_records")

    def __init__(self, matches: Callable[[bytes], bool], operations: int = 1) -> None:
        self._matches = matches
        self.most_records = max(1, _MOST_OPERATIONS // max(1, operations))

    def __call__(self, record: memoryview) -> bool:
        """Whether a whole record is wanted.

        One in which no properties can be found is: whoever reads it finds the damage.
        """
        properties = properties_of(record)
        return properties is None or self._matches(properties)


def properties_of(record: memoryview) -> bytes | None:
    """The encoded properties of a record, of which nothing else is checked; None if it is damaged."""
    try:
        magic, sys_flag, body_bytes = _BEFORE_BODY.unpack_from(record)
        at = _BEFORE_BODY.size
        if sys_flag & _HOSTS_V6:
            at += _IPV6_MORE_BYTES * (bool(sys_flag & _BORN_HOST_V6) + bool(sys_flag & _STORE_HOST_V6))
            body_bytes = _LENGTH.unpack_from(record, at - _LENGTH.size)[0]
        at += body_bytes
        if body_bytes < 0:
            return None
        at += 2 + _SHORT_LENGTH.unpack_from(record, at)[0] if magic == MAGIC_V2 else 1 + record[at]
        end = at + 2 + _SHORT_LENGTH.unpack_from(record, at)[0]
    except (struct.error, IndexError):
        return None
    return bytes(record[at + 2 : end]) if at + 2 <= end <= len(record) else None
