"""Store directory under inspection: its files as found, and what is known of them so far."""

from dataclasses import dataclass
from pathlib import Path

from sprocket.common.errors import StoreError
from sprocket.common.limits import MAX_MESSAGE_BYTES
from store.config.store_config import DEFAULT_DELAY_LEVELS
from store.flush.checkpoint import Checkpoint
from store.inspection.batch_queue_inspection import BatchQueueTableInspection
from store.inspection.compacted_inspection import CompactedInspection
from store.inspection.file_sequence import FileSequence
from store.inspection.file_view import is_locked
from store.inspection.finding import Findings
from store.inspection.index_inspection import IndexInspection
from store.inspection.log_inspection import Gap, Tail
from store.inspection.queue_table_inspection import QueueTableInspection
from store.inspection.small_files import batch_topics, deleted_topics
from store.record.record import TagsCodes


@dataclass(frozen=True)
class StoreShape:
    """Sizes with which the files were created; None: derive them from sizes and names."""

    segment_bytes: int | None = None
    queue_file_bytes: int | None = None
    batch_queue_file_bytes: int | None = None
    index_slots: int | None = None
    index_units: int | None = None
    delay_levels: str = DEFAULT_DELAY_LEVELS
    commit_log: Path | None = None
    max_message_bytes: int = MAX_MESSAGE_BYTES


@dataclass
class LogFigures:
    """Figures of a walk of the log."""

    start: int = 0
    end: int = 0
    records: int = 0
    walked_from: int = 0
    first_store_timestamp: int = 0
    last_store_timestamp: int = 0
    newest_store_timestamp: int = 0

    def add(self, count: int, first: int, last: int, newest: int) -> None:
        """Add `count` records: store timestamps, ms, of the first, the last, and the newest one."""
        if not self.records:
            self.first_store_timestamp = first
        self.records += count
        self.last_store_timestamp = last
        self.newest_store_timestamp = max(self.newest_store_timestamp, newest)


class InspectedStore:
    """Store at `root`.  Only names and sizes are read yet.

    `is_ours`: the caller holds the store's lock, so no broker does.
    Raises `StoreError` if `root` is not a store, or its directories cannot be read.
    """

    def __init__(
        self, root: Path, shape: StoreShape | None = None, *, quick: bool = False, is_ours: bool = False
    ) -> None:
        self.root = root
        self.shape = shape or StoreShape()
        self.quick = quick
        self.findings = Findings()
        self.is_running = not is_ours and is_locked(root / "lock")
        log_directory = self.shape.commit_log or root / "commitlog"
        if not root.is_dir() or not (log_directory.is_dir() or (root / "consumequeue").is_dir()):
            raise StoreError(f"{root}: is no store directory: there is no commitlog/ in it")
        self.log = FileSequence(log_directory, self.shape.segment_bytes)
        self.figures = LogFigures()
        self.gaps: list[Gap] = []
        self.tail = Tail(0, 0, "")
        self.checkpoint: Checkpoint | None = None
        self.checkpoint_holds = True
        self.queue_list_holds = self.flushed_mark_holds = True
        self.config: dict[str, bool] = {}
        self.was_clean = not (root / "abort").exists()
        tags_codes = TagsCodes(self.shape.delay_levels)
        deleted = deleted_topics(root, self.findings)
        self.batch_queues = BatchQueueTableInspection(
            root / "batchconsumequeue", self.shape.batch_queue_file_bytes, batch_topics(root), deleted
        )
        self.queues = QueueTableInspection(
            root / "consumequeue", tags_codes, self.shape.queue_file_bytes, self.batch_queues.topics,
            deleted, is_running=self.is_running,
        )  # fmt: skip
        self.compacted = CompactedInspection(root, self.findings, deleted, quick=quick)
        self.index = IndexInspection(root, self.findings, self.shape.index_slots, self.shape.index_units)

    def relative(self, path: Path) -> str:
        """Return `path` as findings name it."""
        return path.relative_to(self.root).as_posix() if path.is_relative_to(self.root) else str(path)
