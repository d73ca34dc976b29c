"""Writes a store directory record by record, straight from `sprocket.remoting.message.record`.

It shares no code with `store/` or with the reader, so that a test compares two independent readings of
the format.  Segments and ConsumeQueue files are small, so that a few hundred records roll many of them.
"""

import struct
import zlib
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from sprocket.remoting.message import record

NO_PROPERTIES: Mapping[str, str] = {}


@dataclass(frozen=True)
class Row:
    """One message as it is written; the position fields are filled in by `StoreBuilder.append`."""

    topic: str = "T"
    queue_id: int = 0
    body: bytes = b""
    properties: Mapping[str, str] = field(default_factory=dict)
    born_timestamp: int = 1_700_000_000_000
    store_timestamp: int = 1_700_000_000_001
    born_host: bytes = b"\x7f\x00\x00\x01"
    born_port: int = 50_000
    store_host: bytes = b"\x0a\x00\x00\x02"
    store_port: int = 10_911
    flag: int = 0
    sys_flag: int = 0
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0
    version: int = 1
    trailing_separator: bool = True
    queue_offset: int = -1
    physical_offset: int = -1

    @property
    def tags(self) -> str | None:
        return self.properties.get("TAGS")

    @property
    def keys(self) -> str | None:
        return self.properties.get("KEYS")


def properties_text(properties: Mapping[str, str], trailing_separator: bool = True) -> bytes:
    """``name 0x01 value 0x02`` for each; RocketMQ leaves out the last separator in some of its paths."""
    text = "\x02".join(f"{name}\x01{value}" for name, value in properties.items())
    return (text + ("\x02" if text and trailing_separator else "")).encode()


def encode(row: Row) -> bytes:
    """The record of `row`."""
    flags = row.sys_flag
    flags |= record.SysFlag.BORN_HOST_V6 if len(row.born_host) == 16 else 0
    flags |= record.SysFlag.STORE_HOST_V6 if len(row.store_host) == 16 else 0
    topic = row.topic.encode()
    properties = properties_text(row.properties, row.trailing_separator)
    size = record.record_size(flags, len(row.body), len(topic), len(properties), row.version)
    magic = record.MAGIC_V2 if row.version == 2 else record.MAGIC_V1
    crc = zlib.crc32(row.body) & record.CRC_MASK
    head = record.HEAD.pack(
        size, magic, crc, row.queue_id, row.flag, row.queue_offset, row.physical_offset, flags, row.born_timestamp
    )
    encoded = b"".join(
        (
            head,
            row.born_host,
            struct.pack(">i", row.born_port),
            record.STORE_TIMESTAMP.pack(row.store_timestamp),
            row.store_host,
            struct.pack(">i", row.store_port),
            record.TAIL.pack(row.reconsume_times, row.prepared_transaction_offset, len(row.body)),
            row.body,
            struct.pack(">h" if row.version == 2 else ">B", len(topic)),
            topic,
            struct.pack(">h", len(properties)),
            properties,
        )
    )
    assert len(encoded) == size
    return encoded


def java_hash(text: str) -> int:
    """`String.hashCode`."""
    value = 0
    for unit in struct.unpack(f"<{len(text.encode('utf-16-le')) // 2}H", text.encode("utf-16-le")):
        value = (31 * value + unit) & 0xFFFFFFFF
    return value - (1 << 32) if value >= 1 << 31 else value


