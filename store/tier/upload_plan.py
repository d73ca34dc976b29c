"""What the master does next for its archive.  Pure: a function of the manifest, the log, the settings and the time.

What is uploaded: parts of the log before the confirm offset that are on this machine's disk, in order, each within one
CommitLog file.  A whole file goes when the log has left it.  Of the file that is written now, a part goes when its
first message is older than commitLogRollingInterval and it has commitLogRollingMinimumSize.  So what is younger is on
the local disks of the replicas alone.
"""

from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

from store.tier.manifest import Manifest
from store.tier.segment_writer import LogPart

# Segments to delete at once: the manifest is replaced for each such batch.
_DELETED_AT_ONCE: Final = 1_000


class LogView(NamedTuple):
    """The broker's log: its begin and end, and the end of what is confirmed and on the disk."""

    min_offset: int
    end_offset: int
    safe_offset: int
    segment_bytes: int


@dataclass(frozen=True, slots=True)
class ArchiveRules:
    """Settings of the archive; `reserved_ms` by topic, `default_reserved_ms` for the others."""

    default_reserved_ms: int
    reserved_ms: dict[str, int]
    rolling_interval_ms: int  # 0: never
    rolling_min_bytes: int
    deletes: bool
    patient_bytes: int = 0  # uploads that are behind by no more let other work go first
    compacted: frozenset[str] = frozenset()  # topics of which the archive keeps the last message of each key


def is_urgent(log: LogView, rules: ArchiveRules, start: int) -> bool:
    """Return whether an upload from `start` on must go on without regard for sends."""
    return log.safe_offset - start > rules.patient_bytes


class Upload(NamedTuple):
    """Upload a part of the log."""

    part: LogPart


class SetReserves(NamedTuple):
    """Write the changed times for which messages stay."""


class Delete(NamedTuple):
    """Delete segments, which have expired, by their keys."""

    keys: list[str]


class Rest(NamedTuple):
    """There is nothing to do now."""


Step: TypeAlias = Upload | SetReserves | Delete | Rest


def next_upload(manifest: Manifest, log: LogView) -> int:
    """Return where the next upload begins; what was removed before it could be uploaded is skipped."""
    return max(manifest.uploaded_end, log.min_offset)


def next_step(
    manifest: Manifest,
    log: LogView,
    rules: ArchiveRules,
    *,
    first_store_ms: int,
    wall_ms: int,
    now_ms: int,
    may_delete: bool,
    compacted_end: int = 0,
) -> Step:
    """Return the next step.

    `first_store_ms` is the store time of the record at `next_upload`, -1 without one.  `now_ms` is the time that is
    accepted for deletions (`RetentionClock`), `wall_ms` that for uploads, which lose nothing if it is wrong.
    `may_delete`: the interval between two deletions has passed.  Before `compacted_end` all that compacted queues keep
    of the log is archived.
    """
    if (manifest.default_reserved_ms, manifest.reserved_ms) != (rules.default_reserved_ms, rules.reserved_ms):
        return SetReserves()
    at = next_upload(manifest, log)
    file_end = at - at % log.segment_bytes + log.segment_bytes
    if file_end <= log.safe_offset:
        return Upload(LogPart(at, file_end, file_end))
    is_old = 0 <= first_store_ms <= wall_ms - rules.rolling_interval_ms and rules.rolling_interval_ms > 0
    if is_old and log.safe_offset - at >= rules.rolling_min_bytes:
        return Upload(LogPart(at, log.safe_offset, file_end))
    if rules.deletes and may_delete:
        # Of compacted queues a broker drops what was made of a log beyond its own end: a restored log must reach it.
        segments = manifest.segments[:-1] if manifest.compacted else manifest.segments
        shortest_ms = min((manifest.default_reserved_ms, *manifest.reserved_ms.values()))
        keys = [
            entry.key
            for entry in (*segments, *manifest.superseded)
            if entry.last_store_ms + shortest_ms <= now_ms  # most are newer: their topics need no look
            and manifest.expires_ms(entry) <= now_ms
            and (entry.end <= compacted_end or rules.compacted.isdisjoint(entry.topics))
        ]
        if keys:
            return Delete(keys[:_DELETED_AT_ONCE])
    return Rest()
