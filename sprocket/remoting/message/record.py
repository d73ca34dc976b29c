"""Layout of the message record, in the CommitLog and in the body of a PULL response.

Source: RocketMQ 5.3.3, `MessageDecoder.decode`, `MessageExtEncoder`, `MessageSysFlag`, `MessageVersion`.
All integers are big-endian.  A record is, in order::

    total_size         i32   bytes of the whole record, this field included
    magic              i32   MAGIC_V1 (topic length is 1 byte) or MAGIC_V2 (topic length is 2 bytes)
    body_crc           i32   CRC-32 of the body with the top bit cleared
    queue_id           i32
    flag               i32   set by the application
    queue_offset       i64   index in the ConsumeQueue
    physical_offset    i64   position of total_size in the log
    sys_flag           i32   SysFlag bits
    born_timestamp     i64   ms, producer's clock
    born_host          4 or 16 bytes address (SysFlag.BORN_HOST_V6), then i32 port
    store_timestamp    i64   ms, broker's clock
    store_host         4 or 16 bytes address (SysFlag.STORE_HOST_V6), then i32 port
    reconsume_times    i32
    prepared_transaction_offset i64
    body_length        i32, then the body
    topic_length       u8 (V1) or i16 (V2), then the topic, UTF-8
    properties_length  i16, then name 0x01 value 0x02 ..., UTF-8

It is declared here because the client decodes it too.
"""

import struct
from enum import IntFlag
from typing import Final

MAGIC_V1: Final = -626843481
MAGIC_V2: Final = -626843477
# A blank fills the end of a segment: total_size and this magic number; the rest is undefined.
MAGIC_BLANK: Final = -875286124
BLANK_MIN_BYTES: Final = 8

CRC_MASK: Final = 0x7FFFFFFF


class SysFlag(IntFlag):
    """Bits of `sys_flag`."""

    COMPRESSED = 0x1
    MULTI_TAGS = 0x2
    TRANSACTION_PREPARED = 0x4
    TRANSACTION_COMMIT = 0x8
    TRANSACTION_ROLLBACK = 0xC  # also the mask of the three transaction states
    BORN_HOST_V6 = 0x10
    STORE_HOST_V6 = 0x20
    NEED_UNWRAP = 0x40
    INNER_BATCH = 0x80
    COMPRESSION_LZ4 = 0x100
    COMPRESSION_ZSTD = 0x200
    COMPRESSION_ZLIB = 0x300  # also, with 0x400, the mask; COMPRESSED without a type means zlib


COMPRESSION_MASK: Final = 0x700
# As plain integers: an operator of an IntFlag costs microseconds.
BORN_V6: Final = int(SysFlag.BORN_HOST_V6)
STORE_V6: Final = int(SysFlag.STORE_HOST_V6)
ANY_V6: Final = BORN_V6 | STORE_V6

# Address and port.
IPV4_HOST_BYTES: Final = 8
IPV6_HOST_BYTES: Final = 20
V6_GROWTH_BYTES: Final = IPV6_HOST_BYTES - IPV4_HOST_BYTES

# The fields before the body if both hosts are IPv4, with their codes in `struct`: the only declaration in Python.
FIXED_FIELDS: Final = (
    ("total_size", "i"), ("magic", "i"), ("body_crc", "i"), ("queue_id", "i"), ("flag", "i"),
    ("queue_offset", "q"), ("physical_offset", "q"), ("sys_flag", "i"), ("born_timestamp", "q"),
    ("born_host", f"{IPV4_HOST_BYTES}s"), ("store_timestamp", "q"), ("store_host", f"{IPV4_HOST_BYTES}s"),
    ("reconsume_times", "i"), ("prepared_transaction_offset", "q"), ("body_length", "i"),
)  # fmt: skip
_NAMES: Final = [name for name, _ in FIXED_FIELDS]
_CODES: Final = [code for _, code in FIXED_FIELDS]
_BORN_HOST, _STORE_HOST = _NAMES.index("born_host"), _NAMES.index("store_host")


def position_of(field: str) -> int:
    """Return the byte of a record at which a fixed field begins; after a host, if that is IPv4."""
    return struct.calcsize(">" + "".join(_CODES[: _NAMES.index(field)]))


def struct_of(*fields: str) -> struct.Struct:
    """Return a struct that reads some of the fixed fields, in their order, and ends with the last of them."""
    last = max(map(_NAMES.index, fields))
    codes = (code if name in fields else f"{struct.calcsize('>' + code)}x" for name, code in FIXED_FIELDS[: last + 1])
    return struct.Struct(">" + "".join(codes))


# The fields before the born host, then those between the hosts, then those after them.
HEAD: Final = struct.Struct(">" + "".join(_CODES[:_BORN_HOST]))
STORE_TIMESTAMP: Final = struct.Struct(">q")
TAIL: Final = struct.Struct(">" + "".join(_CODES[_STORE_HOST + 1 :]))
# The first fields of a record, and of a blank.
SIZE_AND_MAGIC: Final = struct_of("total_size", "magic")
# With two IPv4 hosts, everything before the body is one struct: each host 8 bytes, which need no unpacking.
FIXED_IPV4_RAW: Final = struct.Struct(">" + "".join(_CODES))
# The same with address and port of each host.
FIXED_IPV4: Final = struct.Struct(">" + "".join(_CODES).replace("8s", "4si"))
assert FIXED_IPV4.size == FIXED_IPV4_RAW.size == 88
# Positions of fields; that of the body's length if both hosts are IPv4.
MAGIC_AT: Final = position_of("magic")
BODY_CRC_AT: Final = position_of("body_crc")
QUEUE_ID_AT: Final = position_of("queue_id")
PHYSICAL_OFFSET_AT: Final = position_of("physical_offset")
SYS_FLAG_AT: Final = position_of("sys_flag")
BODY_LENGTH_AT: Final = position_of("body_length")


def record_size(sys_flag: int, body_bytes: int, topic_bytes: int, properties_bytes: int, version: int = 1) -> int:
    """Return the bytes of a whole record (`MessageExtEncoder.calMsgLength`)."""
    growth = V6_GROWTH_BYTES * (bool(sys_flag & BORN_V6) + bool(sys_flag & STORE_V6))
    return FIXED_IPV4.size + growth + body_bytes + version + topic_bytes + 2 + properties_bytes


def prepared_offset_at(sys_flag: int) -> int:
    """Return the position of `prepared_transaction_offset` in a record."""
    return BODY_LENGTH_AT - 8 + V6_GROWTH_BYTES * (bool(sys_flag & BORN_V6) + bool(sys_flag & STORE_V6))


# 91: IPv4 hosts, no body, no topic, no properties.
MIN_RECORD_BYTES: Final = record_size(0, 0, 0, 0)
# 90: the same without the length of the topic, which has 1 or 2 bytes.
RECORD_BASE_BYTES: Final = MIN_RECORD_BYTES - 1
