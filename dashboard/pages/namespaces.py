"""Namespaces of the masters: what each has and may have; set and delete limits."""

from typing import Any, Final

import msgspec

from dashboard.asking.masters import NOTHING, Changed, from_masters, on_masters
from dashboard.page import BadInput, Page, PageRoute, Visit
from dashboard.views.slices import slice_of
from sprocket.remoting.bodies.namespace import NamespacePolicy
from sprocket.remoting.message.message_type import MessageType

_PER_PAGE: Final = 50
_MAX: Final = 1 << 53
# Fields of the form, by those of `NamespacePolicy`.
AMOUNTS: Final = {
    "max_topics": "Topics", "max_queues": "Queues of each topic", "max_groups": "Consumer groups",
    "max_connections": "Connections", "max_message_bytes": "Bytes of a message",
    "retention_hours": "Hours for which messages can be read",
    "retention_bytes": "Newest bytes of a queue that can be read",
    "topic_queues": "Queues of a topic that its first send creates",
}  # fmt: skip


async def show(visit: Visit) -> Page:
    """Show a part of the list, and the form with the limits of one namespace."""
    return await _page(visit, NOTHING)


async def _page(visit: Visit, changed: Changed) -> Page:
    part = visit.text("part").lower()
    tables = await from_masters(visit, visit.admin.namespaces)
    rows = [
        (broker, use) for broker, table in tables.found.items() for use in table.values() if part in use.name.lower()
    ]
    rows.sort(key=lambda row: (row[1].name, row[0]))
    edited = next((use.policy for _, use in rows if use.policy is not None and use.name == visit.text("edit")), None)
    values = {
        "slice": slice_of(rows, visit.number("page", 1, 1, 1_000_000), _PER_PAGE), "part": part,
        "done": changed.done, "failed": changed.failed, "silent_brokers": tables.silent,
        "amounts": AMOUNTS, "types": list(MessageType), "form": _filled(visit, edited, changed),
    }  # fmt: skip
    return Page("namespaces.html", values)


def _filled(visit: Visit, edited: NamespacePolicy | None, changed: Changed) -> dict[str, str]:
    """Return the fields of the form: those of limits to change, else what was filled in and not accepted."""
    if edited is not None:
        amounts = {name: str(getattr(edited, name) or "") for name in AMOUNTS}
        return {"name": edited.name, "message_types": " ".join(edited.message_types), **amounts}
    given = {} if changed.done else visit.fields
    filled = {name: given.get(name, "") for name in ("name", "message_types", *AMOUNTS)}
    return filled | {"name": filled["name"] or visit.text("edit")}


async def set_limits(visit: Visit) -> Page:
    """Set the limits of a namespace at all masters; its template for new topics stays as it is."""
    name = visit.needed("name")
    values: dict[str, Any] = {field: visit.number(field, 0, 0, _MAX) for field in AMOUNTS}
    types = tuple(visit.text("message_types").upper().split())
    unknown = [one for one in types if one not in list(MessageType)]
    if unknown:
        raise BadInput(f"type {unknown[0]!r} is unknown; allowed are {', '.join(MessageType)}")

    async def set_at(address: str) -> None:
        use = (await visit.admin.namespaces(address)).get(name)
        policy = NamespacePolicy(name=name) if use is None or use.policy is None else use.policy
        await visit.admin.set_namespace(address, msgspec.structs.replace(policy, message_types=types, **values))

    return await _page(visit, await on_masters(visit, f"The limits of namespace {name} are set", set_at))


async def delete(visit: Visit) -> Page:
    """Delete the limits of a namespace at all masters.  What is in it stays."""
    name = visit.needed("name")
    what = f"The limits of namespace {name} are deleted"
    return await _page(visit, await on_masters(visit, what, lambda one: visit.admin.delete_namespace(one, name)))


ROUTES = (
    PageRoute("/namespaces", show),
    PageRoute("/namespaces/set", set_limits, changes=True, form=show),
    PageRoute("/namespaces/delete", delete, changes=True, form=show),
)
