"""Message ids: the position in the store, and the unique key of a message that was sent without one.

Source: RocketMQ 5.3.3, `MessageDecoder.createMessageId`, `decodeMessageId`, `MessageClientIDSetter.createUniqID`.
"""

import ipaddress
import struct
from datetime import UTC, datetime
from functools import lru_cache
from typing import Final

from sprocket.common.clock import Clock

_PORT: Final = struct.Struct(">i")
_OFFSET_BYTES: Final = 8
_IPV4_ID_BYTES: Final = 16
_IPV6_ID_BYTES: Final = 28
_UNIQUE_TAIL: Final = struct.Struct(">IH")


@lru_cache(maxsize=4096)
def host_bytes(host: str, port: int) -> bytes:
    """Return a host as records hold it: address in 4 or 16 bytes, port in 4.  Raises ValueError for a host name."""
    # A link-local address has its interface as a suffix: fe80::1%eth0.
    return ipaddress.ip_address(host.partition("%")[0]).packed + _PORT.pack(port)


def offset_message_id(store_host: bytes, physical_offset: int) -> str:
    """Return the id of the message at `physical_offset` on the broker at `store_host`: 32 or 56 hex digits."""
    return f"{store_host.hex().upper()}{physical_offset:016X}"


def decode_offset_message_id(message_id: str) -> tuple[bytes, int]:
    """Return store host and physical offset of an id.  Raises ValueError."""
    raw = bytes.fromhex(message_id)
    if len(raw) not in (_IPV4_ID_BYTES, _IPV6_ID_BYTES):
        raise ValueError(f"message id {message_id!r}: allowed is an id of 32 or 56 hex digits")
    return raw[:-_OFFSET_BYTES], int.from_bytes(raw[-_OFFSET_BYTES:], "big")


class UniqueKeys:
    """Generator of unique keys for messages that were sent without one.

    A key is, in hex: address, process id u16, instance number u32, ms since the start of the month u32, counter u16.
    """

    def __init__(self, address: bytes, process_id: int, instance: int, clock: Clock) -> None:
        """`address` has 4 or 16 bytes; `instance` distinguishes brokers of one process."""
        prefix = address + (process_id & 0xFFFF).to_bytes(2, "big") + (instance & 0xFFFFFFFF).to_bytes(4, "big")
        self._prefix = prefix.hex().upper()
        self._clock = clock
        self._counter = 0
        self._month_start_ms = self._month_end_ms = 0

    def next(self) -> str:
        """Return a new key."""
        now_ms = self._clock.wall_ms()
        if not self._month_start_ms <= now_ms < self._month_end_ms:
            self._month_start_ms, self._month_end_ms = _month(now_ms)
        self._counter = (self._counter + 1) & 0xFFFF
        tail = _UNIQUE_TAIL.pack(now_ms - self._month_start_ms, self._counter)
        return self._prefix + tail.hex().upper()


def _month(now_ms: int) -> tuple[int, int]:
    """Return the start of the month of `now_ms` and of the next month, ms, UTC."""
    start = datetime.fromtimestamp(now_ms / 1000, UTC).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    year, month = (start.year + 1, 1) if start.month == 12 else (start.year, start.month + 1)
    return round(start.timestamp() * 1000), round(start.replace(year=year, month=month).timestamp() * 1000)
