"""Manifest of one broker group: which parts of its log are on the object store, and who may write there.

The objects of a group, under its folder (`folder_of`)::

    manifest                                        this: JSON, compressed with zstd (``zstd -dc manifest``)
    segments/<start>-<epoch>-<incarnation>-<n>      a part of the log (`store.tier.segment_object`)
    tables/<number>-<epoch>-<incarnation>-<n>       tables of the broker (`store.tier.tables_object`)
    compacted/<number>-<epoch>-<incarnation>-<n>    a part of a compacted queue (`store.tier.compacted_object`)
    conditions                                      what is left of the check of the store

What the manifest does not name does not count.  An object is written under a key that was never used before and is
never changed; then the manifest is replaced by a conditional put.  To delete, the manifest goes first.  So a crash
leaves at most objects that nobody names.

Fencing: `writer` is the master that wrote last.  A master claims the manifest before its first upload, with a higher
`term`; one whose controllers gave it an epoch claims it only from a writer of a lower or of the same epoch.  Because
each write names the version that it replaces, a master that was replaced learns so at its next write, and stops.

This module is pure.  `decode` accepts bytes of any origin: its size is limited before anything is allocated.
"""

import re
from bisect import bisect_right
from collections.abc import Iterable
from typing import Any, Final, NamedTuple
from urllib.parse import quote

import msgspec

from store.compaction.manifest import Part, damage_of
from store.queue.consume_queue_table import is_file_name
from store.tier.compression import compress, decompress
from store.tier.object_store import Damaged

FORMAT: Final = 1
NAME: Final = "manifest"
MAX_BYTES: Final = 32 << 20
MAX_RAW_BYTES: Final = 256 << 20
MAX_SEGMENTS: Final = 200_000
# Limit of a segment's footer, also when it is expanded.
MAX_FOOTER_BYTES: Final = 64 << 20
# A segment with more queues names none of them: a reader asks the object's footer.
MAX_LISTED_QUEUES: Final = 256
_HOUR_MS: Final = 3_600_000
_KEY: Final = re.compile(r"(segments|tables|compacted)/([0-9]{1,20})-([0-9]{1,10})-[0-9A-Za-z]{1,32}-[0-9]{1,10}")
_SHA256: Final = re.compile(r"[0-9a-f]{64}")
_MAX_OFFSET: Final = 1 << 63


def folder_of(cluster: str, broker: str) -> str:
    """Return the folder of a broker group, without a slash at its end."""
    return f"{quote(cluster, safe='')}/{quote(broker, safe='')}"


class KeyFields(NamedTuple):
    """What an object's key says: the offset or number with which it begins, and the epoch of its master."""

    number: int
    epoch: int


def fields_of(key: str) -> KeyFields | None:
    """Return what an object's key says; None if it is no key of an archive's object."""
    found = _KEY.fullmatch(key)
    return None if found is None else KeyFields(int(found[2]), int(found[3]))


class QueueRange(msgspec.Struct, frozen=True, array_like=True):
    """Messages of one queue in a segment: queue offsets from `first` to before `end`, perhaps with gaps."""

    topic: str
    queue_id: int
    first: int
    end: int


class SegmentEntry(msgspec.Struct, frozen=True):
    """One part of the log, [`start`, `end`) in physical offsets, within one CommitLog file.

    `sha256` is the object's, `log_sha256` that of the records as they are in the broker's log.  `footer_bytes` and
    `footer_sha256` are of the object's end, which must be read first.  `records` are those kept, `dropped` those that
    the archive must not have.  Store times are those of the first and the last kept record, ms; 0 without one.
    `queues` are None if they are more than `MAX_LISTED_QUEUES`; `topics` are always complete.
    """

    start: int
    end: int
    key: str
    size_bytes: int
    sha256: str
    log_sha256: str
    footer_bytes: int
    footer_sha256: str
    records: int
    dropped: int
    first_store_ms: int
    last_store_ms: int
    epoch: int
    created_ms: int
    topics: list[str]
    queues: list[QueueRange] | None


