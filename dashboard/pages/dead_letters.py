"""Dead letters of groups: view, preview of a redrive, redrive."""

from dashboard.asking.messages import Newest, newest
from dashboard.asking.names import near_groups
from dashboard.asking.topics import summaries, topic_names
from dashboard.page import Page, PageRoute, Visit
from dashboard.views.messages import message_row
from dashboard.views.slices import slice_of
from dashboard.views.topics import chosen, topic_rows
from sprocket.client.admin.admin_client import AdminError
from sprocket.client.admin.redrive import DeadLetterFilter, Redrive, RedriveFailed, Redriven
from sprocket.client.connection.identity import new_identity
from sprocket.remoting.codes import ResponseCode
from sprocket.remoting.message.topic_names import DLQ_PREFIX, dlq_topic

_PER_PAGE = 25
_SHOWN = 50
_MAX_REDRIVEN = 1000
_COUNT = 100


async def show(visit: Visit) -> Page:
    """Show the groups with dead letters, or those of one group."""
    group = visit.text("group")
    if group:
        return await _group(visit, group)
    names, own = await topic_names(visit.admin)
    found = slice_of(chosen(names, own, "dead", visit.text("name")), visit.number("page", 1, 1, 1_000_000), _PER_PAGE)
    rows = topic_rows(*await summaries(visit.admin, visit.at_once, found.items))
    groups = [(row.name.removeprefix(DLQ_PREFIX), row) for row in rows]
    return Page("dead_letters.html", {"slice": found, "groups": groups, "name": visit.text("name")})


async def form(visit: Visit) -> Page:
    """Show the dead letters of a group, and the form as it was filled in."""
    return await _group(visit, visit.needed("group"), has_preview=False)


async def _group(
    visit: Visit, group: str, outcome: dict[str, object] | None = None, *, has_preview: bool = True
) -> Page:
    found: Newest | None = None
    near: list[str] = []
    try:
        found = await newest(visit.admin, visit.at_once, dlq_topic(group), _SHOWN)
    except AdminError as error:
        # The first dead letter makes the topic.
        if error.code != ResponseCode.TOPIC_NOT_EXIST:
            raise
        near = await near_groups(visit.admin, visit.at_once, group)
    preview: Redriven | None = None
    if found is not None and outcome is None and has_preview and visit.text("preview"):
        preview = await Redrive(visit.admin, group, to_retry=bool(visit.text("to_retry"))).run(
            _filter(visit), dry_run=True, max_messages=_count(visit)
        )
    values = {
        "group": group, "rows": [message_row(one) for one in found.messages] if found else [],
        "silent_brokers": found.silent if found else [], "has_topic": found is not None,
        "is_known": found is not None or near == [group], "near": near, "tag": visit.text("tag"),
        "key": visit.text("key"), "to_retry": bool(visit.text("to_retry")),
        "count": visit.fields.get("count") or _COUNT, "max_count": _MAX_REDRIVEN, "preview": preview,
        "outcome": outcome, "shown": _SHOWN,
    }  # fmt: skip
    return Page("dead_letter_group.html", values)


def _filter(visit: Visit) -> DeadLetterFilter:
    tag, key = visit.text("tag"), visit.text("key")
    return DeadLetterFilter(tags=frozenset({tag} if tag else ()), keys=frozenset({key} if key else ()))


def _count(visit: Visit) -> int:
    return visit.number("count", _COUNT, 1, _MAX_REDRIVEN)


async def redrive(visit: Visit) -> Page:
    """Send dead letters to their topics again."""
    group = visit.needed("group")
    owner = (await new_identity(visit.clock, None)).client_id
    work = Redrive(visit.admin, group, to_retry=bool(visit.text("to_retry")), owner=owner)
    try:
        outcome: dict[str, object] = {"done": await work.run(_filter(visit), max_messages=_count(visit)), "failed": ""}
    except RedriveFailed as error:
        outcome = {"done": error.done, "failed": str(error)}
    return await _group(visit, group, outcome)


ROUTES = (
    PageRoute("/dead-letters", show, form=form),
    PageRoute("/dead-letters/redrive", redrive, changes=True, form=form),
)
