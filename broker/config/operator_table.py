"""Tables of what operators set, replicated like topics and groups."""

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Generic, TypeVar

import msgspec

from broker.config.versioned_table import EntryTable
from broker.plan.version import PlanVersion
from sprocket.common.clock import Clock
from sprocket.common.errors import RequestError
from sprocket.common.files.config_file import ConfigFile
from sprocket.common.logs.peer_lines import peer_lines
from sprocket.common.refusal_reasons import Reason
from sprocket.remoting.codec.fastjson import loads
from sprocket.remoting.codes import ResponseCode

logger = logging.getLogger(__name__)
T = TypeVar("T", bound=msgspec.Struct)
B = TypeVar("B", bound=msgspec.Struct)
_MAX_ENTRIES: Final = 10_000


class OperatorTable(EntryTable[T, B], Generic[T, B]):
    """Table of entries by name.

    `kind` says what an entry is, in log lines and refusals.  `on_change` is called after each change.
    """

    def __init__(self, file: ConfigFile, clock: Clock, plan_version: PlanVersion, kind: str, body: type[B]) -> None:
        super().__init__(file, clock, body, plan_version)
        self._kind = kind
        self.on_change: list[Callable[[Mapping[str, T]], None]] = []

    def decode(self, content: bytes) -> None:
        """Take over the entries of the file.  Raises ProtocolError."""
        self._take_over(loads(content, self._body))
        logger.info("event=operator_table_loaded kind=%s count=%d", self._kind, len(self.by_name))

    def _put(self, name: str, entry: T) -> None:
        """Add or replace an entry.  Raises RequestError."""
        if name not in self.by_name and len(self.by_name) >= _MAX_ENTRIES:
            remark = f"there are {_MAX_ENTRIES} {self._kind}s already; delete some"
            raise RequestError(ResponseCode.INVALID_PARAMETER, remark, Reason.INVALID_PARAMETER)
        self._set({name: entry})

    def delete(self, name: str) -> None:
        """Remove an entry.  Wait for `save`.  Raises RequestError if there is none."""
        if name not in self.by_name:
            remark = f"there is no {self._kind} {name[:255]!r}"
            raise RequestError(ResponseCode.INVALID_PARAMETER, remark, Reason.NOT_FOUND)
        self._set({name: None})

    def _enter(self, changes: Mapping[str, T | None]) -> None:
        super()._enter(changes)
        self._changed()

    def _changed(self) -> None:
        for listener in self.on_change:
            listener(self.by_name)

    def _on_saved(self, changes: list[Sequence[str]]) -> None:
        for names in changes:
            for name in names:
                entry = self.by_name.get(name)
                text = "none" if entry is None else msgspec.json.encode(entry).decode()
                peer_lines.info(logger, "", "event=operator_entry_set kind=%s name=%s value=%s", self._kind, name, text)

    def encode(self) -> bytes:
        """Return the whole table."""
        # Not by the codec of Java's JSON, which takes a hundred times as long: only our own brokers read it.
        return msgspec.json.encode(self._body_of(self.by_name))

    # A slave's table is its master's

    def replace(self, table: B) -> None:
        """Replace the table by a master's; it is saved soon."""
        if table != self._body_of(self.by_name):
            self._take_over(table)
            self.changes += 1

    def _take_over(self, table: B) -> None:
        super()._take_over(table)
        self._changed()
