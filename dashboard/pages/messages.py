"""Messages: by id, by key, or the newest of a topic; one message with its trace."""

from contextlib import suppress

from dashboard.asking import messages as asking
from dashboard.asking.names import offered_topics
from dashboard.page import Page, PageRoute, Visit
from dashboard.views.messages import message_page, message_row
from sprocket.client.admin.admin_client import AdminError
from sprocket.client.admin.at_once import Outcomes
from sprocket.client.message import MessageQueue, ReceivedMessage
from sprocket.client.trace.lookup import Found
from sprocket.remoting.bodies.stats import OffsetWrapper

_MAX_NEWEST = 100


async def form(visit: Visit) -> Page:
    """Show the form, as it was filled in."""
    fields = {name: visit.fields.get(name, "") for name in ("topic", "id", "key", "newest")}
    topics = await offered_topics(visit.admin)
    return Page("messages.html", {**fields, "topics": topics, "rows": None, "silent_brokers": [], "left_out": 0})


async def show(visit: Visit) -> Page:
    """Show the form, and what was found."""
    topic, message_id, key = visit.text("topic"), visit.text("id"), visit.text("key")
    count = visit.number("newest", 0, 0, _MAX_NEWEST)
    values = (await form(visit)).values
    if not topic or not (message_id or key or count):
        return Page("messages.html", values)
    if message_id:
        message = await asking.by_id(visit.admin, topic, message_id)
        if message is not None:
            return await _one(visit, message)
        return Page("messages.html", {**values, "rows": []})
    if key:
        found = await asking.by_key(visit.admin, topic, key)
        return Page("messages.html", {**values, "rows": [message_row(one) for one in found]})
    newest = await asking.newest(visit.admin, visit.at_once, topic, count)
    rows = [message_row(one) for one in newest.messages]
    return Page(
        "messages.html", {**values, "rows": rows, "silent_brokers": newest.silent, "left_out": newest.queues_left_out}
    )


async def _one(visit: Visit, message: ReceivedMessage) -> Page:
    traces: list[Found] | AdminError
    try:
        traces = await asking.traces(visit.admin, message.message_id)
    except AdminError as error:
        traces = error
    progress: Outcomes[str, dict[MessageQueue, OffsetWrapper]] = {}
    # The message itself is worth showing without it.
    with suppress(AdminError):
        progress = await asking.progress(visit.admin, visit.at_once, message)
    dead = await asking.dead_letters(visit.admin, visit.at_once, message, progress)
    return Page("message.html", {"message": message_page(message, traces, progress, dead)})


ROUTES = (PageRoute("/messages", show, form=form),)
