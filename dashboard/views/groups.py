"""Consumer groups: lag, members, and what blocks them.  Pure."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from dashboard.asking.groups import GroupAnswers, GroupTables
from dashboard.asking.topics import Offsets
from dashboard.views.words import duration
from sprocket.client.admin.admin_client import AdminError
from sprocket.client.admin.admin_requests import queues_of
from sprocket.client.admin.at_once import answered
from sprocket.remoting.bodies.client import MessageQueue, SubscriptionData
from sprocket.remoting.bodies.consumption import ConsumerRunningInfo, ProcessQueueInfo
from sprocket.remoting.message.topic_names import RETRY_PREFIX
from sprocket.remoting.version_names import version_text

# A consumer that has messages and finished none for this long is stuck.
STUCK_MS: Final = 60_000


@dataclass(frozen=True)
class GroupRow:
    """One group of the list."""

    name: str
    lag: int
    topics: tuple[str, ...]
    brokers: int


def group_rows(tables: GroupTables, part: str) -> list[GroupRow]:
    """Return the groups whose names contain `part`, the largest lag first."""
    names: dict[str, set[str]] = {}
    for broker, table in answered(tables.groups).items():
        for name in table.subscription_group_table:
            names.setdefault(name, set()).add(broker)
    offsets: dict[str, Offsets] = {}
    for of_broker in answered(tables.offsets).values():
        for name, found in of_broker.items():
            offsets.setdefault(name, {}).update(found)
    rows = [
        GroupRow(name, lag_of(offsets.get(name, {})), _topics(offsets.get(name, {})), len(brokers))
        for name, brokers in names.items()
        if part.lower() in name.lower()
    ]
    return sorted(rows, key=lambda row: (-row.lag, row.name))


def lag_of(offsets: Offsets) -> int:
    """Return the messages that a group has yet to acknowledge."""
    return sum(max(0, one.broker_offset - one.consumer_offset) for one in offsets.values())


def _topics(offsets: Offsets) -> tuple[str, ...]:
    return tuple(sorted({queue.topic for queue in offsets if not queue.topic.startswith(RETRY_PREFIX)}))


@dataclass(frozen=True, kw_only=True)
class QueueLag:
    """Progress of a group in one queue; `holder` is the client that consumes it, if that is known."""

    topic: str
    broker: str
    queue_id: int
    next_offset: int
    committed: int
    lag: int
    behind: str
    holder: str


@dataclass(frozen=True, kw_only=True)
class MemberRow:
    """One consumer; `why_not` says why it tells nothing about its work."""

    client_id: str
    address: str
    language: str
    version: str
    subscriptions: tuple[str, ...]
    queues: int
    held_messages: int
    rates: tuple[str, ...]
    why_not: str


@dataclass(frozen=True)
class GroupPage:
    """One group."""

    name: str
    lag: int
    model: str
    queues: tuple[QueueLag, ...]
    members: tuple[MemberRow, ...]
    obstacles: tuple[str, ...]
    topics: tuple[str, ...]
    is_known: bool


def group_page(group: str, answers: GroupAnswers, now_ms: int) -> GroupPage:
    """Return the page of a group."""
    offsets: Offsets = {}
    for found in answered(answers.offsets).values():
        offsets.update(found)
    running = answered(answers.running)
    work = {client: _work(info) for client, info in running.items()}
    holders: dict[MessageQueue, str] = {queue: client for client, table in work.items() for queue in table}
    for client, info in running.items():
        holders |= dict.fromkeys(_queues(info.mq_pop_table), client)
    members = _members(answers, work)
    model = next((one.message_model or "" for one in answered(answers.members).values()), "")
    consume_off = [
        name
        for name, table in answered(answers.groups).items()
        if group in table.subscription_group_table and not table.subscription_group_table[group].consume_enable
    ]
    queues = tuple(
        QueueLag(
            topic=queue.topic,
            broker=queue.broker_name,
            queue_id=queue.queue_id,
            next_offset=one.broker_offset,
            committed=one.consumer_offset,
            lag=max(0, one.broker_offset - one.consumer_offset),
            behind=duration(now_ms - one.last_timestamp) if one.last_timestamp > 0 else "",
            holder=holders.get(queue, ""),
        )
        for queue, one in sorted(offsets.items())
    )
    found_obstacles = [
        *(f"Consuming is switched off for this group on broker {name} (consumeEnable=false)." for name in consume_off),
        *_obstacles(queues, members, running, work, now_ms, model),
    ]
    is_known = bool(offsets or members) or any(
        group in table.subscription_group_table for table in answered(answers.groups).values()
    )
    return GroupPage(group, lag_of(offsets), model, queues, members, tuple(found_obstacles), _topics(offsets), is_known)


def _work(info: ConsumerRunningInfo[str]) -> dict[MessageQueue, ProcessQueueInfo]:
    try:
        return queues_of(info.mq_table)
    except AdminError:
        return {}


def _queues(table: Mapping[str, object]) -> list[MessageQueue]:
    try:
        return list(queues_of(table))
    except AdminError:
        return []


def _members(answers: GroupAnswers, work: dict[str, dict[MessageQueue, ProcessQueueInfo]]) -> tuple[MemberRow, ...]:
    clients = {
        client.client_id: client
        for connection in answered(answers.members).values()
        for client in connection.connection_set
    }
    rows = []
    for client_id, client in sorted(clients.items()):
        info = answers.running.get(client_id)
        told = None if info is None or isinstance(info, AdminError) else info
        rows.append(
            MemberRow(
                client_id=client_id,
                address=client.client_addr,
                language=client.language,
                version=version_text(client.version),
                subscriptions=subscriptions(told.subscription_set) if told else (),
                queues=len(work.get(client_id, {})) + (len(told.mq_pop_table) if told else 0),
                held_messages=sum(one.cached_msg_count for one in work.get(client_id, {}).values()),
                rates=tuple(
                    f"{topic}: {one.consume_ok_tps:.1f} per second, {one.consume_rt:.1f} ms each"
                    + (f", {one.consume_failed_msgs} failed in the last hour" if one.consume_failed_msgs else "")
                    for topic, one in sorted(told.status_table.items())
                    if not topic.startswith(RETRY_PREFIX)
                )
                if told
                else (),
                why_not=str(info) if isinstance(info, AdminError) else "" if told else "was not asked",
            )
        )
    return tuple(rows)


def subscriptions(found: Iterable[SubscriptionData]) -> tuple[str, ...]:
    """Return subscriptions as texts, without the one to the group's own retry topic."""
    return tuple(
        sorted(
            f"{one.topic}: {one.sub_string or '*'}"
            + ("" if one.expression_type == "TAG" else f" ({one.expression_type})")
            for one in found
            if not one.topic.startswith(RETRY_PREFIX)
        )
    )


