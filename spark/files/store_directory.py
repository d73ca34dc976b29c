"""Store directories: their paths, the names of their brokers, and the readable part of their logs.

Nothing after the last complete record is read.  The file that is being written is walked once, when a query is planned.
That fixes its end, so all tasks of a query see the same log while the broker keeps writing.
"""

import glob
import json
import logging
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Final

from spark.files.confirm_limit import confirm_limit
from spark.files.consume_queue import ConsumeQueue, every_topic_of, open_queues, topics_of
from spark.files.log_copies import check_copies
from spark.files.segment import RESYNC_BYTES, Segment, segment_paths
from sprocket.common.errors import ConfigError, CorruptRecord
from sprocket.remoting.message.record import BLANK_MIN_BYTES
from store.disk.disk import RealDisk
from store.recovery.flushed_mark import FlushedMark

logger = logging.getLogger(__name__)

COMMIT_LOG: Final = "commitlog"
# Files that a broker creates in its store at its start, before the first message.
_OF_A_BROKER: Final = ("lock", "abort", "checkpoint", "config/topics.json")
_QUEUES_ASKED: Final = 8
# file:/a and file:///a; no host is allowed.
_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(?://(?=/))?(/.*)")
# Segments may expire while they are listed.
_TRIES: Final = 10


@dataclass(frozen=True)
class SegmentFile:
    """Segment with readable records in physical offsets [`start`, `end`).

    `is_sealed` is set once the log continues in another file: this one no longer changes.
    """

    path: Path
    start: int
    end: int
    is_sealed: bool = True


@dataclass(frozen=True)
class StoreDirectory:
    """Store of one broker: `root` holds ``commitlog/`` and ``consumequeue/``."""

    root: Path
    broker_name: str

    def segments(self, drop_malformed: bool = False) -> list[SegmentFile]:
        """Return the segments with records, in order, up to the last complete record that consumers may see.

        Raises ConfigError if there is no readable CommitLog.  Raises CorruptRecord if the last segment is damaged in
        its middle, or ends before a record that is known to exist; with `drop_malformed` it is read up to its last
        record.
        """
        for _ in range(_TRIES):
            try:
                return self._segments(drop_malformed)
            except FileNotFoundError as error:
                missing = error
            except OSError as error:
                raise ConfigError(
                    f"{error.filename}: {error.strerror}; the user of Spark needs the right to read the store, and "
                    "a file that is no segment must not have the name of one"
                ) from error
        raise ConfigError(f"{missing.filename}: segments expire while they are listed; try again")

    def _segments(self, drop_malformed: bool) -> list[SegmentFile]:
        # In this order: a record that queues name now is in the log when the log is read.
        limit = confirm_limit(self.root)
        asked = self._some_queues()
        queued_end = max((queue.dispatched for queues in asked for queue in queues), default=0)
        promised = max(queued_end, FlushedMark(RealDisk(), self.root).read())
        paths = self._segment_paths()
        for index in range(len(paths) - 1, -1, -1):
            start, path = paths[index]
            with Segment(path, start) as segment:
                end = start + last_whole_record_end(segment, drop_malformed, _late_record(segment, asked))
                whole_end = segment.file_end if end > start and segment.is_blank(end - start) else end
            if end > start:
                sealed = [SegmentFile(path, start, start + path.stat().st_size) for start, path in paths[:index]]
                segments = [*sealed, SegmentFile(path, start, end, is_sealed=False)]
                if not drop_malformed:
                    _check_that_nothing_is_missing(segments)
                self._check_end(whole_end, promised, path, drop_malformed)
                return segments if limit is None else _cut(segments, limit)
        self._check_end(0, promised, paths[-1][1] if paths else self.root / COMMIT_LOG, drop_malformed)
        return []

    def has_record(self, physical_offset: int, size: int) -> bool:
        """Return whether a record of `size` bytes begins at `physical_offset` now, visible to consumers or not."""
        for start, path in reversed(self._segment_paths()):
            if start <= physical_offset:
                with Segment(path, start) as segment:
                    record = segment.span(physical_offset - start)
                    return record is not None and record.size == size
        return False

    def _some_queues(self) -> list[list[ConsumeQueue]]:
        """Return the ConsumeQueues of a few topics."""
        return [open_queues(self.root, topic) for topic in topics_of(self.root)[:_QUEUES_ASKED]]

    @staticmethod
    def _check_end(end: int, promised: int, path: Path, drop_malformed: bool) -> None:
        if promised <= end:
            return
        if drop_malformed:
            logger.warning("event=log_ends_early segment=%s end=%d known_to=%d", path, end, promised)
            return
        raise CorruptRecord(
            end,
            f"the last whole record ends here ({path}), but a ConsumeQueue or the mark of syncs knows of the log up to "
            f"{promised}: its end is damaged or cut off. Start the broker, which recovers it, or see "
            "`sprocket store check`; option mode=DROPMALFORMED reads what there is",
        )

    def _segment_paths(self) -> list[tuple[int, Path]]:
        return log_paths(self.root)


def log_paths(root: Path) -> list[tuple[int, Path]]:
    """Return (first physical offset, file) of every segment of the store at `root`; empty if it never had a message.

    Raises ConfigError if the log is missing or cannot be read.
    """
    directory = root / COMMIT_LOG
    try:
        paths = segment_paths(directory)
    except FileNotFoundError:
        paths = []
    except OSError as error:
        reason = error.strerror or str(error)
        raise ConfigError(f"{directory}: {reason}; path must be a store directory that can be read") from error
    if not paths and not _is_unused(root):
        raise ConfigError(f"{directory} has no segment: files there are named by 20 digits")
    return paths


def _is_unused(root: Path) -> bool:
    """Return whether `root` is a store without messages: it has only the files of a broker's start.

    If there are queues, the log is missing or on another disk.
    """
    return any((root / name).is_file() for name in _OF_A_BROKER) and not every_topic_of(root)


def _late_record(segment: Segment, asked: list[list[ConsumeQueue]]) -> int:
    """Return the position of a record near the end of `segment`, from the first queue of each topic; 0 without one.

    A walk from there finds the end without reading the whole segment.
    """
    latest = 0
    for queue in (queue for queues in asked for queue in queues[:1]):
        past = queue.range_of(0, segment.start + segment.size)[1]
        position = queue.entry(past - 1)[0] - segment.start if past > queue.begin else 0
        if position > latest and segment.span(position) is not None:
            latest = position
    return latest


def last_whole_record_end(segment: Segment, drop_malformed: bool = False, begin: int = 0) -> int:
    """Return the position after the last record of the segment that is being written, 0 if it has none.

    `begin` is the known position of some record, or 0.  The chain ends at zeros, at a blank record, or at an incomplete
    record.  Raises CorruptRecord for damage that records follow, unless `drop_malformed`.
    """
    if segment.size < BLANK_MIN_BYTES or segment.span(begin) is None:
        found = segment.resync(0, min(RESYNC_BYTES, segment.size))
        if found is None:
            return 0
        # A broker that writes the first record between the two looks leaves no damage behind.
        begin = 0 if segment.span(0) is not None else _after_damage(segment, 0, found, drop_malformed)
    while True:
        walk = segment.walk(begin, segment.size)
        stop = walk.stop
        if segment.is_blank(stop):
            return stop
        later = segment.resync(stop + 1, min(stop + RESYNC_BYTES, segment.size))
        if later is not None and segment.span(stop) is None:
            begin = _after_damage(segment, stop, later, drop_malformed)
            continue
        if walk.positions.size and not segment.is_whole(int(walk.positions[-1])):
            return int(walk.positions[-1])
        return stop


def _cut(segments: list[SegmentFile], limit: int) -> list[SegmentFile]:
    """Return the part of `segments` before the physical offset `limit`."""
    return [replace(each, end=min(each.end, limit)) for each in segments if each.start < limit]


def _check_that_nothing_is_missing(segments: list[SegmentFile]) -> None:
    for segment, following in pairwise(segments):
        if segment.end != following.start:
            raise CorruptRecord(
                segment.end,
                f"{segment.path} ends here, but the next segment is {following.path.name}: a file is shortened or "
                "missing; option mode=DROPMALFORMED reads what there is",
            )


def _after_damage(segment: Segment, broken: int, later: int, drop_malformed: bool) -> int:
    if drop_malformed:
        return later
    raise CorruptRecord(
        segment.start + broken,
        f"no record begins here, but one does at {segment.start + later} ({segment.path}); "
        "option mode=DROPMALFORMED reads on after it",
    )


def find_stores(paths: Sequence[str]) -> list[StoreDirectory]:
    """Return the store directories that `paths` name: directories, globs, or ``brokerName=directory``.

    A broker's name is the part of the path that distinguishes its store: for ``a/store`` and ``b/store`` the names are
    ``a`` and ``b``.  A single match of a glob is named by the part that matches the last wildcard, so it keeps its name
    when another store appears.  Raises ConfigError if a path matches nothing or two names are equal.
    """
    named: dict[Path, str] = {}
    alone = ""
    for text in paths:
        name, equals, pattern = text.partition("=")
        if not equals or "/" in name:
            name, pattern = "", text
        pattern = _local_path(pattern)
        matches = [Path(match) for match in sorted(glob.glob(pattern))]  # noqa: PTH207  # the pattern may be absolute
        roots = {root: match for match in matches if (root := _store_root(match)) is not None}
        if not roots:
            found = f"{matches[0]} has no {COMMIT_LOG}/" if matches else "no such directory"
            raise ConfigError(
                f"path {text!r}: {found}; it must be a store directory (storePathRootDir) or a glob of some"
            )
        for root in roots:
            if name and named.get(root, name) not in (name, ""):
                raise ConfigError(f"{root} is named twice in path, as {named[root]!r} and as {name!r}")
            named[root] = name or named.get(root, "")
            alone = _wildcard_part(pattern, roots[root])
    names = _telling_parts(list(named)) if len(named) > 1 or not alone else dict.fromkeys(named, alone)
    stores = [StoreDirectory(root, name or names[root]) for root, name in named.items()]
    taken: dict[str, Path] = {}
    for store in stores:
        if store.broker_name in taken:
            raise ConfigError(
                f"{taken[store.broker_name]} and {store.root} both get the broker name {store.broker_name!r}; "
                "write path as name=directory,name=directory"
            )
        taken[store.broker_name] = store.root
    check_copies([store.root / COMMIT_LOG for store in stores])
    return stores


def _local_path(text: str) -> str:
    """Return `text` without the scheme ``file:`` of Hadoop.  Raises ConfigError for any other scheme."""
    scheme = _SCHEME.match(text)
    if scheme is None:
        return text
    if scheme[1].lower() != "file":
        raise ConfigError(
            f"path {text!r}: a store is read where it is mounted, not by {scheme[1]}; mount or copy it, and name the "
            "directory. Option namesrvAddr reads over the wire"
        )
    return scheme[2]


def split_paths(path: str | None, paths: str | None) -> list[str]:
    """Return the paths in Spark's `path` (separated by commas) and `paths` (a JSON list, from ``load([..])``)."""
    try:
        listed: list[str] = json.loads(paths) if paths else []
    except ValueError as error:
        raise ConfigError(f"option 'paths' is what load([...]) sets, not {paths!r}: give 'path'") from error
    return [part.strip() for text in ([path] if path else []) + listed for part in text.split(",") if part.strip()]


def _store_root(path: Path) -> Path | None:
    if (path / COMMIT_LOG).is_dir() or _is_unused(path):
        return path.resolve()
    return path.resolve().parent if path.name == COMMIT_LOG and path.is_dir() else None


def _wildcard_part(pattern: str, match: Path) -> str:
    """Return the part of `match` for the last wildcard of `pattern`, the log's own directory aside; "" without one."""
    parts = zip(Path(pattern).parts, match.parts, strict=True)
    wild = [found for part, found in parts if glob.has_magic(part) and found != COMMIT_LOG]
    return wild[-1] if wild else ""


def _telling_parts(roots: list[Path]) -> dict[Path, str]:
    """Return the last differing part of each path; of a single path, the last part except ``store``."""
    if len(roots) < 2:
        return {root: root.parent.name if root.name == "store" and root.parent.name else root.name for root in roots}
    depth = min(len(root.parts) for root in roots)
    for back in range(1, depth + 1):
        parts = [root.parts[-back] for root in roots]
        if len(set(parts)) == len(parts):
            return dict(zip(roots, parts, strict=True))
    return {root: str(root) for root in roots}
