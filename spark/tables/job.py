"""Writer of one table: each batch of the log is one commit, together with the place that it reaches.

A batch cuts the new part of the logs into tasks, and workers write Parquet files.  Dead letters are committed first,
then the messages.  After a kill between the two commits the batch is repeated: the table of dead letters records its
own place and takes nothing twice.  After a kill before a commit, files are left that no table has; the next start
removes them by their names.
"""

import logging
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from types import TracebackType
from typing import Final, Self

from spark.files.store_directory import StoreDirectory
from spark.tables.declaration import DEAD_LETTER_SCHEMA, MEBIBYTE, TableDeclaration
from spark.tables.formats.data_file import offsets_from
from spark.tables.formats.table import Table
from spark.tables.formats.table_place import only_writer, open_table
from spark.tables.log_range import LogRange, next_range
from spark.tables.place import BrokerPlace, Places, attempt_of
from spark.tables.schema_change import new_columns, written_schema
from spark.tables.store_lease import StoreLease
from spark.tables.workers import TaskFailed, Workers
from spark.tables.write_task import WriteTask, Written
from spark.tables.write_trouble import writing_to
from sprocket.common.clock import Clock, SystemClock
from sprocket.common.errors import ConfigError

logger = logging.getLogger(__name__)

# Bytes of log without a message of the topic after which the place is committed by itself.
_IDLE_BYTES: Final = 256 * MEBIBYTE


@dataclass
class Totals:
    """Totals of a job since its start."""

    rows: int = 0
    dead_rows: int = 0
    log_bytes: int = 0
    files: int = 0
    commits: int = 0
    compacted_files: int = 0


