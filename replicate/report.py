"""What each side of a link lacks of the other, and where groups stand: for `status`, the steps, and the dashboard.

The state of a link is what the target's table says.  A source that does not answer has the end that it had when it was
read last, so the number of missing messages is then a lower bound.
"""

import asyncio
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from replicate.cluster import Cluster
from replicate.config import Config, LinkConfig
from replicate.group_offsets import GroupOffsets
from replicate.lease import RENEW_S
from replicate.protocol.position import Checkpoint, late_s
from replicate.protocol.steps import copies_messages
from replicate.records import Record, link_key, pair_in, queue_of, uncounted
from sprocket.client.admin.at_once import AtOnce, answered, check_all
from sprocket.client.connection.wakeup import pause
from sprocket.common.clock import Clock
from sprocket.common.errors import ClientError, SprocketError
from sprocket.remoting.bodies.client import MessageQueue
from sprocket.remoting.bodies.stats import TopicOffset
from sprocket.remoting.message.topic_names import RETRY_PREFIX

_MAX_REQUESTS: Final = 64
# A replicator says so more often that it copies a link.
SILENT_S: Final = 4 * RENEW_S
# Checkpoint of a queue of which nothing was copied yet.
_NOTHING: Final = Checkpoint("", 0, 0, 0)


class QueueReport(msgspec.Struct, rename="camel"):
    """One queue of a link.  `lag` is a lower bound if the source does not answer."""

    topic: str
    broker: str
    queue: int
    copied_to: int
    source_end: int
    lag: int
    lag_s: float  # age of the last copy while messages are missing, s
    missed: int
    refused: int
    blocked: str
    at_ms: int  # when the replicator wrote this, 0 before it did
    is_at_least_once: bool  # whether a crash may double copies, as the target does not look for those it has


class GroupReport(msgspec.Struct, rename="camel"):
    """Offset of one group in one queue, and what it is at the target."""

    group: str
    topic: str
    broker: str
    queue: int
    source_offset: int
    target_offset: int


class LinkReport(msgspec.Struct, rename="camel"):
    """One link.  Without an answer of the target, `failure` says why, and nothing else is known."""

    source: str
    target: str
    source_answers: bool = False
    moves: bool = False  # whether the source got messages while it was looked at
    queues: list[QueueReport] = []
    groups: list[GroupReport] = []
    failure: str = ""
    replicator: str = ""  # which copied last
    silent_s: float = 0.0  # since it said so, by the clock here
    is_old: bool = False  # whether a replicator was here that does not say that it copies: that of an older version
    rests: str = ""  # why nothing is copied now: the state of the pair
    uncounted: list[str] = []  # clusters whose messages come to the source by links of another configuration
    unplaced: int = 0  # groups that get no offset in some queue of the target, as their place there is not known

    @property
    def is_copied(self) -> bool:
        """Whether a replicator copies it, as far as is known."""
        return self.is_old or (bool(self.replicator) and self.silent_s < SILENT_S)

    @property
    def lag(self) -> int:
        """Messages that the target lacks."""
        return sum(queue.lag for queue in self.queues)

    @property
    def lag_s(self) -> float:
        """Age of the oldest last copy of a queue that lacks messages, s."""
        return max((queue.lag_s for queue in self.queues), default=0.0)


async def link_reports(config: Config, clusters: Mapping[str, Cluster], clock: Clock) -> list[LinkReport]:
    """Return the reports of all links; a cluster that does not answer hides nothing of the others."""

    async def report(link: LinkConfig) -> LinkReport:
        try:
            return await link_report(link, config, clusters, clock)
        except (ClientError, TimeoutError) as error:
            return LinkReport(link.source, link.target, failure=str(error) or "no answer in time")

    return await asyncio.gather(*map(report, config.links))


async def link_report(
    config: LinkConfig,
    links: Config,
    clusters: Mapping[str, Cluster],
    clock: Clock,
    *,
    with_groups: bool = False,
    settle_s: float = 0.0,
) -> LinkReport:
    """Return the report of a link of `links`; its target must answer.

    Look twice, `settle_s` apart, whether messages arrive.

    Raises ClientError if the target does not answer.
    """
    source, target = clusters[config.source], clusters[config.target]
    await target.open_table(create=False)
    ends = await _ends(source, config)
    moves = False
    if settle_s and ends is not None:
        await pause(settle_s)
        before, ends = ends, await _ends(source, config)
        moves = ends is not None and {key: one.max_offset for key, one in ends.items()} != {
            key: one.max_offset for key, one in before.items()
        }
    queues = _queues(target, config.source, ends, await _unchecked_topics(target), clock)
    report = LinkReport(config.source, config.target, ends is not None, moves, queues)
    if ends is not None:
        await source.open_table(create=False)
        report.uncounted = uncounted(source.records, links, source.name, target.name, clock.wall_ms())
        if with_groups:
            report.groups = await _groups(config, links, source, target)
    _add_state(report, target.records, source.records, clock)
    return report


