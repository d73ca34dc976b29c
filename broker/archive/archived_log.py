"""The broker's log, topics and tables as the writer of the archive sees them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from broker.core import BrokerCore
from broker.topic.attributes import RESERVE_TIME, bound
from sprocket.common.errors import StoreError
from sprocket.remoting.bodies.topic import TopicConfig
from store.backup.tables import definition_tables, offset_tables
from store.compaction.manifest import Part, compacted_parts
from store.record.record import store_timestamp_of
from store.retention.rules import Watermarks
from store.tier.segment_writer import Kept
from store.tier.upload_plan import ArchiveRules, LogView

_HOUR_MS: Final = 3_600_000
# Sends go before uploads until so much waits, or the disk is so full that files should be removed.
_PATIENT_BYTES: Final = 4 << 30


class ArchivedLog:
    """Implements `store.tier.archive_writer.ArchiveSource`."""

    def __init__(self, core: BrokerCore) -> None:
        self._core = core
        self._log = core.store.master_log()
        # Times for which messages stay, by topic; None after a change of topics.
        self._reserved_ms: dict[str, int] | None = None
        core.topics.on_change.append(self._topics_changed)

    def _topics_changed(self, configs: list[TopicConfig]) -> None:
        self._reserved_ms = None

    def view(self) -> LogView:
        """Return the log as it is now."""
        log = self._log
        safe = min(log.confirm_offset, log.flushed_offset)
        return LogView(log.min_offset, log.end_offset, safe, self._core.config.store.mapped_file_size_commit_log)

    def rules(self) -> ArchiveRules:
        """Return the settings as they are now."""
        store = self._core.config.store
        return ArchiveRules(
            store.tiered_store_file_reserved_time * _HOUR_MS, self._reserved(),
            store.commit_log_rolling_interval * _HOUR_MS, store.commit_log_rolling_minimum_size,
            store.tiered_store_delete_file_enable, self._patient_bytes(), self._core.store.compaction.topics,
        )  # fmt: skip

    def _patient_bytes(self) -> int:
        used = self._core.store.disk.used_ratio(self._core.config.store.commit_log_path)
        return _PATIENT_BYTES if used < Watermarks.of(self._core.config.store).max_used else 0

    def _reserved(self) -> dict[str, int]:
        if self._reserved_ms is None:
            hours = {name: bound(config.attributes, RESERVE_TIME) for name, config in self._core.topics.by_name.items()}
            self._reserved_ms = {name: value * _HOUR_MS for name, value in hours.items() if value is not None}
        return self._reserved_ms

    def kept(self) -> Kept:
        """Return which topics are archived, as settings and topics are now."""
        return Kept(None if self._core.config.store.tiered_store_all_topics else frozenset(self._reserved()))

    def store_time_at(self, offset: int) -> int:
        """Return the store time, ms, of the record at `offset`; -1 if there is none."""
        try:
            record = self._core.store.record_at(offset) if offset < self._log.confirm_offset else None
        except StoreError:
            return -1  # the end of a file, or damage, which the upload will report
        return -1 if record is None else store_timestamp_of(record)

    def tables(self) -> dict[str, bytes]:
        """Return the broker's small files, as a backup has them; for any thread."""
        root = self._core.config.store.store_path_root_dir
        return offset_tables(root) | definition_tables(root)

    def compacted_end(self) -> int:
        """Return the physical offset before which compaction has taken in all messages of compacted topics."""
        held = self._core.store.compaction.held_from()
        return self._log.end_offset if held is None else held

    def compacted(self) -> dict[tuple[str, int], tuple[Path, Sequence[Part]]]:
        """Return directory and parts of each compacted queue, as they are on the disk; for any thread."""
        return compacted_parts(self._core.config.store.store_path_root_dir)
