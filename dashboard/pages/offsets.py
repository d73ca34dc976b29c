"""Reset of a group's offsets: preview, then the change."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from dashboard.asking.names import near_groups, offered_groups, offered_topics
from dashboard.asking.topics import extents_of
from dashboard.page import BadInput, Page, PageRoute, Visit
from dashboard.views.offsets import preview_rows
from sprocket.client.admin.admin_client import AdminError
from sprocket.client.admin.at_once import Outcomes, answered
from sprocket.client.admin.group_admin import TO_END, GroupAdmin
from sprocket.client.admin.message_lookup import MessageLookup
from sprocket.client.message import MessageQueue
from sprocket.remoting.bodies.route import addresses_of
from sprocket.remoting.bodies.stats import OffsetWrapper, TopicOffset
from sprocket.remoting.codes import ResponseCode

_TARGETS: Final = {"start": "the first message", "end": "the end: skip what waits", "time": "a time (UTC)"}


async def form(visit: Visit) -> Page:
    """Show the form, as it was filled in."""
    fields = {name: visit.fields.get(name, "") for name in ("group", "topic", "to", "time")}
    names = {
        "topics": await offered_topics(visit.admin), "groups": await offered_groups(visit.admin, visit.at_once)
    }  # fmt: skip
    empty: dict[str, object] = {"targets": _TARGETS, "near": None, "rows": None, "silent_brokers": [], "done": None}
    return Page("offsets.html", {**fields, **names, **empty})


async def show(visit: Visit) -> Page:
    """Show the form, and a preview if group, topic and target are given."""
    return await _page(visit, None)


async def _page(visit: Visit, done: dict[MessageQueue, int] | None) -> Page:
    group, topic, target = visit.text("group"), visit.text("topic"), visit.text("to")
    values = {**(await form(visit)).values, "done": done}
    if done is not None or not (group and topic and target):
        return Page("offsets.html", values)
    timestamp_ms = _timestamp(visit)
    route, groups = await visit.admin.topic_route(topic), GroupAdmin(visit.admin)
    is_static = bool(route.topic_queue_mapping_by_broker)
    addresses = addresses_of(route.broker_datas)
    here = await (_logical(visit, group, topic) if is_static else _physical(visit, group, topic, addresses))

    async def target_of(queue: MessageQueue) -> int:
        return await groups.offset_at(here.addresses[queue], topic, queue.queue_id, timestamp_ms)

    wanted = await visit.at_once.each(sorted(here.bounds.keys() & here.addresses.keys()), target_of)
    now, bounds = here.committed, here.bounds
    failed = here.failed + [
        (f"{queue.broker_name}, queue {queue.queue_id}", str(one))
        for queue, one in wanted.items()
        if isinstance(one, AdminError)
    ]
    rows = preview_rows(now, bounds, answered(wanted))
    found: dict[str, object] = {"rows": rows, "silent_brokers": failed}
    if not any(row.committed is not None for row in rows):
        near = await near_groups(visit.admin, visit.at_once, group)
        found["near"] = None if near == [group] else near
    return Page("offsets.html", values | found)


@dataclass(frozen=True)
class _Queues:
    """The queues of a topic: who serves them, the group's offsets, their ends, and the brokers that did not answer."""

    addresses: Mapping[MessageQueue, str]
    committed: Mapping[MessageQueue, OffsetWrapper]
    bounds: Mapping[MessageQueue, TopicOffset]
    failed: list[tuple[str, str]]


async def _physical(visit: Visit, group: str, topic: str, addresses: Mapping[str, str]) -> _Queues:
    groups = GroupAdmin(visit.admin)
    committed: Outcomes[str, dict[MessageQueue, OffsetWrapper]] = await visit.at_once.each(
        addresses, lambda name: groups.offsets(addresses[name], group)
    )
    extents = await visit.at_once.each(addresses, lambda name: extents_of(visit.admin, addresses[name], topic))
    bounds = {queue: one for table in answered(extents).values() for queue, one in table.items()}
    return _Queues(
        {queue: addresses[queue.broker_name] for queue in bounds},
        {queue: one for table in answered(committed).values() for queue, one in table.items()},
        bounds,
        [(name, str(one)) for name, one in extents.items() if isinstance(one, AdminError)],
    )


async def _logical(visit: Visit, group: str, topic: str) -> _Queues:
    """Return the logical queues of a static topic.  Raises AdminError if one of its brokers does not answer."""
    addresses = dict(await MessageLookup(visit.admin).queues(topic))
    committed = await visit.admin.consume_stats(group, topic)
    bounds = await visit.admin.topic_stats(topic)
    return _Queues(addresses, committed.offset_table, bounds.offset_table, [])


def _timestamp(visit: Visit) -> int:
    target = visit.needed("to")
    if target == "start":
        return 0
    if target == "end":
        return TO_END
    if target != "time":
        raise BadInput(f"to is {target!r}; allowed are {', '.join(_TARGETS)}")
    text = visit.needed("time")
    try:
        moment = datetime.fromisoformat(text)
        return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)
    except (ValueError, OverflowError):
        raise BadInput(f"time is {text!r}; allowed is a time such as 2026-11-23T09:10 (UTC)") from None


async def reset(visit: Visit) -> Page:
    """Reset the offsets."""
    group, topic, timestamp_ms = visit.needed("group"), visit.needed("topic"), _timestamp(visit)
    groups = GroupAdmin(visit.admin)
    try:
        done = await groups.reset_to_time(topic, group, timestamp_ms)
    except AdminError as error:
        if error.code != ResponseCode.CONSUMER_NOT_ONLINE:
            raise
        # This broker lets its clients do it and none is online.
        rows = await groups.commit_to_time(topic, group, timestamp_ms)
        done = {MessageQueue(topic, row.broker_name, row.queue_id): row.reset_offset for row in rows}
    return await _page(visit, dict(sorted(done.items())))


ROUTES = (PageRoute("/offsets", show, form=form), PageRoute("/offsets/reset", reset, changes=True, form=form))
