"""Topics: a list, and one topic with its queues.  Pure."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from dashboard.asking.topics import Extents, TopicAnswers, type_of
from sprocket.client.admin.admin_client import AdminError
from sprocket.client.admin.at_once import Outcomes, answered
from sprocket.remoting.bodies.route import TopicRouteData
from sprocket.remoting.bodies.stats import BrokerStatsData
from sprocket.remoting.bodies.topic import PERM_READ, PERM_WRITE
from sprocket.remoting.message.message_type import MessageType
from sprocket.remoting.message.topic_names import DLQ_PREFIX, RETRY_PREFIX, SYSTEM_TOPIC_PREFIX, SYSTEM_TOPICS

KINDS: Final = {
    "user": "topics of applications",
    "retry": "retry topics",
    "dead": "dead letters",
    "system": "system topics",
}


def kind_of(topic: str, own: frozenset[str]) -> str:
    """Return a key of `KINDS`; `own` are topics that brokers made for themselves."""
    if topic.startswith(RETRY_PREFIX):
        return "retry"
    if topic.startswith(DLQ_PREFIX):
        return "dead"
    if topic in SYSTEM_TOPICS or topic in own or topic.startswith(SYSTEM_TOPIC_PREFIX):
        return "system"
    return "user"


def chosen(names: list[str], own: frozenset[str], kind: str, part: str) -> list[str]:
    """Return the topics of a kind whose names contain `part`, in any case of letters."""
    return [name for name in names if kind_of(name, own) == kind and part.lower() in name.lower()]


@dataclass(frozen=True)
class TopicRow:
    """One topic of the list; the counts cover the brokers that answered."""

    name: str
    read_queues: int
    write_queues: int
    perm: str
    messages: int
    put_per_s: float
    brokers: int
    silent: tuple[str, ...]


def topic_rows(
    routes: Outcomes[str, TopicRouteData],
    extents: Outcomes[tuple[str, str], Extents],
    rates: Outcomes[tuple[str, str], BrokerStatsData],
) -> list[TopicRow]:
    """Return a row for each topic; `silent` are brokers that did not answer."""
    rows = []
    for topic, route in routes.items():
        if isinstance(route, AdminError):
            rows.append(TopicRow(topic, 0, 0, "", 0, 0.0, 0, (str(route),)))
            continue
        of_topic = {name: extent for (at, name), extent in extents.items() if at == topic}
        rows.append(
            TopicRow(
                topic,
                sum(data.read_queue_nums for data in route.queue_datas),
                sum(data.write_queue_nums for data in route.queue_datas),
                " / ".join(sorted({perm_words(data.perm) for data in route.queue_datas})),
                sum(messages_in(table) for table in answered(of_topic).values()),
                sum(one.stats_minute.tps for (at, _), one in answered(rates).items() if at == topic),
                len(route.broker_datas),
                tuple(name for name, extent in of_topic.items() if isinstance(extent, AdminError)),
            )
        )
    return rows


def messages_in(extents: Extents) -> int:
    """Return the number of messages between the first and last offsets of queues."""
    return sum(max(0, extent.max_offset - extent.min_offset) for extent in extents.values())


def perm_words(perm: int) -> str:
    """Return a permission in words."""
    can = [word for bit, word in ((PERM_READ, "read"), (PERM_WRITE, "write")) if perm & bit]
    return " and ".join(can) or "none"


@dataclass(frozen=True)
class QueueRow:
    """One queue."""

    broker: str
    queue_id: int
    min_offset: int
    max_offset: int
    last_ms: int


@dataclass(frozen=True)
class TopicBroker:
    """One broker group of a topic."""

    name: str
    addresses: tuple[tuple[int, str], ...]
    read_queues: int
    write_queues: int
    perm: str
    attributes: str
    minute_per_s: float
    hour: int
    day: int
    why_not: str


@dataclass(frozen=True)
class PriorityRow:
    """Messages of one priority, the number of their queue; `waiting`: those that each group has yet to get."""

    priority: int
    messages: int
    waiting: Mapping[str, int]


@dataclass(frozen=True)
class TopicPage:
    """One topic."""

    name: str
    kind: str
    brokers: tuple[TopicBroker, ...]
    queues: tuple[QueueRow, ...]
    groups: tuple[str, ...]
    message_type: str  # several with slashes, if brokers differ; empty if none answered
    lite_topics: int | None  # None: it has none
    lite_expires_min: int  # -1: never
    priorities: tuple[PriorityRow, ...]  # the highest number first; empty for a topic of another type

    @property
    def messages(self) -> int:
        """Messages in all queues that are known."""
        return sum(max(0, queue.max_offset - queue.min_offset) for queue in self.queues)


def topic_page(topic: str, answers: TopicAnswers) -> TopicPage:
    """Return the page of a topic."""
    shapes = {data.broker_name: data for data in answers.route.queue_datas}
    rates: Mapping[str, BrokerStatsData] = answered(answers.rates)
    configs = answered(answers.configs)
    brokers = []
    for data in sorted(answers.route.broker_datas, key=lambda one: one.broker_name):
        name = data.broker_name
        shape, config, rate = shapes.get(name), configs.get(name), rates.get(name)
        failure = answers.extents.get(name)
        brokers.append(
            TopicBroker(
                name,
                tuple(sorted(data.broker_addrs.items())),
                shape.read_queue_nums if shape else 0,
                shape.write_queue_nums if shape else 0,
                perm_words(shape.perm) if shape else "none",
                ", ".join(f"{key}={value}" for key, value in sorted(config.attributes.items())) if config else "",
                rate.stats_minute.tps if rate else 0.0,
                rate.stats_hour.sum if rate else 0,
                rate.stats_day.sum if rate else 0,
                str(failure) if isinstance(failure, AdminError) else "",
            )
        )
    queues = tuple(
        QueueRow(queue.broker_name, queue.queue_id, extent.min_offset, extent.max_offset, extent.last_update_timestamp)
        for table in answered(answers.extents).values()
        for queue, extent in sorted(table.items())
    )
    lite = answered(answers.lite).values()
    groups = {group for found in answered(answers.groups).values() for group in found}
    types = sorted({type_of(config) for config in configs.values() if config is not None})
    return TopicPage(
        topic,
        kind_of(topic, frozenset()),
        tuple(brokers),
        queues,
        tuple(sorted(groups.union(*(one.groups for one in lite)))),
        " / ".join(types),
        sum(one.lite_topic_count for one in lite) if answers.lite else None,
        max((one.ttl for one in lite), default=-1),
        _priorities(topic, queues, answers) if MessageType.PRIORITY in types else (),
    )


def _priorities(topic: str, queues: Sequence[QueueRow], answers: TopicAnswers) -> tuple[PriorityRow, ...]:
    messages: Counter[int] = Counter()
    for queue in queues:
        messages[queue.queue_id] += max(0, queue.max_offset - queue.min_offset)
    waiting: dict[int, Counter[str]] = {}
    for (_, group), offsets in answered(answers.offsets).items():
        for at, one in offsets.items():
            if at.topic == topic:
                counts = waiting.setdefault(at.queue_id, Counter())
                counts[group] += max(0, one.broker_offset - one.consumer_offset)
    return tuple(PriorityRow(each, messages[each], waiting.get(each, {})) for each in sorted(messages, reverse=True))
