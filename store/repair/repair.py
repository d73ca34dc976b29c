"""Repair of a stopped store: copies aside what it will replace, acts, and can undo it all."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from sprocket.common.clock import Clock
from sprocket.common.errors import StoreError
from store.inspection.file_sequence import FileSequence
from store.inspection.finding import Findings
from store.inspection.inspected_store import StoreShape
from store.inspection.log_inspection import Gap, LogInspection
from store.inspection.small_files import REPAIR_PREFIX, deleted_topics
from store.inspection.store_inspection import StoreInspection
from store.record.record import TagsCodes
from store.repair import repair_files
from store.repair.batch_rebuild import BatchQueueRebuild
from store.repair.rebuild import IndexRebuild, QueueRebuild
from store.repair.repair_files import RepairFiles
from store.repair.repair_journal import (
    OPEN,
    UNDONE,
    Action,
    Journal,
    RebuildBatchQueues,
    RebuildIndex,
    RebuildQueues,
    describe,
)

Told = Callable[[str], None]
Rebuilding = RebuildQueues | RebuildBatchQueues | RebuildIndex


def _silent(text: str) -> None:
    return


class Repair:
    """Repair of the store at `root`.  No broker may use it meanwhile: the caller holds its lock.

    `told` gets one line before each action.  All methods raise `StoreError`.
    """

    def __init__(self, root: Path, shape: StoreShape, clock: Clock, told: Told = _silent) -> None:
        self.root = root
        self.shape = shape
        self._clock = clock
        self._told = told

    def resume(self) -> Path | None:
        """Finish a repair that was killed.  Return its side folder; None without one."""
        folder = repair_files.unfinished(self.root)
        if folder is not None:
            self._act(folder, repair_files.load(folder))
        return folder

    def act(self, store: StoreInspection, actions: list[Action]) -> Path:
        """Perform `actions`, which were planned for `store`.  Return the side folder."""
        folder = self._new_folder()
        files = RepairFiles(self.root, folder)
        log_directory = str(self.shape.commit_log or "commitlog")
        journal = Journal(
            folder.name.removeprefix(REPAIR_PREFIX), OPEN, log_directory, store.log.file_bytes,
            self.shape.delay_levels, files.keep(actions),
        )  # fmt: skip
        journal.how_to_undo = f"sprocket store repair {self.root} --undo {folder.name} --yes"
        repair_files.save(folder, journal)
        self._act(folder, journal)
        return folder

    def _act(self, folder: Path, journal: Journal) -> None:
        files = RepairFiles(self.root, folder)
        for action in journal.actions:
            self._told(describe(action))
            if isinstance(action, Rebuilding):
                self._rebuild(files, journal, action)
            else:
                files.apply(action)
        repair_files.mark(folder, journal)

    def _rebuild(self, files: RepairFiles, journal: Journal, action: Rebuilding) -> None:
        """Walk the log once.  Remove first what an earlier attempt left."""
        log = FileSequence(self.root / journal.log_directory, journal.segment_bytes)
        made: QueueRebuild | BatchQueueRebuild | IndexRebuild
        tags_codes, deleted = TagsCodes(journal.delay_levels), deleted_topics(self.root, Findings())
        self._remove_made(files, action)
        directory = self.root / _folder_of(action)
        if isinstance(action, RebuildBatchQueues):
            made = BatchQueueRebuild(directory, tags_codes, action.file_bytes, action.queues, deleted)
        elif isinstance(action, RebuildQueues):
            made = QueueRebuild(
                directory, tags_codes, action.file_bytes, action.queues, action.skipped, deleted, action.blanks
            )
        else:
            made = IndexRebuild(directory, action.slot_count, action.capacity)
        for found in LogInspection(log):
            if not isinstance(found, Gap):
                made.add(found)
        made.finish()

    def _remove_made(self, files: RepairFiles, action: Rebuilding) -> None:
        directory = self.root / _folder_of(action)
        if isinstance(action, RebuildIndex):
            files.remove(directory)
        else:
            for topic, queue_id in action.queues:
                files.remove(directory / topic / str(queue_id))

    def undo(self, name: str) -> list[str]:
        """Undo the repair whose side folder is `name`.  Return what was done, for people.

        Raises `StoreError`, with nothing done, if that would destroy messages stored since.
        """
        folder = self.root / Path(name).name
        journal = repair_files.load(folder)
        if journal.state == UNDONE:
            raise StoreError(f"{folder}: this repair was undone already")
        files = RepairFiles(self.root, folder)
        files.check_unwritten(journal.actions)
        said = []
        for action in reversed(journal.actions):
            said.append(describe(action))
            if isinstance(action, Rebuilding):
                self._remove_made(files, action)
            else:
                files.undo(action)
        repair_files.mark(folder, journal, undone=True)
        return said

    def _new_folder(self) -> Path:
        """Return ``repair-20260131T235959Z``, with a number at the end if that exists."""
        seconds = self._clock.wall_ms() // 1000
        stamp = _utc(seconds)
        folder = self.root / f"{REPAIR_PREFIX}{stamp}"
        number = 1
        while folder.exists():
            number += 1
            folder = self.root / f"{REPAIR_PREFIX}{stamp}-{number}"
        return folder


def _folder_of(action: Rebuilding) -> str:
    if isinstance(action, RebuildIndex):
        return "index"
    return "consumequeue" if isinstance(action, RebuildQueues) else "batchconsumequeue"


def settled_shape(shape: StoreShape, store: StoreInspection) -> StoreShape:
    """Return `shape` with the sizes that `store` found, so that a second check of a changed store uses the same."""
    return replace(
        shape,
        segment_bytes=store.log.file_bytes or shape.segment_bytes,
        queue_file_bytes=store.queues.file_bytes or shape.queue_file_bytes,
    )


def _utc(seconds: int) -> str:
    from datetime import UTC, datetime

    return datetime.fromtimestamp(seconds, UTC).strftime("%Y%m%dT%H%M%SZ")
