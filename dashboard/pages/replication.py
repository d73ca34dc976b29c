"""Replication into this cluster: how far it is behind other clusters, and why a queue stands still."""

from typing import Final

from dashboard.asking.links import TABLE
from dashboard.asking.masters import from_masters
from dashboard.page import Page, PageRoute, Visit
from dashboard.views.slices import slice_of
from sprocket.client.admin.at_once import answered, check_rights, failures

_PER_PAGE: Final = 50


async def show(visit: Visit) -> Page:
    """Show the links, and a part of their queues: those that stand still or are late come first."""
    part = visit.text("part").lower()
    masters = await from_masters(visit, visit.admin.broker_runtime_info)  # for administrators alone
    outcomes = await visit.links.outcomes()
    check_rights(outcomes)
    reports = answered(outcomes).get(TABLE, [])
    rows = [(report.source, queue) for report in reports for queue in report.queues if part in queue.topic.lower()]
    rows.sort(key=lambda row: (not row[1].blocked, -row[1].lag, row[0], row[1].topic, row[1].broker, row[1].queue))
    silent = [*masters.silent, *((name, str(error)) for name, error in failures(outcomes).items())]
    values = {
        "reports": reports, "slice": slice_of(rows, visit.number("page", 1, 1, 1_000_000), _PER_PAGE), "part": part,
        "silent_brokers": silent,
    }  # fmt: skip
    return Page("replication.html", values)


ROUTES = (PageRoute("/replication", show),)
