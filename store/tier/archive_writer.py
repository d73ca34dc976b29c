"""The writing side of an archive: claims the manifest for one master, and uploads, deletes and replaces.

Order of an upload: the object is written under a new key, read back and its hash compared; then the manifest is
replaced by a conditional put and read back.  Only then `uploaded_end` moves, and with it what the local disk may drop.
Order of a deletion: the manifest first, then the objects.  So a kill at any step leaves the manifest true, and at most
objects that it does not name.

A request whose answer was lost may have succeeded.  So after a failed put of the manifest the manifest is read, and
what is there decides, not the answer.
"""

import contextlib
import hashlib
import logging
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path
from typing import Final, Protocol

from sprocket.common.clock import Clock
from sprocket.common.errors import StoreError
from sprocket.common.logs.peer_lines import peer_lines
from store.compaction.manifest import Part
from store.retention.rules import RetentionClock
from store.tier.compacted_object import OpenedPart
from store.tier.manifest import (
    MAX_BYTES,
    NAME,
    CompactedEntry,
    Manifest,
    ManifestEncoder,
    SegmentEntry,
    TablesEntry,
    decode,
    empty,
)
from store.tier.object_store import (
    Conflict,
    Damaged,
    NotFound,
    ObjectStore,
    ObjectStoreError,
    Refused,
    Unavailable,
    Version,
)
from store.tier.segment_writer import Kept, LogPart, SegmentPieces
from store.tier.tables_object import encode_tables
from store.tier.upload_plan import (
    ArchiveRules,
    Delete,
    LogView,
    Rest,
    SetReserves,
    Upload,
    is_urgent,
    next_step,
    next_upload,
)
from store.tier.whole_objects import BRING_BACK, SEGMENTS, InThread, find_manifest, is_intact

_log = logging.getLogger(__name__)

# Object with which a claim asks whether the store obeys conditions; and what a read of it takes at most, in bytes.
_CONDITIONS: Final = "conditions"
_CONDITIONS_BYTES: Final = 1024
# Returns the object of a part of the log, with the topics that are archived.
Segments = Callable[[LogPart, Kept], SegmentPieces]


class Fenced(StoreError):
    """Another master has claimed the archive: this one writes nothing more."""


class OtherLog(StoreError):
    """The archive is that of another log than this broker's: an operator must act."""


class ArchiveSource(Protocol):
    """What the writer needs of the broker.  `tables` and `compacted` are for any thread, the others for the owner's."""

    def view(self) -> LogView:
        """Return the log as it is now."""
        ...

    def rules(self) -> ArchiveRules:
        """Return the settings as they are now."""
        ...

    def store_time_at(self, offset: int) -> int:
        """Return the store time, ms, of the record at `offset`; -1 if there is none."""
        ...

    def kept(self) -> Kept:
        """Return which topics are archived."""
        ...

    def tables(self) -> dict[str, bytes]:
        """Return the broker's small files."""
        ...

    def compacted_end(self) -> int:
        """Return the physical offset before which compaction has taken in all messages of compacted topics."""
        ...

    def compacted(self) -> dict[tuple[str, int], tuple[Path, Sequence[Part]]]:
        """Return directory and parts of each compacted queue, as they are on the disk; for any thread."""
        ...


