"""Filler records, which replace damage, or what is not archived: readers step over them, and no queue has them.

A filler is a message of a rolled back transaction: neither RocketMQ nor Sprocket makes a ConsumeQueue entry or an
index entry for it, and nothing looks for it.  Its body says what it is.
Source: RocketMQ 5.3.3, `CommitLog.checkMessageAndReturnSize`, `CommitLogDispatcherBuildConsumeQueue`,
`IndexService.buildIndex`.
"""

from typing import Final

from sprocket.remoting.message.record import (
    BLANK_MIN_BYTES,
    FIXED_IPV4_RAW,
    MAGIC_V1,
    MIN_RECORD_BYTES,
    SysFlag,
)
from store.record.checksum import SEAL_BYTES, masked_crc, seal
from store.record.record import blank

FILLER_TOPIC: Final = b"SPROCKET_REPAIR_FILLER"
_TEXT: Final = b"This record stands in the place of damaged bytes; sprocket store repair keeps those aside. "
_ROLLED_BACK: Final = int(SysFlag.TRANSACTION_ROLLBACK)
_HOST: Final = bytes((127, 0, 0, 1)) + (0).to_bytes(4, "big")
# Size limit of a filler: no reader of the log needs room for more than the largest message of a broker.
MAX_FILLER_BYTES: Final = 4 * 1024 * 1024


def filler_sizes(size_bytes: int) -> list[int]:
    """Return sizes of the records that fill `size_bytes` bytes, at least the size of the smallest record."""
    if size_bytes < MIN_RECORD_BYTES:
        raise ValueError(f"{size_bytes} bytes are too few for a record")
    sizes = []
    while size_bytes > MAX_FILLER_BYTES:
        take = min(MAX_FILLER_BYTES, size_bytes - MIN_RECORD_BYTES)
        sizes.append(take)
        size_bytes -= take
    return [*sizes, size_bytes]


def filler(physical_offset: int, size_bytes: int, timestamp_ms: int, text: bytes = _TEXT) -> bytes:
    """Return one record of exactly `size_bytes` bytes for `physical_offset`, with its own CRC if that fits.

    Its body repeats `text`, which says why the record is there.
    """
    is_sealed = size_bytes >= MIN_RECORD_BYTES + SEAL_BYTES
    room = size_bytes - MIN_RECORD_BYTES - (SEAL_BYTES if is_sealed else 0)
    topic = FILLER_TOPIC if room >= len(FILLER_TOPIC) else b""
    body_bytes = room - len(topic)
    body = (text * (body_bytes // len(text) + 1))[:body_bytes]
    head = FIXED_IPV4_RAW.pack(
        size_bytes, MAGIC_V1, masked_crc(body), 0, 0, 0, physical_offset, _ROLLED_BACK, timestamp_ms, _HOST,
        timestamp_ms, _HOST, 0, 0, body_bytes,
    )  # fmt: skip
    properties_bytes = SEAL_BYTES if is_sealed else 0
    record = b"".join((head, body, bytes([len(topic)]), topic, properties_bytes.to_bytes(2, "big")))
    return record + seal(masked_crc(record)) if is_sealed else record


def fillers(physical_offset: int, size_bytes: int, timestamp_ms: int) -> list[tuple[int, bytes]]:
    """Return (physical offset, record) of the fillers for a gap."""
    found = []
    for size in filler_sizes(size_bytes):
        found.append((physical_offset, filler(physical_offset, size, timestamp_ms)))
        physical_offset += size
    return found


def closing_blank(size_bytes: int) -> bytes:
    """Return the first bytes of a blank up to the segment's end; empty if there is no room for one."""
    return blank(size_bytes) if size_bytes >= BLANK_MIN_BYTES else b""
