"""Replication into this cluster: how far it is behind other clusters, and why a queue stands still."""

import asyncio
from typing import Final

from dashboard.asking.masters import from_masters
from dashboard.page import Page, PageRoute, Visit
from dashboard.views.slices import slice_of
from replicate.cluster import Cluster
from replicate.report import LinkReport, reports_of_target
from sprocket.client.admin.admin_client import AdminClient
from sprocket.client.admin.at_once import AtOnce, Outcomes, answered, check_rights, failures
from sprocket.client.connection.client_instance import ClientSettings
from sprocket.common.cancellation import outcome_of
from sprocket.common.errors import ClientError

_PER_PAGE: Final = 50
_TABLE: Final = "the table of replication"
_Outcomes = Outcomes[str, list[LinkReport]]
# Looks that go on, by the client of their session.
_looks: Final[dict[AdminClient, asyncio.Task[_Outcomes]]] = {}


async def show(visit: Visit) -> Page:
    """Show the links, and a part of their queues: those that stand still or are late come first."""
    part = visit.text("part").lower()
    masters = await from_masters(visit, visit.admin.broker_runtime_info)  # for administrators alone
    outcomes = await _outcomes(visit)
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


async def _outcomes(visit: Visit) -> _Outcomes:
    """Return what the table says, or why it is silent, as AtOnce does.

    A look makes connections of its own, and in an outage it takes long: so it takes no place of other requests, and
    the visits of a session share one.
    """
    client = visit.admin
    look = _looks.get(client)
    if look is None:
        look = _looks[client] = asyncio.create_task(AtOnce(1).each([_TABLE], lambda _: _reports(visit)))
        look.add_done_callback(lambda _: _looks.pop(client, None))
    return await outcome_of(look, ClientError("the dashboard stops"))


async def _reports(visit: Visit) -> list[LinkReport]:
    settings = visit.settings
    client = ClientSettings(namesrv=settings.name_servers, credentials=visit.credentials, tls=settings.tls)
    async with Cluster("", client, visit.clock) as cluster:
        return await reports_of_target(cluster, visit.clock)


ROUTES = (PageRoute("/replication", show),)
