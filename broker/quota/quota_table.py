"""Table of quotas, stored in ``config/quotas.json``.  Not in RocketMQ."""

from broker.config.operator_table import OperatorTable
from broker.plan.version import PlanVersion
from broker.quota.rules import check
from sprocket.common.clock import Clock
from sprocket.common.files.config_file import ConfigFile
from sprocket.remoting.bodies.quota import Quota, QuotaTableBody


class QuotaTable(OperatorTable[Quota, QuotaTableBody]):
    """Table of quotas by name."""

    def __init__(self, file: ConfigFile, clock: Clock, plan_version: PlanVersion) -> None:
        super().__init__(file, clock, plan_version, "quota", QuotaTableBody)

    def set(self, quota: Quota) -> None:
        """Add or replace a quota.  Wait for `save`; if that fails, the table is as before.  Raises RequestError."""
        check(quota)
        self._put(quota.name, quota)

    def plans_changed(self) -> None:
        """Drop all plans, because something that follows from quotas has changed."""
        self._plan_version.rise()
