"""A message record, written the plain way, for the sink and the naive control."""

import struct
import time
import zlib

from sprocket.remoting.message.record import CRC_MASK, FIXED_IPV4, MAGIC_V1

LOOPBACK = bytes([127, 0, 0, 1])
_SHORT = struct.Struct(">h")


def message_record(
    body: bytes, *, topic: bytes = b"T", queue_id: int = 0, queue_offset: int = 0, at: int = 0, properties: bytes = b""
) -> bytes:
    """One record of RocketMQ's CommitLog that lies at byte `at`; see `sprocket.remoting.message.record`."""
    size = FIXED_IPV4.size + len(body) + 1 + len(topic) + 2 + len(properties)
    now = int(time.time() * 1000)
    crc = zlib.crc32(body) & CRC_MASK
    head = FIXED_IPV4.pack(
        size, MAGIC_V1, crc, queue_id, 0, queue_offset, at, 0, now, LOOPBACK, 0, now, LOOPBACK, 0, 0, 0, len(body)
    )
    return b"".join((head, body, bytes((len(topic),)), topic, _SHORT.pack(len(properties)), properties))
