"""The compiled engine beside its Python twins: any bytes give the same result from both."""

import random
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import numpy as np

from sprocket.remoting.message.record import PHYSICAL_OFFSET_AT, SysFlag
from store.index.key_scan import entries_of, index_hash, keys_of
from store.record.checksum import SEAL_BYTES, masked_crc, seal
from store.record.record import TagsCodes, blank
from store.scan import plain, record_scan
from store.scan.record_batch import RecordBatch
from store.scan.record_scan import RecordScan, ScanEnd
from tests.fuzz.store_targets import whole_record
from tests.fuzz.target import Target

try:
    from store.scan import compiled
except ImportError:  # no C compiler: `tests/engine` says so
    compiled = None  # type: ignore[assignment]

BASE: Final = 1 << 33
TAGS_CODES: Final = TagsCodes("1s 5s")
TOPICS: Final = ("Orders", "Orders2", "Ordere", "T" * 127, "T" * 128, "Z" * 255, "Z" * 300, "Zürich", "%RETRY%g", "a")
PROPERTIES: Final = (
    b"",
    b"TAGS\x01first\x02KEYS\x01k\x02",
    b"UNIQ_KEY\x01AC11\x02TAGS\x01" + b"t" * 40 + b"\x02",
    b"UNIQ_KEY\x01AC11\x02KEYS\x01 a  bc \x02KEYS\x01\x02UNIQ_KEY\x01",
    b"KEYS\x01" + b"k " * 300 + b"\x02UNIQ_KEY\x01a\x01b\x02",
    "KEYS\x01a Z\xfcrich b\x02UNIQ_KEY\x01\x7f\x02".encode(),
    b"xTAGS\x01no\x02TAGS\x01yes",
    b"TAGS\x01\x02TAGS\x01second\x02",
    b"TAGS\x01first\x02TAGS\x01last\x02K\x01v\x02",
    b"TAGS\x01first\x02K\x01v\x02TAGS\x01\x02TAGS",
    b"TAGS\x01first\x02" + b"a\x01b\x02" * 60 + b"TAGS\x01late",
    "TAGS\x01Zürich\x02".encode(),
    b"TAGS\x01\xff\xfe\x02",
    b"TAGS",
    b"a\x01b\x02" * 60 + b"TAGS\x01late\x02",
    b"\x02\x02TAGS\x01after\x02",
    b"__CRC32#\x0100000000",
)
FLAGS: Final = (0, 0, 0, SysFlag.BORN_HOST_V6, SysFlag.STORE_HOST_V6, SysFlag.BORN_HOST_V6 | SysFlag.STORE_HOST_V6)


def log_of(chance: random.Random, records: int, queue_offset_of: Callable[[str], int] = lambda _: 5) -> bytes:
    """A log of many shapes of records from offset `BASE` on, all of them valid; all queues have the id 0."""
    content = bytearray()
    for _ in range(records):
        body = chance.randbytes(chance.choice((0, 1, 40, 64, 65, 500)))
        topic = TOPICS[0] if chance.random() < 0.5 else chance.choice(TOPICS)
        record = bytearray(whole_record(body, chance.choice(PROPERTIES), int(chance.choice(FLAGS)), topic))
        struct.pack_into(">qq", record, PHYSICAL_OFFSET_AT - 8, queue_offset_of(topic), BASE + len(content))
        if chance.random() < 0.5:
            record = bytearray(sealed(bytes(record)))
        content += record
    return bytes(content)


def sealed(record: bytes) -> bytes:
    """Return a valid record with a seal at its end."""
    properties_at, longer = properties_of(record), bytearray(record)
    struct.pack_into(">i", longer, 0, len(record) + SEAL_BYTES)
    struct.pack_into(">H", longer, properties_at - 2, len(record) - properties_at + SEAL_BYTES)
    return bytes(longer + seal(masked_crc(bytes(longer))))


def properties_of(record: bytes) -> int:
    """Return where the properties of a valid record begin."""
    from store.record.record import parts_of

    parts = parts_of(memoryview(record))
    assert not isinstance(parts, str)
    return parts[3]


