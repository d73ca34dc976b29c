"""Quotas of all masters with what is used of them.  Pure."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from sprocket.remoting.bodies.quota import Quota, QuotaUse


@dataclass(frozen=True)
class QuotaRow:
    """One quota as some masters have it, with its uses there, the fullest first, by the names of the masters."""

    quota: Quota
    brokers: tuple[str, ...]
    uses: tuple[tuple[str, QuotaUse], ...]

    @property
    def exceeded(self) -> int:
        """Requests that it refused or delayed, or would have, since the masters started."""
        return sum(use.exceeded_total for _, use in self.uses)


def quota_rows(tables: Mapping[str, dict[str, Quota]], uses: Mapping[str, list[QuotaUse]]) -> list[QuotaRow]:
    """Return the quotas of masters, the fullest first; those that differ between masters are rows of their own."""
    found: dict[Quota, list[str]] = {}
    for broker, table in tables.items():
        for quota in table.values():
            found.setdefault(quota, []).append(broker)
    used: dict[tuple[str, str], list[QuotaUse]] = defaultdict(list)
    for broker, of_broker in uses.items():
        for use in of_broker:
            used[broker, use.quota].append(use)
    rows = []
    for quota, brokers in found.items():
        own = [(broker, use) for broker in brokers for use in used.get((broker, quota.name), ())]
        own.sort(key=lambda one: -one[1].part)
        rows.append(QuotaRow(quota, tuple(sorted(brokers)), tuple(own)))
    return sorted(rows, key=lambda row: (-row.uses[0][1].part if row.uses else 0.0, row.quota.name))
