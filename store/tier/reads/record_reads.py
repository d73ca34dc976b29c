"""Reads of single records from the archive, in steps: by physical offset, and by key."""

from typing import Final

from sprocket.remoting.message.record import MAGIC_V1, MAGIC_V2, MIN_RECORD_BYTES
from store.index.key_scan import index_hash
from store.record.record import Record, decode
from store.repair.filler import FILLER_TOPIC
from store.tier.manifest import Manifest
from store.tier.reads.steps import Steps, content_of, footer_of
from store.tier.segment_object import all_keys, keys_in

_MAGICS: Final = (MAGIC_V1, MAGIC_V2)


def record_at(manifest: Manifest, physical_offset: int, now_ms: int) -> Steps[memoryview | None]:
    """Return the record that begins at `physical_offset`; None if none does, or its time in the archive has ended."""
    segment = manifest.segment_of(physical_offset)
    if segment is None:
        return None
    footer = yield from footer_of(segment)
    block = footer.block_of(physical_offset)
    if block is None:
        return None
    content = memoryview((yield from content_of(segment, block)))[physical_offset - block.start :]
    size, magic = int.from_bytes(content[:4], "big", signed=True), int.from_bytes(content[4:8], "big", signed=True)
    if not MIN_RECORD_BYTES <= size <= len(content) or magic not in _MAGICS:
        return None
    record = decode(content[:size])
    if not isinstance(record, Record) or record.physical_offset != physical_offset:
        return None
    if record.topic == FILLER_TOPIC.decode() or not manifest.is_readable(segment, record.topic, now_ms):
        return None
    return content[:size]


def offsets_of_key(
    manifest: Manifest, topic: str, key: str, begin_ms: int, end_ms: int, before: int, max_messages: int, now_ms: int
) -> Steps[list[int]]:
    """Return the physical offsets of up to `max_messages` records that may have a key, newest first.

    Only records before the physical offset `before` count, stored from `begin_ms` to `end_ms`.
    """
    found: list[int] = []
    key_hash = index_hash(topic, key)
    for segment in reversed(manifest.segments):
        is_in_time = segment.first_store_ms <= end_ms and begin_ms <= segment.last_store_ms
        if segment.start >= before or not is_in_time or topic not in segment.topics:
            continue
        if not manifest.is_readable(segment, topic, now_ms):
            continue
        footer = yield from footer_of(segment)
        offsets: list[int] = []
        for keys in footer.key_blocks_of(key_hash):
            content = yield from content_of(segment, keys.block)
            entries = keys_in(all_keys(content), key_hash)
            times = entries["store_timestamp"]
            offsets += entries["physical_offset"][(times >= begin_ms) & (times <= end_ms)].tolist()
        found += sorted((offset for offset in offsets if offset < before), reverse=True)
        if len(found) >= max_messages:
            break
    return found[:max_messages]
