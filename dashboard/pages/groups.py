"""Consumer groups: list, and one group with its lag, its members and what blocks them."""

from dashboard.asking.groups import group_answers, group_tables, silent
from dashboard.asking.names import near_groups
from dashboard.page import Page, PageRoute, Visit
from dashboard.views.groups import group_page, group_rows
from dashboard.views.slices import slice_of

_PER_PAGE = 50


async def show_all(visit: Visit) -> Page:
    """Show a part of the list."""
    part = visit.text("name")
    tables = await group_tables(visit.admin, visit.at_once)
    found = slice_of(group_rows(tables, part), visit.number("page", 1, 1, 1_000_000), _PER_PAGE)
    return Page("groups.html", {"slice": found, "name": part, "silent_brokers": silent(dict(tables.groups))})


async def show_one(visit: Visit) -> Page:
    """Show a group."""
    group = visit.needed("group")
    answers = await group_answers(visit.admin, visit.at_once, group)
    page = group_page(group, answers, visit.clock.wall_ms())
    near = [] if page.is_known else await near_groups(visit.admin, visit.at_once, group)
    return Page("group.html", {"group": page, "near": near, "silent_brokers": silent(dict(answers.offsets))})


ROUTES = (PageRoute("/groups", show_all), PageRoute("/group", show_one))