class Writer(msgspec.Struct, frozen=True):
    """The master that may write: its controllers' epoch (0 without controllers), its incarnation, and its term."""

    epoch: int
    incarnation: str
    term: int


class TablesEntry(msgspec.Struct, frozen=True):
    """The broker's tables (topics, groups, offsets, users) as they were when the log had reached `log_end`."""

    key: str
    size_bytes: int
    sha256: str
    log_end: int
    created_ms: int


class CompactedEntry(msgspec.Struct, frozen=True):
    """One part of a compacted queue.  `sha256` is that of the object, of `size_bytes`."""

    topic: str
    queue_id: int
    part: Part
    key: str
    size_bytes: int
    sha256: str


class Manifest(msgspec.Struct, frozen=True):
    """Content of the archive of one broker group.

    `uploaded_end` is where the next upload begins: all before it was uploaded, or was gone before it could be.
    `segments` are in order and do not overlap; there may be gaps.  `superseded` are parts of the log of a master that
    was replaced before its slaves had them: nobody reads them, and they go when their time ends.
    `reserved_ms` is how long messages stay, by topic, `default_reserved_ms` for all others.
    `written_ms` is the time that the writer accepted (`RetentionClock`), not the one its machine's clock shows.
    `compacted` are the parts of compacted queues, those of a queue in order: they stay while the topic is compacted.
    """

    format: int
    cluster: str
    broker: str
    number: int
    writer: Writer
    segment_bytes: int
    uploaded_end: int
    segments: list[SegmentEntry]
    superseded: list[SegmentEntry]
    tables: TablesEntry | None
    default_reserved_ms: int
    reserved_ms: dict[str, int]
    written_ms: int
    compacted: list[CompactedEntry] = []

    # What a reader asks

    def segment_of(self, physical_offset: int) -> SegmentEntry | None:
        """Return the part of the log that has `physical_offset`; None if the archive does not have it."""
        index = bisect_right(self.segments, physical_offset, key=lambda entry: entry.start) - 1
        return self.segments[index] if index >= 0 and physical_offset < self.segments[index].end else None

    def reserve_of(self, topic: str) -> int:
        """Return how long the topic's messages stay in the archive, ms from their store time."""
        return self.reserved_ms.get(topic, self.default_reserved_ms)

    def is_readable(self, entry: SegmentEntry, topic: str, now_ms: int) -> bool:
        """Return whether consumers may still read the topic's messages of `entry`."""
        return now_ms < entry.last_store_ms + self.reserve_of(topic)

    def expires_ms(self, entry: SegmentEntry) -> int:
        """Return when the last message of `entry` may go, ms since 1970."""
        longest = max((self.reserve_of(topic) for topic in entry.topics), default=0)
        return (entry.last_store_ms or entry.created_ms) + longest

    @property
    def keys(self) -> set[str]:
        """Keys of all objects that the manifest names."""
        named = {entry.key for entry in (*self.segments, *self.superseded)} | {one.key for one in self.compacted}
        return named if self.tables is None else named | {self.tables.key}

    # What a writer makes of it

    def _next(self, now_ms: int, **fields: Any) -> "Manifest":
        """Return the manifest that follows this one, with other `fields`."""
        return msgspec.structs.replace(self, number=self.number + 1, written_ms=now_ms, **fields)

    def claimed(self, epoch: int, incarnation: str, now_ms: int) -> "Manifest":
        """Return the manifest as the master of a new term writes it."""
        return self._next(now_ms, writer=Writer(epoch, incarnation, self.writer.term + 1))

    def with_segment(self, entry: SegmentEntry, now_ms: int) -> "Manifest":
        """Return the manifest with one more segment, after all others.  Raises ValueError if it is not after them."""
        if entry.start < self.uploaded_end or entry.end <= entry.start:
            raise ValueError(f"segment {entry.start} to {entry.end} does not follow {self.uploaded_end}")
        return self._next(now_ms, segments=[*self.segments, entry], uploaded_end=entry.end)

    def with_tables(self, tables: TablesEntry, now_ms: int) -> "Manifest":
        """Return the manifest with newer tables."""
        return self._next(now_ms, tables=tables)

    def with_reserves(self, default_ms: int, by_topic: dict[str, int], now_ms: int) -> "Manifest":
        """Return the manifest with other times for which messages stay."""
        return self._next(now_ms, default_reserved_ms=default_ms, reserved_ms=by_topic)

    def with_compacted(self, topic: str, queue_id: int, parts: list[CompactedEntry], now_ms: int) -> "Manifest":
        """Return the manifest with other parts of one compacted queue."""
        others = [one for one in self.compacted if (one.topic, one.queue_id) != (topic, queue_id)]
        return self._next(now_ms, compacted=[*others, *parts])

    def without(self, keys: Iterable[str], now_ms: int) -> "Manifest":
        """Return the manifest without the objects of `keys`.  Uploads still go on at `uploaded_end`.

        A compacted queue that loses one part loses all: its others would say that nothing is between them.
        """
        gone = set(keys)
        broken = {(one.topic, one.queue_id) for one in self.compacted if one.key in gone}
        return self._next(
            now_ms,
            segments=[entry for entry in self.segments if entry.key not in gone],
            superseded=[entry for entry in self.superseded if entry.key not in gone],
            compacted=[one for one in self.compacted if (one.topic, one.queue_id) not in broken],
            tables=None if self.tables is None or self.tables.key in gone else self.tables,
        )

    def cut(self, offset: int, now_ms: int) -> "Manifest":
        """Return the manifest as it ends at `offset`: what is later is superseded.

        Raises ValueError if `offset` lies within a segment.
        """
        kept = [entry for entry in self.segments if entry.end <= offset]
        later = self.segments[len(kept) :]
        if later and later[0].start < offset:
            raise ValueError(f"offset {offset} lies within segment {later[0].start} to {later[0].end}")
        return self._next(
            now_ms, segments=kept, superseded=[*self.superseded, *later], uploaded_end=min(self.uploaded_end, offset)
        )


