"""Task of a table: a range of the log becomes Parquet files of messages, and of messages that do not decode.

Its only effect is these files, so it runs in this process, in another one, or on a Spark executor.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from spark.decode.damage import ADVICE
from spark.decode.decoder import DecodeOptions
from spark.decode.inflate import InflatesTooMuch, inflate_bodies
from spark.read.log_reader import read_span
from spark.read.plan import Span
from spark.rows.filters import RowFilter
from spark.tables.body.body_types import BodyDecoder, Failure, Rows
from spark.tables.declaration import DEAD_LETTER_SCHEMA, TableDeclaration
from spark.tables.formats.data_file import HOUR_MS, DataFile, DataWriter
from spark.tables.write_trouble import trouble
from sprocket.common.errors import SprocketError
from sprocket.common.limits import MAX_INFLATED_BYTES

logger = logging.getLogger(__name__)

_US_PER_HOUR: Final = HOUR_MS * 1000
_ADVICE: Final = "--drop-malformed, or dropMalformed: true in a file of tables, skips it"
NO_TIME: Final = "the store timestamp is no date"


@dataclass(frozen=True)
class WriteTask:
    """Write the messages in `spans` below `root`, and those that do not decode below `dead_root`.

    `buried`: by broker, physical and queue offsets of dead letters that are already in their table.
    """

    spans: tuple[Span, ...]
    declaration: TableDeclaration
    schema: pa.Schema  # of the files
    root: Path
    dead_root: Path
    attempt: str
    dead_attempt: str
    is_partitioned: bool = True
    buried: Mapping[str, frozenset[tuple[int, int]]] = field(default_factory=dict)
    begins: Mapping[str, int] = field(default_factory=dict)  # by broker; messages before it are already in the table

    @property
    def weight(self) -> int:
        """Approximate bytes of the log."""
        return sum(span.weight for span in self.spans)


@dataclass
class Written:
    """Result of a task.  `last`: by broker, physical offset and store timestamp (ms) of the last message."""

    files: list[DataFile] = field(default_factory=list)
    dead_files: list[DataFile] = field(default_factory=list)
    rows: int = 0
    dead_rows: int = 0
    last: dict[str, tuple[int, int]] = field(default_factory=dict)

    def add(self, other: "Written") -> None:
        """Add the result of another task."""
        self.files += other.files
        self.dead_files += other.dead_files
        self.rows += other.rows
        self.dead_rows += other.dead_rows
        for broker, place in other.last.items():
            self.last[broker] = max(place, self.last.get(broker, place))


@dataclass(frozen=True)
class Failed:
    """Failure of a task, as text: exceptions do not survive the way between processes."""

    reason: str


def run_task(task: WriteTask) -> Written | Failed:
    """Run the task.  An expected error is returned as `Failed`, and its files are removed."""
    writing = _Writing(task)
    try:
        for span in task.spans:
            writing.write(span)
        return writing.close()
    except SprocketError as error:
        writing.discard()
        # A table has no option `mode`, but its own option.
        return Failed(f"{type(error).__name__}: {error}".replace(ADVICE, _ADVICE))
    except OSError as error:
        writing.discard()
        return Failed(trouble(error, task.root))
    except BaseException:
        writing.discard()
        raise


class _Writing:
    def __init__(self, task: WriteTask) -> None:
        declaration = task.declaration
        self._task = task
        self._schema = task.schema
        self._decoder: BodyDecoder = declaration.body.decoder()
        self._own = list(declaration.columns)
        extra = [name for name in (*DEAD_LETTER_SCHEMA.names, "body", "sysFlag") if name != "reason"]
        self._read = [*self._own, *[name for name in dict.fromkeys(extra) if name not in self._own]]
        self._rows = RowFilter(frozenset({declaration.topic}))
        self._writer = DataWriter(
            task.root, self._schema, task.attempt,
            is_partitioned=task.is_partitioned, compression=declaration.compression,
        )  # fmt: skip
        self._dead = DataWriter(task.dead_root, DEAD_LETTER_SCHEMA, task.dead_attempt, is_partitioned=False)
        self._result = Written()

    def write(self, span: Span) -> None:
        options = DecodeOptions(
            broker_name=span.store.broker_name, drop_malformed=self._task.declaration.drop_malformed
        )
        for arrays, _ in read_span(span, self._read, self._rows, options):
            columns = self._not_taken_yet(span.store.broker_name, dict(zip(self._read, arrays, strict=True)))
            if len(columns["body"]):
                self._write(span.store.broker_name, columns, len(columns["body"]))

    def close(self) -> Written:
        self._result.files = self._writer.close()
        self._result.dead_files = self._dead.close()
        return self._result

    def discard(self) -> None:
        self._writer.discard()
        self._dead.discard()

    def _not_taken_yet(self, broker: str, columns: dict[str, pa.Array]) -> dict[str, pa.Array]:
        """Return the rows after the table's place: a reader may begin a little earlier, at a certain record."""
        new = columns["physicalOffset"].to_numpy() >= self._task.begins.get(broker, 0)
        if new.all():
            return columns
        return {name: column.filter(pa.array(new)) for name, column in columns.items()}

    def _write(self, broker: str, columns: dict[str, pa.Array], count: int) -> None:
        try:
            bodies, inflating = inflate_bodies(columns["body"], columns["sysFlag"].to_numpy(), MAX_INFLATED_BYTES)
        except InflatesTooMuch:
            half = count // 2
            self._write(broker, {name: column.slice(0, half) for name, column in columns.items()}, half)
            self._write(broker, {name: column.slice(half) for name, column in columns.items()}, count - half)
            return
        failures = [Failure(row, reason) for row, reason in inflating.items()]
        failures += _without_time(columns["storeTimestamp"])
        usable = None
        if failures:
            usable = np.delete(np.arange(count), [failure.row for failure in failures])
            bodies = bodies.take(pa.array(usable))
        decoded = self._decoder.decode(bodies)
        if decoded.kept is not None:
            rows = np.arange(count) if usable is None else usable
            failures += [Failure(int(rows[each.row]), each.reason) for each in decoded.failures]
            usable = rows[decoded.kept]
        self._note(broker, columns)
        self._keep(columns, decoded.columns, usable)
        if failures:
            self._bury(broker, columns, failures)

    def _keep(self, columns: Mapping[str, pa.Array], decoded: Sequence[pa.Array], usable: Rows | None) -> None:
        own = [columns[name] for name in self._own]
        if usable is not None:
            if not usable.size:
                return
            index = pa.array(usable)
            own = [column.take(index) for column in own]
        arrays = [
            column if column.type == each.type else column.cast(each.type)
            for column, each in zip([*own, *decoded], self._schema, strict=True)
        ]
        batch = pa.RecordBatch.from_arrays(arrays, schema=self._schema)
        stored = own[self._own.index("storeTimestamp")]
        self._writer.add(batch, _hours(stored))
        self._result.rows += batch.num_rows

    def _bury(self, broker: str, columns: Mapping[str, pa.Array], failures: list[Failure]) -> None:
        by_row = {each.row: each for each in reversed(failures)}  # the first of two reasons counts
        new = sorted(by_row.values(), key=lambda each: each.row)
        buried = self._task.buried.get(broker)
        if buried:
            offsets, places = columns["physicalOffset"].to_numpy(), columns["queueOffset"].to_numpy()
            new = [each for each in new if (int(offsets[each.row]), int(places[each.row])) not in buried]
        if not new:
            return
        index = pa.array([each.row for each in new], pa.int64())
        arrays = [
            pa.array([each.reason for each in new], pa.string()) if name == "reason" else columns[name].take(index)
            for name in DEAD_LETTER_SCHEMA.names
        ]
        batch = pa.RecordBatch.from_arrays(arrays, schema=DEAD_LETTER_SCHEMA)
        self._dead.add(batch, np.zeros(len(new), np.int64))
        self._result.dead_rows += len(new)

    def _note(self, broker: str, columns: Mapping[str, pa.Array]) -> None:
        """Record the last message."""
        offsets = columns["physicalOffset"].to_numpy()
        at = int(np.argmax(offsets))
        stored = columns["storeTimestamp"][at].cast(pa.int64()).as_py()
        place = (int(offsets[at]), -1 if stored is None else stored // 1000)
        self._result.last[broker] = max(place, self._result.last.get(broker, place))


def _without_time(stored: pa.Array) -> list[Failure]:
    """Return the rows whose timestamp has no hour."""
    if not stored.null_count:
        return []
    rows = np.flatnonzero(pc.is_null(stored).to_numpy(zero_copy_only=False))
    return [Failure(row, NO_TIME) for row in rows.tolist()]


def _hours(stored: pa.Array) -> npt.NDArray[np.int64]:
    hours: npt.NDArray[np.int64] = stored.cast(pa.int64()).to_numpy() // _US_PER_HOUR
    return hours
