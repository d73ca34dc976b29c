"""Table of quotas, stored in ``config/quotas.json`` and replicated like topics and groups.  Not in RocketMQ."""

import logging
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from typing import Final

import msgspec

from broker.config.versioned_table import EntryTable
from broker.plan.version import PlanVersion
from broker.quota.rules import MAX_QUOTAS, check
from sprocket.common.clock import Clock
from sprocket.common.errors import RequestError
from sprocket.common.files.config_file import ConfigFile
from sprocket.common.logs.peer_lines import peer_lines
from sprocket.common.refusal_reasons import Reason
from sprocket.remoting.bodies.quota import Quota, QuotaTableBody
from sprocket.remoting.codec.fastjson import dumps, loads
from sprocket.remoting.codes import ResponseCode

logger = logging.getLogger(__name__)
_FIELD: Final = "quotaTable"


class QuotaTable(EntryTable[Quota]):
    """Table of quotas by name.  `on_change` is called after each change."""

    def __init__(self, file: ConfigFile, clock: Clock, plan_version: PlanVersion) -> None:
        super().__init__(file, clock, _FIELD, plan_version)
        self.on_change: list[Callable[[Mapping[str, Quota]], None]] = []

    def decode(self, content: bytes) -> None:
        """Take over the quotas of the file.  Raises ProtocolError."""
        self._take_over(loads(content, QuotaTableBody))
        logger.info("event=quotas_loaded count=%d", len(self.by_name))

    def set(self, quota: Quota) -> None:
        """Add or replace a quota.  Wait for `save`; if that fails, the table is as before.  Raises RequestError."""
        check(quota)
        if quota.name not in self.by_name and len(self.by_name) >= MAX_QUOTAS:
            remark = f"there are {MAX_QUOTAS} quotas already: use a pattern for several names, or delete quotas"
            raise RequestError(ResponseCode.INVALID_PARAMETER, remark, Reason.INVALID_PARAMETER)
        self._set({quota.name: quota})

    def delete(self, name: str) -> None:
        """Remove a quota.  Wait for `save`.  Raises RequestError if there is none."""
        if name not in self.by_name:
            raise RequestError(ResponseCode.INVALID_PARAMETER, f"there is no quota {name!r}", Reason.NOT_FOUND)
        self._set({name: None})

    def plans_changed(self) -> None:
        """Drop all plans, because something that follows from quotas has changed."""
        self._plan_version.rise()

    def _enter(self, changes: Mapping[str, Quota | None]) -> None:
        super()._enter(changes)
        self._changed()

    def _changed(self) -> None:
        for listener in self.on_change:
            listener(self.by_name)

    def _on_saved(self, changes: list[Sequence[str]]) -> None:
        for names in changes:
            for name in names:
                quota = self.by_name.get(name)
                text = "none" if quota is None else msgspec.json.encode(quota).decode()
                peer_lines.info(logger, "", "event=quota_set name=%s quota=%s", name, text)

    def _without_entries(self) -> msgspec.Struct:
        return QuotaTableBody(data_version=copy(self.data_version))

    def encode(self) -> bytes:
        """Return the body of the response to GET_ALL_QUOTAS."""
        return dumps(QuotaTableBody(dict(self.by_name), self.data_version))

    # A slave's table is its master's

    def replace(self, table: QuotaTableBody) -> None:
        """Replace the table by a master's; it is saved soon."""
        if table != QuotaTableBody(self.by_name, self.data_version):
            self._take_over(table)
            self.changes += 1

    def _take_over(self, table: QuotaTableBody) -> None:
        self.by_name.clear()
        self._install(table.quota_table, table.data_version)
        self._changed()