@dataclass
class TableJob:
    """Writer of the table of `declaration` from the logs of `stores`; a context manager that holds the table's lock.

    Raises ConfigError if the table belongs to another topic, or its columns do not match the declared ones.
    """

    declaration: TableDeclaration
    stores: Sequence[StoreDirectory]
    workers: Workers
    clock: Clock = field(default_factory=SystemClock)
    totals: Totals = field(default_factory=Totals)

    def __enter__(self) -> Self:
        self.declaration.check()
        with writing_to(self.declaration.directory), ExitStack() as stack:
            stack.enter_context(only_writer(self.declaration.directory))
            self._table = self._opened()
            stack.enter_context(only_writer(self.declaration.dead_letter_directory))
            self._dead = self._opened_dead()
            self._places = {
                store.broker_name: place for store in self.stores if (place := self._table.place(store.broker_name))
            }
            self._committed = dict(self._places)
            self._is_behind = False
            self._settle()
            self._leases = [StoreLease(store.root, self.declaration.directory, self.clock) for store in self.stores]
            for lease in self._leases:
                stack.callback(lease.release)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stack.close()

    def run_batch(self) -> bool:
        """Write one batch to the table; return False if there is nothing new.

        Raises DataLost, CorruptRecord, TaskFailed, PlaceMoved, StoreError; the table is unchanged then.
        """
        with writing_to(self.declaration.directory):
            return self._run_batch()

    def _run_batch(self) -> bool:
        ranges = self._ranges()
        self._is_behind = any(each.leaves_some for each in ranges)
        if not ranges:
            return False
        try:
            written = self.workers.run(self._tasks(ranges))
        except TaskFailed:
            self._settle()  # remove the other tasks' files, because the disk may be full
            raise
        after = {each.store.broker_name: self._after(each, written) for each in ranges}
        if written.dead_files:
            self._bury(written, after)
        moved = sum(place.end - self._committed_end(name, ranges) for name, place in after.items())
        places = {**self._places, **after}
        if written.files or moved >= _IDLE_BYTES:
            self._commit(written, places)
        # After the commit: if that fails, the batch is repeated.
        self._places = places
        self.totals.rows += written.rows
        self.totals.dead_rows += written.dead_rows
        self.totals.log_bytes += sum(each.size_bytes for each in ranges)
        return True

    @property
    def is_behind(self) -> bool:
        """Whether the last batch ended before the log, because it had the maximum size."""
        return self._is_behind

    def run_to_end(self, should_stop: Callable[[], bool] = lambda: False) -> Totals:
        """Write batches until there is nothing new, then commit the place; return the totals."""
        while not should_stop() and self.run_batch():
            pass
        if self._places != self._committed:
            with writing_to(self.declaration.directory):
                self._commit(Written(), self._places)
        return self.totals

    def compact(self, min_files: int | None = None) -> int:
        """Merge small files; return the number of merged files."""
        target = self.declaration.target_file_bytes
        least = self.declaration.compact_files if min_files is None else min_files
        if not least:
            return 0
        with writing_to(self.declaration.directory):
            gone = self._table.compact(target, least) + self._dead.compact(target, least)
        if gone:
            logger.info("event=table_compacted table=%s files=%d", self.declaration.directory, gone)
        self.totals.compacted_files += gone
        return gone

    # -- opening -----------------------------------------------------------------------------------------

    def _opened(self) -> Table:
        declaration = self.declaration
        declared = declaration.schema()
        table = open_table(
            declaration.format, declaration.directory, declaration.topic, declared,
            catalog=declaration.catalog, identifier=declaration.identifier,
        )  # fmt: skip
        added = new_columns(table.schema, declared)
        if added:
            table.add_columns(added)
            names = ",".join(each.name for each in added)
            logger.info("event=columns_added table=%s columns=%s", declaration.directory, names)
        self._schema = written_schema(table.schema, declared)
        return table

    def _opened_dead(self) -> Table:
        declaration = self.declaration
        identifier = declaration.identifier and f"{declaration.identifier}_dead_letters"
        table = open_table(
            declaration.format, declaration.dead_letter_directory, declaration.topic, DEAD_LETTER_SCHEMA,
            is_partitioned=False, catalog=declaration.catalog,
            identifier=identifier or ("" if not declaration.catalog else f"rocketmq.{declaration.topic}_dead_letters"),
        )  # fmt: skip
        if new_columns(table.schema, DEAD_LETTER_SCHEMA):
            raise ConfigError(f"{declaration.dead_letter_directory} is no table of dead letters")
        return table

    def _settle(self) -> None:
        self._table.settle(attempt_of(self._committed))
        self._dead.settle(attempt_of(self._dead_places()))

    def _dead_places(self) -> dict[str, BrokerPlace]:
        found = {store.broker_name: self._dead.place(store.broker_name) for store in self.stores}
        return {name: place for name, place in found.items() if place is not None}

    # -- one batch ---------------------------------------------------------------------------------------

    def _ranges(self) -> list[LogRange]:
        declaration = self.declaration
        found = []
        for store, lease in zip(self.stores, self._leases, strict=True):
            place = self._places.get(store.broker_name)
            lease.hold(place.end if place is not None else 0)
            each = next_range(
                store, declaration.topic, place,
                budget_bytes=declaration.batch_bytes, processes=self.workers.processes,
                fail_on_data_loss=declaration.fail_on_data_loss, drop_malformed=declaration.drop_malformed,
            )  # fmt: skip
            if each is not None:
                found.append(each)
        return found

    def _tasks(self, ranges: Sequence[LogRange]) -> list[WriteTask]:
        dead_places = self._dead_places()
        return [
            WriteTask(
                spans,
                self.declaration,
                self._schema,
                self._table.data_root,
                self._dead.data_root,
                attempt_of(self._committed),
                attempt_of(dead_places),
                self._table.is_partitioned,
                self._buried(dead_places),
                {each.store.broker_name: each.begin},
            )
            for each in ranges
            for spans in each.tasks
        ]

    def _buried(self, dead_places: Places) -> dict[str, frozenset[tuple[int, int]]]:
        """Return the dead letters of a batch that was killed before the commit of its messages.

        They are looked up one by one, because a changed declaration may give others.
        """
        found: dict[str, frozenset[tuple[int, int]]] = {}
        for name, place in dead_places.items():
            known = self._places.get(name)
            begin = 0 if known is None else known.end
            if place.end > begin:
                paths = [self._dead.root / each.path for each in self._dead.files()]
                found[name] = offsets_from(paths, name, begin)
        return found

    def _after(self, taken: LogRange, written: Written) -> BrokerPlace:
        name = taken.store.broker_name
        before = self._places.get(name)
        last = written.last.get(name) or (before and (before.last_offset, before.last_timestamp)) or (-1, -1)
        return BrokerPlace(taken.end, *last)

    def _committed_end(self, name: str, ranges: Sequence[LogRange]) -> int:
        known = self._committed.get(name)
        if known is not None:
            return known.end
        return next(each.begin for each in ranges if each.store.broker_name == name)

    def _bury(self, written: Written, after: dict[str, BrokerPlace]) -> None:
        before = self._dead_places()
        self._dead.commit(written.dead_files, before, {**before, **after})
        logger.info(
            "event=dead_letters table=%s rows=%d", self.declaration.dead_letter_directory, written.dead_rows
        )  # fmt: skip

    def _commit(self, written: Written, places: dict[str, BrokerPlace]) -> None:
        self._table.commit(written.files, self._committed, places)
        self._committed = dict(places)
        self.totals.commits += 1
        self.totals.files += len(written.files)
        logger.debug(
            "event=table_commit table=%s topic=%s rows=%d files=%d",
            self.declaration.directory, self.declaration.topic, written.rows, len(written.files),
        )  # fmt: skip
