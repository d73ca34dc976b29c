"""Topics: list, and one topic."""

from dashboard.asking.topics import summaries, topic_answers, topic_names
from dashboard.page import BadInput, Page, PageRoute, Visit
from dashboard.views.slices import slice_of
from dashboard.views.topics import KINDS, chosen, topic_page, topic_rows

_PER_PAGE = 25


async def show_all(visit: Visit) -> Page:
    """Show a part of the list."""
    kind = visit.text("kind") or "user"
    if kind not in KINDS:
        raise BadInput(f"kind is {kind!r}; allowed are {', '.join(KINDS)}")
    part = visit.text("name")
    names, own = await topic_names(visit.admin)
    found = slice_of(chosen(names, own, kind, part), visit.number("page", 1, 1, 1_000_000), _PER_PAGE)
    rows = topic_rows(*await summaries(visit.admin, visit.at_once, found.items))
    return Page("topics.html", {"slice": found, "rows": rows, "kind": kind, "kinds": KINDS, "name": part})


async def show_one(visit: Visit) -> Page:
    """Show a topic with its queues."""
    topic = visit.needed("topic")
    return Page("topic.html", {"topic": topic_page(topic, await topic_answers(visit.admin, visit.at_once, topic))})


ROUTES = (PageRoute("/topics", show_all), PageRoute("/topic", show_one))
