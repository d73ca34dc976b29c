"""Tables with a data version: by it, name servers and slaves see that a table has changed.

Source: RocketMQ 5.3.3, `TopicConfigManager`, `SubscriptionGroupManager`, `DataVersion`.
"""

from abc import abstractmethod
from collections.abc import Callable, Mapping
from copy import copy
from itertools import count
from typing import Generic, TypeVar

import msgspec

from broker.plan.version import PlanVersion
from sprocket.common.clock import Clock
from sprocket.common.files.config_file import ConfigFile
from sprocket.common.files.saved_table import SavedTable
from sprocket.remoting.bodies.topic import DataVersion
from sprocket.remoting.codec.pretty_json import EntryTexts

T = TypeVar("T")


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


class EntryTable(VersionedTable, Generic[T]):
    """Table of named entries, and perhaps other fields.  A write encodes only the entries that changed since the last.

    Callers must not modify the entries.
    """

    def __init__(self, file: ConfigFile, clock: Clock, field: str, plan_version: PlanVersion) -> None:
        super().__init__(file, clock)
        self._plan_version = plan_version
        self.by_name: dict[str, T] = {}
        self._texts = EntryTexts[T](field)
        self._unwritten: dict[str, T | None] | None = None  # since the last write; None means all

    @abstractmethod
    def _without_entries(self) -> msgspec.Struct:
        """Return the content of the file without entries; changes after this call must not change it."""

    def _install(self, entries: Mapping[str, T], version: DataVersion) -> None:
        """Add or replace entries by those of the file or of a master."""
        self.by_name.update(entries)
        self.data_version = version
        self._unwritten = None
        self._plan_version.rise()

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

    def _content(self) -> Callable[[], bytes]:
        is_whole = self._unwritten is None
        entries = dict(self.by_name) if self._unwritten is None else self._unwritten
        self._unwritten = {}
        frame = self._without_entries()

        def encode() -> bytes:
            if is_whole:
                self._texts.clear()
            self._texts.update(entries)
            return self._texts.within(frame)

        return encode
