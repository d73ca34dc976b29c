"""Quotas of the masters: what each limits, how much of it is used and refused; set and delete."""

from typing import Any, Final

from dashboard.asking.masters import NOTHING, Changed, from_masters, on_masters
from dashboard.page import Page, PageRoute, Visit
from dashboard.views.quotas import quota_rows
from dashboard.views.slices import slice_of
from sprocket.client.admin.at_once import answered
from sprocket.remoting.bodies.quota import Quota

_PER_PAGE: Final = 50
_MAX: Final = 1 << 53
# Fields of the form, by those of `Quota`.
AMOUNTS: Final = {
    "messages_in": "Messages sent per second", "bytes_in": "Bytes sent per second",
    "messages_out": "Messages delivered per second", "bytes_out": "Bytes delivered per second",
    "requests": "Requests per second", "storage_bytes": "Bytes that a topic stores",
    "backlog_messages": "Messages that a group has yet to read",
}  # fmt: skip
FLAGS: Final = {
    "is_soft": "soft: only report", "is_cluster_wide": "divide among the masters",
    "drops_oldest": "a full topic drops its oldest messages",
}  # fmt: skip


async def show(visit: Visit) -> Page:
    """Show a part of the list, and the form with one of the quotas."""
    return await _page(visit, NOTHING)


async def _page(visit: Visit, changed: Changed) -> Page:
    part = visit.text("part").lower()
    tables = await from_masters(visit, visit.admin.quotas)
    masters = tables.masters
    uses = answered(await visit.at_once.each(masters, lambda name: visit.admin.quota_usage(masters[name])))
    rows = [row for row in quota_rows(tables.found, uses) if part in row.quota.name.lower()]
    edited = next((row.quota for row in rows if row.quota.name == visit.text("edit")), None)
    values: dict[str, Any] = {
        "slice": slice_of(rows, visit.number("page", 1, 1, 1_000_000), _PER_PAGE), "part": part,
        "done": changed.done, "failed": changed.failed, "brokers": sorted(masters),
        "silent_brokers": tables.silent,
        "amounts": AMOUNTS, "flags": FLAGS, "form": _filled(visit, edited, changed),
    }  # fmt: skip
    return Page("quotas.html", values)


def _filled(visit: Visit, edited: Quota | None, changed: Changed) -> dict[str, str]:
    """Return the fields of the form: those of a quota to change, else what was filled in and not accepted."""
    names = ("name", *AMOUNTS, "burst_millis", *FLAGS)
    if edited is not None:
        return {name: str(getattr(edited, name) or "") for name in names}
    given = {} if changed.done else visit.fields
    return {name: given.get(name, "") for name in names}


async def set_quota(visit: Visit) -> Page:
    """Set a quota at all masters, in place of the one of its name."""
    values: dict[str, Any] = {name: visit.number(name, 0, 0, _MAX) for name in AMOUNTS}
    values |= {name: bool(visit.text(name)) for name in FLAGS}
    quota = Quota(visit.needed("name"), burst_millis=visit.number("burst_millis", 1000, 1, 60_000), **values)
    what = f"Quota {quota.name} is set"
    return await _page(visit, await on_masters(visit, what, lambda address: visit.admin.set_quota(address, quota)))


async def delete(visit: Visit) -> Page:
    """Delete a quota at all masters."""
    name = visit.needed("name")
    what = f"Quota {name} is deleted"
    return await _page(visit, await on_masters(visit, what, lambda address: visit.admin.delete_quota(address, name)))


ROUTES = (
    PageRoute("/quotas", show),
    PageRoute("/quotas/set", set_quota, changes=True, form=show),
    PageRoute("/quotas/delete", delete, changes=True, form=show),
)