class ArchiveWriter:
    """Writer of one master, in the event loop's thread.  Methods must not overlap; each raises an error of the module
    `store.tier.object_store`, `Fenced`, `OtherLog`, or `LogDamaged`.
    """

    def __init__(
        self,
        store: ObjectStore,
        source: ArchiveSource,
        clock: Clock,
        *,
        group: tuple[str, str],
        epoch: int,
        incarnation: str,
        segments: Segments,
        in_thread: InThread,
    ) -> None:
        self._store, self._source, self._clock = store, source, clock
        self._group, self._epoch, self._incarnation = group, epoch, incarnation
        self._segments = segments
        self._in_thread = in_thread
        self._ages = RetentionClock(clock)
        self._encoder = ManifestEncoder()
        self._version: Version | None = None
        self._attempts = 0
        # A segment that was read back, with what it has of the log, and that the manifest may not name yet.
        self._ready: tuple[Kept, SegmentEntry] | None = None
        # Keys of such segments that were replaced.
        self._replaced: set[str] = set()
        self._manifest: Manifest | None = None
        self._next_delete_s = 0.0
        self._compacted_end = 0
        self.uploaded_messages = 0

    @property
    def manifest(self) -> Manifest:
        """The manifest as it was read back last; only after `claim`."""
        assert self._manifest is not None, "nothing is written before `claim`"
        return self._manifest

    # Claiming

    async def claim(self) -> None:
        """Become the archive's writer.  Makes nothing of the archive before its log was compared with this broker's."""
        manifest = await self._read()
        # This machine's clock may be ahead: nothing is deleted before people had time to see that.  Manifests have the
        # accepted time, so a restart does not end this.
        self._ages = RetentionClock(self._clock, manifest.written_ms or None)
        view = self._source.view()
        if manifest.writer.epoch > self._epoch:
            raise Fenced(f"the archive belongs to the master of epoch {manifest.writer.epoch}, this is {self._epoch}")
        if manifest.segment_bytes != view.segment_bytes:
            raise OtherLog(
                f"the archive has CommitLog files of {manifest.segment_bytes} bytes, mappedFileSizeCommitLog is "
                f"{view.segment_bytes}: use another folder"
            )
        agreed = await self._agreed_end(manifest, view)
        if agreed < manifest.uploaded_end:
            _log.warning("event=archive_cut from=%d to=%d", manifest.uploaded_end, agreed)
            manifest = manifest.cut(agreed, self._ages.now_ms())
        await self._check_conditions()
        await self._commit(manifest.claimed(self._epoch, self._incarnation, self._ages.now_ms()))
        _log.info("event=archive_claimed epoch=%d uploaded_end=%d", self._epoch, self.manifest.uploaded_end)

    async def _check_conditions(self) -> None:
        """Raise `Refused` if the store ignores the version that a put expects: then nothing stops a replaced master.

        The object stays: so no right to delete is needed, and masters that check at once do not mislead each other.
        """
        content = self._new_key(_CONDITIONS, 0)  # never the same, as a version may be a hash
        try:
            try:
                first = await self._store.put_if(_CONDITIONS, f"{content} 1".encode(), None)
            except Conflict:
                first = (await self._store.get(_CONDITIONS, _CONDITIONS_BYTES)).version
            await self._store.put_if(_CONDITIONS, f"{content} 2".encode(), first)
            for expected in (None, first):
                try:
                    await self._store.put_if(_CONDITIONS, f"{content} 3".encode(), expected)
                except Conflict:
                    continue
                break
            else:
                return
        except ObjectStoreError as error:
            peer_lines.warning(_log, "", "event=archive_conditions_not_checked reason=%r", str(error))
            return
        raise Refused(
            f"{_CONDITIONS}: the store ignores conditions of a put (If-None-Match, If-Match, generation), so two "
            "masters could write one archive: use a store that supports them"
        )

    async def _read(self) -> Manifest:
        found = await find_manifest(self._store, self._in_thread)
        if found is None:
            self._version = None
            reserved_ms = self._source.rules().default_reserved_ms
            return empty(*self._group, self._source.view().segment_bytes, reserved_ms)
        manifest, self._version = found
        if (manifest.cluster, manifest.broker) != self._group:
            raise OtherLog(f"the archive is that of {manifest.broker} in {manifest.cluster}: use another folder")
        return manifest

    async def _agreed_end(self, manifest: Manifest, view: LogView) -> int:
        """Return up to where the archive has this broker's log.

        A master that had no time to replicate its last messages may have archived them.  The log of the new master then
        goes on otherwise, and is the truth.  Equal bytes at one place mean equal bytes before it: replicas are copies.
        """
        if view.min_offset >= manifest.uploaded_end:
            return manifest.uploaded_end
        compared = False
        for entry in reversed(manifest.segments):
            if entry.start < view.min_offset:
                break
            if entry.end > view.end_offset:
                continue
            compared = True
            if await self._log_hash(entry, view.segment_bytes) == entry.log_sha256:
                is_last = entry is manifest.segments[-1]
                return manifest.uploaded_end if is_last else entry.end
        begins_later = not compared and view.min_offset and view.end_offset >= manifest.uploaded_end
        if begins_later:
            return manifest.uploaded_end  # the archive has nothing of what is here
        raise OtherLog(
            f"the archive was uploaded up to {manifest.uploaded_end}, and this broker's log, {view.min_offset} to "
            f"{view.end_offset}, has no part that is equal: restore the store from the archive, or use another folder"
        )

    async def _log_hash(self, entry: SegmentEntry, segment_bytes: int) -> str:
        file_end = entry.start - entry.start % segment_bytes + segment_bytes
        segment = self._segments(LogPart(entry.start, entry.end, file_end), Kept(frozenset()))
        segment.hurry()
        async for _ in self._pieces(segment, entry.start, []):
            pass
        return segment.written.log_sha256

    # Steps

    async def step(self, delete_interval_s: float) -> bool:
        """Do the next step.  Return whether there was one; else there is nothing to do for now."""
        manifest, view, rules = self.manifest, self._source.view(), self._source.rules()
        now_s, now_ms = self._clock.monotonic(), self._ages.now_ms()
        step = next_step(
            manifest, view, rules, first_store_ms=self._source.store_time_at(next_upload(manifest, view)),
            wall_ms=self._clock.wall_ms(), now_ms=now_ms, may_delete=now_s >= self._next_delete_s,
            compacted_end=self._compacted_end,
        )  # fmt: skip
        match step:
            case Rest():
                if now_s >= self._next_delete_s:
                    self._next_delete_s = now_s + delete_interval_s
                return False
            case SetReserves():
                await self._commit(manifest.with_reserves(rules.default_reserved_ms, rules.reserved_ms, now_ms))
            case Delete(keys):
                await self._delete(keys)
            case Upload(part):
                return await self._upload(part)
        return True

    async def _upload(self, part: LogPart) -> bool:
        kept = self._source.kept()
        entry = await self._uploaded_before(part, kept) or await self._put_segment(part, kept)
        if entry is None:
            return False
        self._ready = kept, entry
        await self._commit(self.manifest.with_segment(entry, self._ages.now_ms()))
        self._ready = None
        self.uploaded_messages += entry.records
        # Only now: an earlier manifest that names them can no longer arrive late.
        replaced, self._replaced = self._replaced - self.manifest.keys, set()
        for key in replaced:
            await self._store.delete(key)
        return True

    async def _uploaded_before(self, part: LogPart, kept: Kept) -> SegmentEntry | None:
        """Return the segment that the manifest could not name yet; None if there is none, or it cannot be used now.

        That may be hours later.  Meanwhile somebody may have deleted it: no manifest names it.
        """
        if self._ready is None:
            return None
        before, entry = self._ready
        if (before, entry.start) == (kept, part.start):
            with contextlib.suppress(NotFound):
                if (await self._store.head(entry.key)).size_bytes == entry.size_bytes:
                    return entry
        self._replaced.add(entry.key)
        self._ready = None
        return None

    async def _put_segment(self, part: LogPart, kept: Kept) -> SegmentEntry | None:
        """Upload a part of the log, and read it back.  Return its entry; None if no record ends in it."""
        if part.start > self.manifest.uploaded_end and self.manifest.segments:
            _log.warning("event=archive_gap from=%d to=%d", self.manifest.uploaded_end, part.start)
        key = self._new_key(SEGMENTS, part.start)
        segment = self._segments(part, kept)
        faults: list[StoreError] = []
        try:
            await self._store.put(key, self._pieces(segment, part.start, faults))
        except ObjectStoreError:
            if faults:
                raise faults[0] from None  # the log could not be read: no fault of the store
            raise
        written = segment.written
        if written.end <= part.start:
            await self._store.delete(key)
            return None
        await self._verify(key, written.size_bytes, written.sha256)
        return SegmentEntry(
            start=part.start, key=key, epoch=self._epoch, created_ms=self._clock.wall_ms(), **written._asdict()
        )  # fmt: skip

    async def _pieces(self, segment: SegmentPieces, start: int, faults: list[StoreError]) -> AsyncIterator[bytes]:
        def hurry_if_late() -> None:
            if is_urgent(self._source.view(), self._source.rules(), start):
                segment.hurry()

        hurry_if_late()
        try:
            async for piece in self._taken(iter(segment)):
                yield piece
                hurry_if_late()
        except StoreError as error:
            faults.append(error)
            raise

    async def _delete(self, keys: list[str]) -> None:
        await self._commit(self.manifest.without(keys, self._ages.now_ms()))
        for key in keys:
            await self._store.delete(key)
        _log.info("event=archive_deleted segments=%d first=%s", len(keys), keys[0])

    async def save_tables(self) -> bool:
        """Upload the broker's tables if they have changed.  Return whether they had."""
        log_end = self._source.view().safe_offset
        content = await self._in_thread(lambda: encode_tables(self._source.tables()))
        digest = hashlib.sha256(content).hexdigest()
        before = self.manifest.tables
        if before is not None and before.sha256 == digest:
            return False
        key = self._new_key("tables", self.manifest.number)
        await self._store.put(key, content)
        await self._verify(key, len(content), digest)
        entry = TablesEntry(key, len(content), digest, log_end, self._clock.wall_ms())
        await self._commit(self.manifest.with_tables(entry, self._ages.now_ms()))
        if before is not None:
            await self._store.delete(before.key)
        return True

    async def save_compacted(self) -> bool:
        """Upload one compacted queue that has changed.  Return whether there was one; else all are archived.

        A part goes once the archive has the log that it was made of: a restore has no use for it before.  What is
        archived of a queue stays if this broker's parts begin later: it was a slave with an empty store once, and the
        archive has what only the compacted form of another master had.
        """
        compacted_end, manifest, kept = self._source.compacted_end(), self.manifest, self._source.kept()
        compacted = self._source.rules().compacted
        there: dict[tuple[str, int], list[CompactedEntry]] = {}
        for entry in manifest.compacted:
            there.setdefault((entry.topic, entry.queue_id), []).append(entry)
        found = await self._in_thread(self._source.compacted)
        for key in sorted(found.keys() | there.keys()):
            directory, parts = found.get(key, (Path(), ())) if kept(key[0]) else (Path(), ())
            known = {entry.part: entry for entry in there.get(key, ())}
            if key[0] in compacted and kept(key[0]) and _begins_later(parts, list(known)):
                peer_lines.warning(_log, "", "event=archived_table_kept topic=%s queue=%d reason=has_less", *key)
                compacted_end = min(compacted_end, max(part.log_end for part in known))
            elif any(part.log_end > manifest.uploaded_end for part in parts):
                compacted_end = 0
            elif list(parts) != list(known):
                if await self._save_queue(key, directory, parts, known):
                    return True
                compacted_end = 0
        self._compacted_end = compacted_end
        return False

    async def _save_queue(
        self, queue: tuple[str, int], directory: Path, parts: Sequence[Part], known: dict[Part, CompactedEntry]
    ) -> bool:
        """Return whether the queue is archived now; else it was compacted again meanwhile, and comes the next time."""
        try:
            entries = [known.get(part) or await self._save_part(queue, directory, part) for part in parts]
        except FileNotFoundError:
            return False
        await self._commit(self.manifest.with_compacted(*queue, entries, self._ages.now_ms()))
        for entry in known.values():
            if entry not in entries:
                await self._store.delete(entry.key)
        return True

    async def _save_part(self, queue: tuple[str, int], directory: Path, part: Part) -> CompactedEntry:
        opened = await self._in_thread(OpenedPart, directory, part)
        try:
            key = self._new_key("compacted", part.first_offset)
            await self._store.put(key, self._taken(iter(opened)))
        finally:
            opened.close()
        await self._verify(key, opened.size_bytes, opened.sha256)
        return CompactedEntry(*queue, part, key, opened.size_bytes, opened.sha256)

    async def _taken(self, pieces: Iterator[bytes]) -> AsyncIterator[bytes]:
        while (piece := await self._in_thread(next, pieces, None)) is not None:
            yield piece

    # Writing, and reading back

    def _new_key(self, kind: str, number: int) -> str:
        """Return a key that was never used: of this master, and of this attempt."""
        self._attempts += 1
        return f"{kind}/{number:020d}-{self._epoch}-{self._incarnation}-{self._attempts}"

    async def _verify(self, key: str, size_bytes: int, sha256: str) -> None:
        """Read an object back.  Raises `Damaged` if it is not what was written."""
        if not await is_intact(self._store, key, size_bytes, sha256, in_thread=self._in_thread):
            raise Damaged(f"{key}: what was read back is not the {size_bytes} bytes that were written")

    async def _commit(self, manifest: Manifest) -> None:
        """Replace the manifest, and read it back."""
        content = await self._in_thread(self._encoder.encode, manifest)
        failure: ObjectStoreError | None = None
        try:
            await self._store.put_if(NAME, content, self._version)
        except ObjectStoreError as error:
            failure = error
        try:
            found = await self._store.get(NAME, MAX_BYTES)
        except NotFound as error:
            if failure is None or isinstance(failure, Conflict | NotFound):
                failure = Damaged(f"{NAME}: was there, and is not any more: {BRING_BACK}")
            raise failure from error
        if found.content == content:
            self._manifest, self._version = manifest, found.version
            return
        there = await self._in_thread(decode, found.content)
        if self._manifest is None:
            reason = "another master claimed it at the same time"  # the next claim starts again
        elif there.writer != self._manifest.writer:
            raise Fenced(
                f"the master {there.writer.incarnation} of epoch {there.writer.epoch} has claimed the archive, in term "
                f"{there.writer.term}; this one had term {self._manifest.writer.term}"
            )
        else:
            # An earlier attempt of our own, or what was there before: go on from what is there.
            self._manifest, self._version, reason = there, found.version, "an earlier write came late"
        raise Unavailable(f"{NAME}: {reason}") if failure is None or isinstance(failure, Conflict) else failure


def _begins_later(parts: Sequence[Part], archived: Sequence[Part]) -> bool:
    """Return whether the parts of a queue lack the first messages of those that are archived."""
    return bool(archived) and (not parts or parts[0].first_offset > archived[0].first_offset)