def empty(cluster: str, broker: str, segment_bytes: int, default_reserved_ms: int) -> Manifest:
    """Return the manifest of a group that has none yet; nobody has claimed it."""
    return Manifest(
        format=FORMAT, cluster=cluster, broker=broker, number=0, writer=Writer(0, "", 0), segment_bytes=segment_bytes,
        uploaded_end=0, segments=[], superseded=[], tables=None, default_reserved_ms=default_reserved_ms,
        reserved_ms={}, written_ms=0,
    )  # fmt: skip


# A manifest whose entries are still JSON: one call for all of them would hold the interpreter's lock for long.
_ENTRIES: Final = ("segments", "superseded")
_PARTS: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_RAW_ENTRIES: Final = msgspec.json.Decoder(list[msgspec.Raw])
_ENTRY: Final = msgspec.json.Decoder(SegmentEntry)
_NO_LIST: Final = msgspec.Raw(b"null")


class ManifestEncoder:
    """Encodes manifests that follow one another: of each only the new entries.  For one thread at a time."""

    def __init__(self) -> None:
        # By key: the entry, and its JSON.
        self._encoded: dict[str, tuple[SegmentEntry, msgspec.Raw]] = {}

    def encode(self, manifest: Manifest) -> bytes:
        """Do as the function `encode`."""
        _check(manifest)
        fields = {name: getattr(manifest, name) for name in Manifest.__struct_fields__}
        known, self._encoded = self._encoded, {}
        for name in _ENTRIES:
            fields[name] = [self._entry(entry, known) for entry in fields[name]]
        raw = msgspec.json.encode(fields)
        content = compress(raw)
        if len(raw) > MAX_RAW_BYTES or len(content) > MAX_BYTES:
            raise Damaged(
                f"manifest: has {len(raw)} bytes, allowed are {MAX_RAW_BYTES}: shorten tieredStoreFileReservedTime"
            )
        return content

    def _entry(self, entry: SegmentEntry, known: dict[str, tuple[SegmentEntry, msgspec.Raw]]) -> msgspec.Raw:
        found = known.get(entry.key)
        if found is None or found[0] is not entry:
            found = entry, msgspec.Raw(msgspec.json.encode(entry))
        self._encoded[entry.key] = found
        return found[1]


