"""Schedules: what fires next, what was refused and why; pause, resume, trigger and delete."""

from collections.abc import Awaitable, Callable
from typing import Final

from dashboard.asking.masters import from_masters
from dashboard.page import Page, PageRoute, Visit
from dashboard.views.slices import slice_of
from sprocket.client.schedules import Schedules, condition_text, rule_text

_PER_PAGE: Final = 50


async def show(visit: Visit) -> Page:
    """Show a part of the list."""
    return await _page(visit, "")


async def _page(visit: Visit, done: str) -> Page:
    part = visit.text("part").lower()
    states = await from_masters(visit, visit.admin.schedules)
    found = [
        (one, rule_text(one.schedule), condition_text(one))
        for of_broker in states.found.values()
        for one in of_broker
        if part in one.schedule.name.lower() or part in one.schedule.topic.lower()
    ]
    found.sort(key=lambda row: (not row[0].last_error, row[0].schedule.name, row[0].schedule.topic))
    values = {
        "slice": slice_of(found, visit.number("page", 1, 1, 1_000_000), _PER_PAGE), "part": part, "done": done,
        "silent_brokers": states.silent,
    }  # fmt: skip
    return Page("schedules.html", values)


def _change(done: str, change: Callable[[Schedules, str, str], Awaitable[None]]) -> Callable[[Visit], Awaitable[Page]]:
    """Return the handler of a form that changes one schedule."""

    async def handler(visit: Visit) -> Page:
        name, topic = visit.needed("name"), visit.needed("topic")
        await change(Schedules(visit.admin), name, topic)
        return await _page(visit, f"Schedule {name} of topic {topic} {done}.")

    return handler


ROUTES = (
    PageRoute("/schedules", show),
    PageRoute("/schedules/pause", _change("is paused", Schedules.pause), changes=True, form=show),
    PageRoute("/schedules/resume", _change("goes on", Schedules.resume), changes=True, form=show),
    PageRoute("/schedules/trigger", _change("has sent its message", Schedules.trigger), changes=True, form=show),
    PageRoute("/schedules/delete", _change("is deleted", Schedules.delete), changes=True, form=show),
)
