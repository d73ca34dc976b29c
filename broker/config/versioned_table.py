"""Tables with a data version: by it, name servers and slaves see that a table has changed.

Source: RocketMQ 5.3.3, `TopicConfigManager`, `SubscriptionGroupManager`, `DataVersion`.
"""

from collections.abc import Callable, Iterable, Mapping
from copy import copy
from itertools import count
from typing import Any, Generic, TypeVar

import msgspec

from broker.plan.version import PlanVersion
from sprocket.common.clock import Clock
from sprocket.common.files.config_file import ConfigFile
from sprocket.common.files.saved_table import SavedTable
from sprocket.remoting.bodies.topic import DataVersion
from sprocket.remoting.codec.pretty_json import EntryTexts

T = TypeVar("T")
B = TypeVar("B", bound=msgspec.Struct)


class VersionedTable(SavedTable):
    """Table with a data version."""

    def __init__(self, file: ConfigFile, clock: Clock) -> None:
        super().__init__(file)
        self._clock = clock
        self.data_version = DataVersion(timestamp=clock.wall_ms())
        self._part_numbers = count(1)

    def part_version(self) -> DataVersion:
        """Return a version for a part of the table; no whole table and no other part has it."""
        return DataVersion(self.data_version.state_version, self._clock.wall_ms(), -next(self._part_numbers))


def _keep() -> None:
    pass


class EntryTable(VersionedTable, Generic[T, B]):
    """Table of named entries, and perhaps other fields.  A write encodes only the entries that changed since the last.

    The whole table, in its file and for slaves, has the form `body`: its first field has the entries, and
    `data_version` their version.  Callers must not modify the entries.
    """

    def __init__(self, file: ConfigFile, clock: Clock, body: type[B], plan_version: PlanVersion) -> None:
        super().__init__(file, clock)
        self._plan_version = plan_version
        self.by_name: dict[str, T] = {}
        self._body = body
        self._field = msgspec.structs.fields(body)[0]
        self._texts = EntryTexts[T](self._field.encode_name)
        self._unwritten: dict[str, T | None] | None = None  # since the last write; None means all

    def get(self, name: str) -> T | None:
        """Return an entry; None if there is none."""
        return self.by_name.get(name)

    def __contains__(self, name: str) -> bool:
        return name in self.by_name

    def snapshot(self) -> B:
        """Return the whole table as responses and slaves get it."""
        return self._body_of(dict(self.by_name))

    def replace(self, table: B) -> None:
        """Replace the table by a master's, unless the version is the same; does not save it."""
        if self._version_of(table) != self.data_version:
            self.changes += 1
            self._take_over(table)

    def _take_over(self, table: B) -> None:
        self.by_name.clear()
        self._install(table)

    def _install(self, table: B) -> None:
        """Add or replace entries by those of the file or of a master."""
        self.by_name.update(getattr(table, self._field.name))
        self.data_version = self._version_of(table)
        self._unwritten = None
        self._plan_version.rise()

    def _version_of(self, table: Any) -> DataVersion:
        version: DataVersion = table.data_version
        return version

    def _body_of(self, entries: dict[str, T]) -> B:
        """Return a whole table with `entries`; changes after this call must not change it."""
        return self._body(entries, data_version=copy(self.data_version))

    def _set(self, changes: Mapping[str, T | None], undo_others: Callable[[], None] = _keep) -> None:
        """Change entries and begin to save them; None removes an entry.

        If that fails, the entries are as before, and `undo_others` undoes what changed besides.  The version is a new
        one: a name server or a slave may have the undone change under the last.
        """
        before = {name: self.by_name.get(name) for name in changes}
        self._enter(changes)

        def undo() -> None:
            self._enter(before)
            self._not_written()
            undo_others()

        self._change(list(changes), undo)

    def _not_written(self) -> None:
        """Note that a write failed."""
        self._unwritten = None  # the file is as before, so the next write must contain the whole table

    def _enter(self, changes: Mapping[str, T | None]) -> None:
        self.data_version = copy(self.data_version)
        self.data_version.next(self._clock.wall_ms())
        self._plan_version.rise()
        for name, entry in changes.items():
            if entry is None:
                self.by_name.pop(name, None)
            else:
                self.by_name[name] = entry
        if self._unwritten is not None:
            self._unwritten.update(changes)

    def _outcome(self, changes: Iterable[Iterable[str]]) -> tuple[list[T], list[str]]:
        """Return the entries that changes have left, by their names, and the names that have none any more."""
        names = dict.fromkeys(name for names in changes for name in names)
        changed = [entry for entry in map(self.by_name.get, names) if entry is not None]
        return changed, [name for name in names if name not in self.by_name]

    def _content(self) -> Callable[[], bytes]:
        is_whole = self._unwritten is None
        entries = dict(self.by_name) if self._unwritten is None else self._unwritten
        self._unwritten = {}
        frame = self._body_of({})

        def encode() -> bytes:
            if is_whole:
                self._texts.clear()
            self._texts.update(entries)
            return self._texts.within(frame)

        return encode
