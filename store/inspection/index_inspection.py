"""Check of index files: headers, slots and chains, and units against the keys of the log's records.

Source: RocketMQ 5.3.3, `IndexFile`, `IndexHeader`, `IndexService.buildIndex`.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from sprocket.common.errors import StoreError
from store.index.key_scan import IndexEntries, entries_of
from store.inspection.file_view import FileView, list_directory
from store.inspection.finding import Findings, Severity
from store.inspection.index_shape import default_slots, slot_count_of
from store.layout import INDEX_HEADER_DTYPE, INDEX_SLOT_BYTES, INDEX_UNIT_DTYPE
from store.scan.record_batch import RecordBatch

HEADER_BYTES: Final = INDEX_HEADER_DTYPE.itemsize
UNIT_BYTES: Final = INDEX_UNIT_DTYPE.itemsize
# Units to search for the end of a part of the log that disagrees.
_SLACK_UNITS: Final = 64 * 1024
_REBUILD: Final = "move the index aside; it is rebuilt from the log"


@dataclass(frozen=True)
class IndexHeader:
    """Header of a file, as Java integers."""

    begin_timestamp: int
    end_timestamp: int
    begin_physical_offset: int
    end_physical_offset: int
    hash_slot_count: int
    index_count: int


class IndexFileView:
    """Index file on the disk.  Raises `StoreError` if it cannot be opened or has no valid size.

    Without `slot_count` it is derived from the content.  If the content is damaged it is `likely_slots`, or the
    default.  `slots` and `units` (unit 0 is never used) are views of the file; `count` is the end of the used units.
    """

    def __init__(
        self, path: Path, slot_count: int | None = None, capacity: int | None = None, likely_slots: int | None = None
    ) -> None:
        self.path = path
        self._view = FileView(path)
        size = self._view.size_bytes
        rest = size - HEADER_BYTES
        told = slot_count_of(self._view.data) if slot_count is None else slot_count
        self.is_told = told is not None
        slots = told or likely_slots or default_slots(size) or 0
        units = (rest - slots * INDEX_SLOT_BYTES) // UNIT_BYTES
        is_whole = capacity in (None, units) and slots * INDEX_SLOT_BYTES + units * UNIT_BYTES == rest
        if slots < 1 or units < 1 or not is_whole:
            raise StoreError(f"{path}: {size} bytes is not a size of an index file")
        data = self._view.data
        self.slot_count, self.capacity = slots, units
        self.header = IndexHeader(*np.frombuffer(data, INDEX_HEADER_DTYPE, 1)[0].item())
        self.slots: npt.NDArray[np.int32] = np.frombuffer(data, ">i4", slots, HEADER_BYTES)
        units_at = HEADER_BYTES + slots * INDEX_SLOT_BYTES
        self.units: npt.NDArray[np.void] = np.frombuffer(data, INDEX_UNIT_DTYPE, units, units_at)
        self.count = min(max(self.header.index_count, 1), units)

    def unit_position(self, index: int) -> int:
        """Return the position of unit `index` in the file."""
        return HEADER_BYTES + self.slot_count * INDEX_SLOT_BYTES + index * UNIT_BYTES

    def used_units(self) -> npt.NDArray[np.void]:
        """Return the units that hold an entry, in the order of the log."""
        return self.units[1 : self.count]


class IndexInspection:
    """All index files of a store.  Give it the log's records in order; it adds to `findings`."""

    def __init__(
        self, root: Path, findings: Findings, slot_count: int | None = None, capacity: int | None = None
    ) -> None:
        self._root = root
        self._findings = findings
        self.is_damaged = False
        self.files: list[IndexFileView] = []
        # Units without a key; keys without a unit, before the last unit's record and after it.
        self.unmatched = self.missing = self.behind = self.entries = 0
        self._first_bad: tuple[str, int, int] | None = None
        # File size -> slots, from files whose content gives the number.
        self._likely: dict[int, int] = {}
        unclear: list[Path] = []
        for name, is_directory, _ in list_directory(root / "index"):
            path = root / "index" / name
            if is_directory or not (name.isascii() and name.isdigit() and len(name) == 17):
                text = "is not an index file: those are named by 17 digits of a date"
                findings.add("index-stray", Severity.NOTE, f"index/{name}", text)
                continue
            if not self._open(path, slot_count, capacity, must_tell=True):
                unclear.append(path)
        for path in unclear:
            self._open(path, slot_count, capacity, must_tell=False)
        self.files.sort(key=lambda file: file.path.name)
        self._at = 0  # file, and unit of it, expected for the next key of the log
        self._unit = 1
        self._started = False
        self._first_offset = self._starting_offset()

    def _open(self, path: Path, slot_count: int | None, capacity: int | None, *, must_tell: bool) -> bool:
        """Open a file.  Return False to retry it later, if `must_tell` and its content gives no number of slots."""
        try:
            size = path.stat().st_size
            file = IndexFileView(path, slot_count, capacity, None if must_tell else self._likely.get(size))
        except (StoreError, OSError) as error:
            if must_tell:
                return False
            self._wrong("index-size", f"index/{path.name}", str(error))
            return True
        if must_tell and not file.is_told:
            return False
        self._likely.setdefault(size, file.slot_count)
        self.files.append(file)
        return True

    def _starting_offset(self) -> int:
        for file in self.files:
            if file.count > 1:
                return int(file.units[1]["physical_offset"])
        return -1

    def _wrong(self, kind: str, path: str, text: str, offset: int | None = None) -> None:
        self.is_damaged = True
        self._findings.add(kind, Severity.WRONG, path, text, _REBUILD, offset)

    def check_files(self) -> None:
        """Check header, slots and chains of each file by itself."""
        for file in self.files:
            path = f"index/{file.path.name}"
            header, units = file.header, file.used_units()
            if not 0 <= header.index_count <= file.capacity:
                self._wrong("index-header", path, f"index count is {header.index_count} of {file.capacity}", 36)
                continue
            if not units.size:
                continue
            first, last = int(units[0]["physical_offset"]), int(units[-1]["physical_offset"])
            if (header.begin_physical_offset, header.end_physical_offset) != (first, last):
                said = f"{header.begin_physical_offset} to {header.end_physical_offset}"
                self._wrong("index-header", path, f"header says records {said}, units say {first} to {last}", 16)
            self._check_chains(file, path, units)

    def _check_chains(self, file: IndexFileView, path: str, units: npt.NDArray[np.void]) -> None:
        hashes = units["key_hash"].astype(np.int64)
        if (hashes < 0).any():
            bad = int(np.argmax(hashes < 0)) + 1
            self._wrong("index-unit", path, f"unit {bad} has a negative hash", file.unit_position(bad))
            return
        slots = hashes % file.slot_count
        order = np.argsort(slots, kind="stable")
        numbers = order + 1
        sorted_slots = slots[order]
        is_first = np.concatenate(([True], sorted_slots[1:] != sorted_slots[:-1]))
        previous = np.zeros(units.size, np.int64)
        previous[order] = np.where(is_first, 0, np.concatenate(([0], numbers[:-1])))
        broken = np.flatnonzero(previous != units["previous_index"])
        if broken.size:
            bad = int(broken[0]) + 1
            text = f"{broken.size} units point to a wrong older unit, unit {bad} first"
            self._wrong("index-chain", path, text, file.unit_position(bad))
        is_last = np.concatenate((is_first[1:], [True]))
        expected = np.zeros(file.slot_count, np.int64)
        expected[sorted_slots[is_last]] = numbers[is_last]
        wrong = np.flatnonzero(expected != file.slots)
        if wrong.size:
            bad = int(wrong[0])
            position = HEADER_BYTES + bad * INDEX_SLOT_BYTES
            self._wrong("index-slot", path, f"{wrong.size} slots do not lead to their newest unit", position)

    def add(self, found: RecordBatch) -> None:
        """Compare the keys of the log's next records with the next units."""
        if not self.files or self._first_offset < 0:
            return
        end = found.end_offset
        if end <= self._first_offset:
            return
        entries = entries_of(found)
        if not self._started:
            # Keys of older records, whose index files have expired.
            skipped = int(np.searchsorted(entries.physical_offsets, self._first_offset, "left"))
            entries = entries.between(skipped, len(entries))
            self._started = True
        self.entries += len(entries)
        self._match(entries, end)

    def _match(self, entries: IndexEntries, end: int) -> None:
        done = 0
        while done < len(entries) and self._at < len(self.files):
            file = self.files[self._at]
            if self._unit >= file.count:
                self._at, self._unit = self._at + 1, 1
                continue
            units = file.units[self._unit : min(self._unit + len(entries) - done, file.count)]
            wanted = entries.between(done, done + units.size)
            equal = (units["physical_offset"] == wanted.physical_offsets) & (units["key_hash"] == wanted.key_hashes)
            good = units.size if equal.all() else int(equal.argmin())
            done += good
            self._unit += good
            if good < units.size:
                self._resume(file, entries.between(done, len(entries)), end)
                return
        self.behind += len(entries) - done

    def _resume(self, file: IndexFileView, entries: IndexEntries, end: int) -> None:
        """Skip the units of this part of the log, up to offset `end`, because units and keys differ."""
        window = file.units[self._unit : min(self._unit + len(entries) + _SLACK_UNITS, file.count)]
        is_behind = np.concatenate((window["physical_offset"] >= end, [True]))
        # Two in a row: a single one may be damaged.
        stop = int(np.argmax(is_behind[:-1] & is_behind[1:])) if window.size else 0
        stop = stop if is_behind[stop] else window.size
        have = set(zip(window["physical_offset"][:stop].tolist(), window["key_hash"][:stop].tolist(), strict=True))
        want = set(zip(entries.physical_offsets.tolist(), entries.key_hashes.tolist(), strict=True))
        # A repeated unit does no harm: RocketMQ writes some again after a crash.
        extra, missing = have - want, want - have
        if (extra or missing) and self._first_bad is None:
            self._first_bad = (f"index/{file.path.name}", file.unit_position(self._unit), self._unit)
        self.unmatched += len(extra)
        newest = int(file.units[file.count - 1]["physical_offset"])
        is_last = self._at == len(self.files) - 1
        behind = sum(offset > newest for offset, _ in missing) if is_last else 0
        self.behind += behind
        self.missing += len(missing) - behind
        self._unit += stop

    def finish(self, *, is_behind_fine: bool) -> None:
        """Report what is left after the walk.  With `is_behind_fine` the newest records need not be indexed yet."""
        if self.unmatched:
            path, position, unit = self._first_bad or ("index", 0, 0)
            text = f"{self.unmatched} units belong to no key of the log, near unit {unit}"
            self._wrong("index-unit", path, text, position)
        missing = self.missing + (0 if is_behind_fine else self.behind)
        if missing:
            self._wrong("index-missing", "index", f"{missing} keys of the log's records are not in the index")
        rest = sum(file.count - 1 for file in self.files[self._at + 1 :])
        if self._at < len(self.files):
            rest += max(0, self.files[self._at].count - self._unit)
        if rest and self._started:
            self._wrong("index-beyond", "index", f"{rest} units point after the log's last record")