def _obstacles(
    queues: tuple[QueueLag, ...], members: tuple[MemberRow, ...], running: dict[str, ConsumerRunningInfo[str]],
    work: dict[str, dict[MessageQueue, ProcessQueueInfo]], now_ms: int, model: str,
) -> Iterator[str]:  # fmt: skip
    """Yield, in words, what keeps the group from its messages."""
    waiting = [queue for queue in queues if queue.lag and not queue.topic.startswith(RETRY_PREFIX)]
    if not members:
        if waiting:
            count = sum(queue.lag for queue in waiting)
            yield f"No consumer is connected, and {count} messages wait. Start a consumer."
        return
    told = {client: subscriptions(info.subscription_set) for client, info in running.items()}
    if len(set(told.values())) > 1:
        yield (
            "The consumers subscribe differently, so messages of some topics or tags are skipped or never consumed: "
            + "; ".join(f"{client} has {', '.join(mine) or 'nothing'}" for client, mine in sorted(told.items())[:5])
            + ". Give all members of a group the same subscriptions."
        )
    for client, table in sorted(work.items()):
        for queue, one in sorted(table.items()):
            idle_ms = now_ms - one.last_consume_timestamp
            if one.cached_msg_count and one.last_consume_timestamp and idle_ms >= STUCK_MS:
                yield (
                    f"{client} has {one.cached_msg_count} messages of {queue.topic}, queue {queue.queue_id} of "
                    f"{queue.broker_name}, and finished none for {duration(idle_ms)}. Look at its handler and its log."
                )
    everyone_told = len(running) == len(members)
    if everyone_told and model != "BROADCASTING":
        free = [queue for queue in waiting if not queue.holder]
        if free:
            names = ", ".join(f"{queue.topic} queue {queue.queue_id} of {queue.broker}" for queue in free[:5])
            more = f" and {len(free) - 5} more" if len(free) > 5 else ""
            yield (
                f"No consumer has taken {names}{more}, where messages wait. "
                "Wait for the next rebalance (20 s), then check that a member subscribes to the topic."
            )
