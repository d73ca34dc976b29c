"""Replication into this cluster: how far it is behind other clusters, and why a queue stands still."""

from typing import Final

from dashboard.asking.masters import from_masters
from dashboard.page import Page, PageRoute, Visit
from dashboard.views.slices import slice_of
from replicate.cluster import Cluster
from replicate.report import LinkReport, reports_of_target
from sprocket.client.admin.at_once import answered, check_rights, failures
from sprocket.client.connection.client_instance import ClientSettings

_PER_PAGE: Final = 50
_TABLE: Final = "the table of replication"


async def show(visit: Visit) -> Page:
    """Show the links, and a part of their queues: those that stand still or are late come first."""
    part = visit.text("part").lower()
    masters = await from_masters(visit, visit.admin.broker_runtime_info)  # for administrators alone
    outcomes = await visit.at_once.each([_TABLE], lambda _: _reports(visit))
    check_rights(outcomes)
    reports = answered(outcomes).get(_TABLE, [])
    rows = [(report.source, queue) for report in reports for queue in report.queues if part in queue.topic.lower()]
    rows.sort(key=lambda row: (not row[1].blocked, -row[1].lag, row[0], row[1].topic, row[1].broker, row[1].queue))
    silent = [*masters.silent, *((name, str(error)) for name, error in failures(outcomes).items())]
    values = {
        "reports": reports, "slice": slice_of(rows, visit.number("page", 1, 1, 1_000_000), _PER_PAGE), "part": part,
        "silent_brokers": silent,
    }  # fmt: skip
    return Page("replication.html", values)


async def _reports(visit: Visit) -> list[LinkReport]:
    settings = visit.settings
    client = ClientSettings(namesrv=settings.name_servers, credentials=visit.credentials, tls=settings.tls)
    async with Cluster("", client, visit.clock) as cluster:
        return await reports_of_target(cluster, visit.clock)


ROUTES = (PageRoute("/replication", show),)