async def reports_of_target(target: Cluster, clock: Clock) -> list[LinkReport]:
    """Return the reports of all links into a cluster, by its table alone: its sources are not asked.

    Raises ClientError if it does not answer.
    """
    if not await target.open_table(create=False):
        return []
    at_least_once = await _unchecked_topics(target)
    links = sorted((record.link.source, record.link.target) for record in target.records.values() if record.link)
    reports = [
        LinkReport(source, name, queues=_queues(target, source, None, at_least_once, clock)) for source, name in links
    ]
    for report in reports:
        _add_state(report, target.records, {}, clock)
    return reports


def _add_state(report: LinkReport, target: Mapping[str, Record], source: Mapping[str, Record], clock: Clock) -> None:
    link = target.get(link_key(report.source), Record()).link
    report.is_old = link is not None and not link.owner
    if link is not None and link.owner:
        report.replicator, report.silent_s = link.owner, max(0, clock.wall_ms() - link.at_ms) / 1000
        report.unplaced = link.unplaced
    pair = pair_in(report.source, report.target, target, source)
    if pair is not None and not copies_messages(pair, report.source):
        report.rests = f"{pair.active} is active ({pair.phase})"


def _queues(
    target: Cluster, source: str, ends: Mapping[MessageQueue, TopicOffset] | None, at_least_once: set[str] | None,
    clock: Clock,
) -> list[QueueReport]:  # fmt: skip
    """Return the reports of the queues of a link; `ends` are the extents at the source, None if it was not asked."""
    known = _checkpoints(target, source)
    return [
        _queue(
            place, known.get(place), None if ends is None else ends.get(place), clock,
            at_least_once is None or place.topic in at_least_once or place.topic.startswith(RETRY_PREFIX),
        )
        for place in sorted(known.keys() | (ends or {}).keys())
    ]  # fmt: skip


async def _ends(source: Cluster, config: LinkConfig) -> dict[MessageQueue, TopicOffset] | None:
    """Return the extents of the source's queues; None if it does not answer."""
    try:
        topics = filter(config.takes_topic, await source.topics())
        outcomes = await AtOnce(_MAX_REQUESTS).each(topics, source.admin.topic_stats)
        check_all(outcomes)
        return {queue: extent for stats in answered(outcomes).values() for queue, extent in stats.offset_table.items()}
    except SprocketError:
        return None


async def _unchecked_topics(target: Cluster) -> set[str] | None:
    """Return the topics of batch queues, whose copies no broker looks for; None for all, in a cluster of RocketMQ."""
    if not await target.drops_copies():
        return None
    topics = await target.topics()
    return {topic for topic, by_broker in topics.items()
            if any(config.attributes.get("queue.type") == "BatchCQ" for config in by_broker.values())}  # fmt: skip


def _checkpoints(target: Cluster, source: str) -> dict[MessageQueue, Checkpoint]:
    found = {}
    for key, record in target.records.items():
        queue = queue_of(key)
        if queue is not None and queue.cluster == source and record.queue is not None:
            found[MessageQueue(queue.topic, queue.broker_name, queue.queue_id)] = record.queue
    return found


def _queue(
    place: MessageQueue, known: Checkpoint | None, extent: TopicOffset | None, clock: Clock, is_at_least_once: bool
) -> QueueReport:
    is_new = known is None
    known = known or _NOTHING
    begin = extent.min_offset if is_new and extent is not None else known.next_offset
    end = known.source_end if extent is None else extent.max_offset
    lag = max(0, end - begin)
    return QueueReport(
        place.topic, place.broker_name, place.queue_id, known.next_offset, end, lag,
        late_s(lag, known.copied_ms, clock.wall_ms()), known.missed, known.refused, known.blocked, known.at_ms,
        is_at_least_once,
    )  # fmt: skip


async def _groups(config: LinkConfig, links: Config, source: Cluster, target: Cluster) -> list[GroupReport]:
    offsets = GroupOffsets(config, links, source, target, {})
    return [
        GroupReport(
            one.group, one.queue.topic, one.queue.broker_name, one.queue.queue_id, one.source_offset, one.target_offset
        )
        for one in await offsets.all_translated()
    ]


def as_json(report: LinkReport) -> dict[str, Any]:
    """Return a report as JSON."""
    made: dict[str, Any] = msgspec.to_builtins(report)
    return made | {"lag": report.lag}