def encode(manifest: Manifest) -> bytes:
    """Return the object's bytes.  Raises `Damaged` for a manifest that `decode` would not accept."""
    return ManifestEncoder().encode(manifest)


def decode(content: bytes) -> Manifest:
    """Return the manifest in an object's bytes.  Raises `Damaged` that says what is wrong."""
    if len(content) > MAX_BYTES:
        raise Damaged(f"manifest: has {len(content)} bytes, at most {MAX_BYTES} are read")
    try:
        parts = _PARTS.decode(decompress(content, MAX_RAW_BYTES, "manifest"))
        entries = {name: _RAW_ENTRIES.decode(parts.get(name, _NO_LIST)) for name in _ENTRIES}
        if sum(map(len, entries.values())) > MAX_SEGMENTS:
            raise Damaged(f"manifest: names more than {MAX_SEGMENTS} segments")
        rest = msgspec.json.encode(parts | dict.fromkeys(_ENTRIES, ()))
        manifest = msgspec.structs.replace(
            msgspec.json.decode(rest, type=Manifest),
            **{name: [_ENTRY.decode(entry) for entry in found] for name, found in entries.items()},
        )
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Damaged(f"manifest: is not one: {error}") from error
    _check(manifest)
    return manifest


def _check(manifest: Manifest) -> None:
    """Raise `Damaged` unless all that readers rely on holds."""
    if manifest.format != FORMAT:
        raise Damaged(f"manifest: has format {manifest.format}, this version reads {FORMAT}")
    if manifest.number < 0 or not 0 < manifest.segment_bytes < 1 << 31 or manifest.default_reserved_ms < 0:
        raise Damaged("manifest: its numbers are out of range")
    if len(manifest.segments) + len(manifest.superseded) > MAX_SEGMENTS:
        raise Damaged(f"manifest: names more than {MAX_SEGMENTS} segments")
    end = 0
    for entry in manifest.segments:
        if entry.start < end:
            raise Damaged(f"manifest: segment {entry.start} begins before {end}, where the one before it ends")
        end = entry.end
    if not end <= manifest.uploaded_end < _MAX_OFFSET:
        raise Damaged(f"manifest: says that {manifest.uploaded_end} is uploaded, its segments end at {end}")
    for entry in (*manifest.segments, *manifest.superseded):
        if (fault := _fault(entry, manifest.segment_bytes)) is not None:
            raise Damaged(f"manifest: segment {entry.start}: {fault}")
    tables = manifest.tables
    if tables is not None and not (_KEY.fullmatch(tables.key) and _SHA256.fullmatch(tables.sha256)):
        raise Damaged("manifest: its tables have no valid key or hash")
    for one in manifest.compacted:
        is_place = is_file_name(one.topic) and one.queue_id >= 0
        if not (is_place and _KEY.fullmatch(one.key) and _SHA256.fullmatch(one.sha256)) or damage_of([one.part]):
            raise Damaged(f"manifest: compacted queue {one.queue_id} of {one.topic[:64]!r} has no valid entry")


def _fault(entry: SegmentEntry, segment_bytes: int) -> str | None:
    if not 0 <= entry.start < entry.end or entry.start // segment_bytes != (entry.end - 1) // segment_bytes:
        return f"{entry.start} to {entry.end} is not part of one CommitLog file of {segment_bytes} bytes"
    hashes = (entry.sha256, entry.log_sha256, entry.footer_sha256)
    if not _KEY.fullmatch(entry.key) or not all(map(_SHA256.fullmatch, hashes)):
        return "it has no valid key or hash"
    if not 0 < entry.footer_bytes <= min(entry.size_bytes, MAX_FOOTER_BYTES) or entry.records < 0 or entry.dropped < 0:
        return "its sizes are out of range"
    if entry.queues is not None and len(entry.queues) > MAX_LISTED_QUEUES:
        return f"it names more than {MAX_LISTED_QUEUES} queues"
    return None