def rows_of(batches: Sequence[RecordBatch]) -> list[tuple[Any, ...]]:
    """The records of batches, wherever one ends and the next begins."""
    return [
        (
            batch.base + position, size, queue_id, queue_offset, sys_flag, batch.base + properties_at,
            batch.topics[topic],
        )
        for batch in batches
        for position, size, queue_id, queue_offset, sys_flag, properties_at, topic in zip(
            batch.positions.tolist(), batch.sizes.tolist(), batch.queue_ids.tolist(), batch.queue_offsets.tolist(),
            batch.sys_flags.tolist(), batch.properties_at.tolist(), batch.topic_index.tolist(), strict=True,
        )
    ]  # fmt: skip


@contextmanager
def batches_from(source: Callable[..., Iterator[RecordBatch]]) -> Iterator[None]:
    """Let `RecordScan` take its batches from one twin."""
    before = record_scan.batches
    record_scan.batches = source
    try:
        yield
    finally:
        record_scan.batches = before


def index_rows(batch: RecordBatch) -> list[tuple[int, int]]:
    """The hash and the place of each key, record by record."""
    return [
        (index_hash(batch.topics[batch.topic_index[record]], key), batch.base + int(batch.positions[record]))
        for record in range(len(batch))
        if batch.sys_flags[record] & SysFlag.TRANSACTION_ROLLBACK != SysFlag.TRANSACTION_ROLLBACK
        for key in keys_of(batch.properties(record))
    ]


def scanned(
    source: Callable[..., Iterator[RecordBatch]], data: bytes, room: int, **options: Any
) -> tuple[list[tuple[Any, ...]], ScanEnd]:
    """The records and the end of one scan with one twin."""
    with batches_from(source):
        scan = RecordScan(memoryview(data), BASE, room, **options)
        return rows_of(list(scan)), scan.end


def compare_scans(data: bytes, **options: Any) -> None:
    """The same records and the same end, for a log whose segment ends with it and for one that goes on."""
    for room in (len(data), len(data) + 4096):
        pure = scanned(plain.batches, data, room, **options)
        assert scanned(compiled.batches, data, room, **options) == pure


def compare_parts(data: bytes) -> None:
    """The chain, the claims, the CRCs and the tags of whatever the chain finds."""
    view = memoryview(data)
    for end in (len(data), len(data) // 2, 0):
        pure, twin = plain.chain(view, end), compiled.chain(view, end)
        assert pure.positions.tolist() == twin.positions.tolist()
        assert pure.stop == twin.stop
    batches = list(plain.batches(view, BASE, len(data), 1 << 20, check_crc=False, require_seal=False))
    for batch in batches:
        ends = batch.positions + batch.sizes
        claims = plain.claimed_crcs(batch.data, ends - batch.properties_at, ends)
        assert compiled.claimed_crcs(batch.data, ends - batch.properties_at, ends).tolist() == claims.tolist()
        bodies = batch.positions + 88, np.minimum(batch.positions + 88 + len(data) % 50, ends)
        crcs = np.arange(len(batch))
        for require_seal in (False, True):
            pure_holds, holds = (
                twin(batch.data, batch.positions, ends, bodies, crcs, claims, require_seal=require_seal)
                for twin in (plain.crcs_hold, compiled.crcs_hold)
            )
            assert pure_holds.tolist() == holds.tolist()
        codes = plain.tags_codes_of(batch, TAGS_CODES)
        assert compiled.tags_codes_of(batch, TAGS_CODES).tolist() == codes.tolist()
        entries = entries_of(batch)
        assert list(zip(entries.key_hashes.tolist(), entries.physical_offsets.tolist(), strict=True)) == index_rows(
            batch
        )


def scan_twins(data: bytes) -> None:
    """One part of a log, through all functions that have a twin."""
    if compiled is None:
        return
    for check_crc, require_seal in ((False, False), (True, False), (True, True)):
        compare_scans(data, check_crc=check_crc, require_seal=require_seal)
        compare_scans(data + bytes(200), check_crc=check_crc, require_seal=require_seal, batch_records=3)
    compare_scans(data, check_crc=True, limit=len(data) // 2)
    compare_parts(data + bytes(16))


_LOG: Final = log_of(random.Random(1), 12)

ENGINE_TARGETS: Final = (
    Target("scan_twins", scan_twins, [_LOG, _LOG + blank(16) + bytes(8), log_of(random.Random(2), 3)], 2048),
)