class StoreBuilder:
    """A store under `root`: ``commitlog/`` and ``consumequeue/``; `rows` is what it holds, in log order."""

    def __init__(
        self, root: Path, segment_bytes: int = 1 << 16, queue_entries: int = 50, first_offset: int = 0
    ) -> None:
        self.root = root
        self.rows: list[Row] = []
        self._segment_bytes = segment_bytes
        self._queue_entries = queue_entries
        self._segments: dict[int, bytearray] = {}
        self._next_offset = first_offset
        self._queues: dict[tuple[str, int], list[tuple[int, int, int]]] = {}
        self._queue_starts: dict[tuple[str, int], int] = {}
        # Units of batch ConsumeQueues, and the queue offset after the last of each.
        self._batches: dict[tuple[str, int], list[bytes]] = {}
        self._batch_ends: dict[tuple[str, int], int] = {}

    def start_queue_at(self, topic: str, queue_id: int, queue_offset: int) -> None:
        """The first entry of this queue gets `queue_offset`: older entries have expired."""
        self._queue_starts[topic, queue_id] = queue_offset

    def extend(self, rows: Iterable[Row], index: bool = True) -> None:
        for row in rows:
            self.append(row, index)

    def append(self, row: Row, index: bool = True) -> Row:
        """Add one record; with `index` false it is in the log but not dispatched to its ConsumeQueue."""
        key = (row.topic, row.queue_id)
        entries = self._queues.setdefault(key, [])
        row, size = self._add(row, self._queue_starts.get(key, 0) + len(entries))
        if index:
            entries.append((row.physical_offset, size, java_hash(row.tags or "")))
        return row

    def append_batch(self, row: Row, count: int, index: bool = True) -> Row:
        """Add one record of `count` messages of a topic with a batch ConsumeQueue; with `index` false its queue offsets
        are taken, and it is not in the queue."""
        key = (row.topic, row.queue_id)
        base = self._batch_ends.get(key, self._queue_starts.get(key, 0))
        row, size = self._add(row, base)
        self._batch_ends[key] = base + count
        fields = (row.physical_offset, size, java_hash(row.tags or ""), row.store_timestamp, base, count, -1, 0)
        if index:
            self._batches.setdefault(key, []).append(struct.pack(">qiqqqhii", *fields))
        return row

    def _add(self, row: Row, queue_offset: int) -> tuple[Row, int]:
        size = len(encode(row))
        at = self._next_offset % self._segment_bytes
        if at + size + record.BLANK_MIN_BYTES > self._segment_bytes:
            self._fill_blank(at)
            at = 0
        row = replace(row, queue_offset=queue_offset, physical_offset=self._next_offset)
        start = self._next_offset - at
        if start not in self._segments:
            self._segments[start] = bytearray(self._segment_bytes)
        self._segments[start][at : at + size] = encode(row)
        self._next_offset += size
        self.rows.append(row)
        return row, size

    def write(self) -> Path:
        """Write the files and return the root."""
        log = self.root / "commitlog"
        log.mkdir(parents=True, exist_ok=True)
        for start, content in self._segments.items():
            (log / f"{start:020d}").write_bytes(content)
        for (topic, queue_id), entries in self._queues.items():
            self._write_queue(topic, queue_id, entries)
        for (topic, queue_id), units in self._batches.items():
            directory = self.root / "batchconsumequeue" / topic / str(queue_id)
            directory.mkdir(parents=True, exist_ok=True)
            for first in range(0, len(units), self._queue_entries):
                file = b"".join(units[first : first + self._queue_entries])
                (directory / f"{46 * first:020d}").write_bytes(file.ljust(46 * self._queue_entries, b"\0"))
        return self.root

    def patch(self, physical_offset: int, content: bytes) -> None:
        """Overwrite bytes of the log: damage."""
        at = physical_offset % self._segment_bytes
        self._segments[physical_offset - at][at : at + len(content)] = content

    def _fill_blank(self, at: int) -> None:
        left = self._segment_bytes - at
        segment = self._segments[self._next_offset - at]
        segment[at : at + 8] = struct.pack(">ii", left, record.MAGIC_BLANK)
        self._next_offset += left

    def _write_queue(self, topic: str, queue_id: int, entries: list[tuple[int, int, int]]) -> None:
        if not entries:
            return
        directory = self.root / "consumequeue" / topic / str(queue_id)
        directory.mkdir(parents=True, exist_ok=True)
        first = self._queue_starts.get((topic, queue_id), 0)
        file_bytes = self._queue_entries * 20
        files: defaultdict[int, bytearray] = defaultdict(lambda: bytearray(file_bytes))
        # What RocketMQ writes before the first entry of a queue that starts late.
        blanks = [(index, (0, 0x7FFFFFFF, 0)) for index in range(first - first % self._queue_entries, first)]
        for index, entry in [*blanks, *enumerate(entries, first)]:
            file_start = index // self._queue_entries * file_bytes
            struct.pack_into(">qiq", files[file_start], index * 20 - file_start, *entry)
        for file_start, content in files.items():
            (directory / f"{file_start:020d}").write_bytes(content)
