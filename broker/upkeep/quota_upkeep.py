"""Quotas once a second: what was used, shares of cluster-wide quotas, and topics that are closed for sends.

A topic is closed while it stores more than its quota, or while a group has more to read of it than the group's quota.
"""

import logging
from collections import defaultdict
from collections.abc import Generator, Mapping
from typing import Final

import msgspec

from acl.visible_names import only_visible, visible_names
from broker.core import BrokerCore
from broker.out.other_brokers import OtherBrokers
from broker.periodic import Periodic
from broker.quota.bucket import Kind
from broker.quota.rules import Dimension, Patterns, by_dimension, is_exempt, name_within, share
from broker.service import Service
from sprocket.common.errors import SprocketError
from sprocket.common.next_turn import at_once, in_turns
from sprocket.metrics.declared import Kind as MetricKind
from sprocket.metrics.declared import Metric, Value
from sprocket.metrics.distribution import Labels
from sprocket.remoting.bodies.quota import Quota, QuotaUsageBody, QuotaUse
from sprocket.remoting.channel import RemotingChannel
from sprocket.remoting.codec.fastjson import dumps, in_steps, loads
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.command import Request, Response
from sprocket.remoting.headers.quota import ChargeCallerRequestHeader, ChargeCallerResponseHeader
from sprocket.remoting.routes import Action, NoHeader, Resource, Route, Steps
from store.queue.consume_queue import ConsumeQueue
from store.retention.queue_trim import raise_min
from store.retention.topic_retention import HeldBytes

logger = logging.getLogger(__name__)

_LOOK_S: Final = 1.0
_NO_BOUND: Final = 1 << 62
_STEP_BUCKETS: Final = 1024
# Resources that GET_QUOTA_USAGE lists.
_MAX_USES: Final = 1000
_LABELS: Final = ("quota", "kind")


class QuotaUpkeep(Service):
    """Service around the quotas of a broker.  Lives in the event loop's thread."""

    def __init__(self, core: BrokerCore, others: OtherBrokers) -> None:
        self._core = core
        self._others = others
        self._quotas = core.quotas
        self._looked_at_s = core.clock.monotonic()
        # By quota and kind, at the last look: used, exceeded.  And what became of them in a second since.
        self._before: dict[tuple[str, Kind], tuple[int, int]] = {}
        self._rates: dict[tuple[str, Kind], tuple[float, float]] = {}
        self._held: dict[tuple[str, int], HeldBytes] = {}
        self.stored_bytes: dict[str, int] = {}  # of topics with a quota for it
        self.backlogs: dict[str, int] = {}  # of groups with a quota for it
        self._masters = 1

    # A service

    def routes(self) -> list[Route]:
        """Return the routes of requests about quotas."""
        code, cluster = RequestCode, Resource.CLUSTER
        return [
            Route(code.SET_QUOTA, NoHeader, self.set_quota, cluster, Action.UPDATE),
            Route(code.DELETE_QUOTA, NoHeader, self.delete_quota, cluster, Action.DELETE),
            Route(code.GET_ALL_QUOTAS, NoHeader, self.all_quotas, cluster, Action.GET),
            Route(code.GET_QUOTA_USAGE, NoHeader, self.usage, cluster, Action.GET),
            Route(code.CHARGE_CALLER, ChargeCallerRequestHeader, self.charge_caller, cluster, Action.UPDATE),
        ]

    def load(self) -> None:
        """Load the quotas."""
        self._quotas.table.load()

    def periodic(self) -> list[Periodic]:
        """Look once a second."""
        return [Periodic("quotas", _LOOK_S, self.look), Periodic("quota_shares", _LOOK_S, self._look_at_others)]

    def answer_held(self) -> Generator[None, None, None]:
        return self._core.quota_reads.answer_all()

    def stop(self) -> None:
        """Answer reads that wait for a quota."""
        self._core.quota_reads.close()

    def save(self) -> None:
        """Save the quotas."""
        self._quotas.table.persist_changes()

    def channel_closed(self, channel: RemotingChannel) -> None:
        """Drop the reads of a closed connection that wait for a quota."""
        self._core.quota_reads.drop_channel(channel.id)

    # Requests

    async def set_quota(self, request: Request[NoHeader]) -> Response:
        """Set a quota; the response follows the write of the file."""
        table = self._quotas.table
        table.set(loads(bytes(request.body), Quota))
        await table.save()
        return Response()

    async def delete_quota(self, request: Request[NoHeader]) -> Response:
        """Delete the quota whose name is the body; the response follows the write of the file."""
        table = self._quotas.table
        table.delete(bytes(request.body).decode("utf-8", "replace"))
        await table.save()
        return Response()

    def all_quotas(self, request: Request[NoHeader]) -> Steps:
        """Return all quotas that the sender may see: an administrator of a namespace those of what is in it."""
        table = self._quotas.table
        found = yield from only_visible(table.by_name, request, name_within)
        listed = yield from in_steps(list(found.items()), dict, msgspec.json.encode)
        return Response(body=dumps({"quotaTable": listed, "dataVersion": table.data_version}))

    def usage(self, request: Request[NoHeader]) -> Steps:
        """Return how much of each quota is used, of those that the sender may see."""
        uses = yield from self.uses()
        shows = visible_names(request)
        if shows is not None:
            uses = [use for use in uses if shows(name_within(use.quota))]
        return Response(body=dumps(QuotaUsageBody(self._core.config.broker.broker_name, uses)))

    def charge_caller(self, request: Request[ChargeCallerRequestHeader]) -> Response:
        """Charge the client that a proxy names; tell the proxy whether it should name its clients."""
        header, quotas, channel = request.header, self._quotas, request.channel
        if header.address is not None:
            quotas.charge_caller(channel, header.account, header.address)
        return Response(
            header=ChargeCallerResponseHeader(charges_callers=quotas.has_callers and quotas.trusts(channel))
        )

    # Use

    def uses(self) -> Generator[None, None, list[QuotaUse]]:
        """Return the use of each quota and kind, the fullest first, in steps that take about a ms each.

        `resource` of a use is the one that has the least left.
        """
        fullest: dict[tuple[str, Kind], tuple[float, str, float]] = {}
        for number, (name, bucket) in enumerate(self._quotas.buckets(), 1):
            if name is not None:
                left, key = bucket.level / bucket.burst, (name, bucket.kind)
                if key not in fullest or left < fullest[key][0]:
                    fullest[key] = left, bucket.of, bucket.rate
            if not number % _STEP_BUCKETS:
                yield
        tallies, uses = self._quotas.tallies(), []
        for key, (_, resource, limit) in fullest.items():
            if key not in tallies:
                continue  # it was deleted meanwhile
            tally, (rate, asked) = tallies[key], self._rates.get(key, (0.0, 0.0))
            uses.append(QuotaUse(key[0], resource, key[1].value, limit, rate, asked, tally.used, tally.exceeded))
        bounded = [one for one in self._quotas.by_name.items() if one[1].storage_bytes or one[1].backlog_messages]
        for name, quota in bounded:
            yield  # each looks at all topics or groups with such a quota
            dimension, _, pattern = name.partition(":")
            own = Patterns((quota,))
            for kind, amounts, limit in (
                ("storage_bytes", self.stored_bytes, quota.storage_bytes),
                ("backlog_messages", self.backlogs, quota.backlog_messages),
            ):
                if limit:
                    amount = max((amounts[one] for one in amounts if own.find(one)), default=0)
                    uses.append(QuotaUse(name, f"{dimension} {pattern}", kind, limit, amount, amount, amount, 0))
        uses.sort(key=lambda one: -one.asked / one.limit if one.limit else 0.0)
        return uses[:_MAX_USES]

    def look(self) -> None:
        """Note what was used since the last look, and close and open topics."""
        now_s = self._core.clock.monotonic()
        seconds, self._looked_at_s = max(now_s - self._looked_at_s, 1e-3), now_s
        before, self._before = self._before, {}
        self._rates = {}
        for key, tally in self._quotas.tallies().items():
            used, exceeded = before.get(key, (0, 0))
            rate, over = (tally.used - used) / seconds, (tally.exceeded - exceeded) / seconds
            self._rates[key] = rate, rate + over
            self._before[key] = tally.used, tally.exceeded
        closed = self._full_topics() | self._lagging_topics()
        if closed != self._quotas.closed:
            self._quotas.close(closed)

    # Cluster-wide quotas

    async def _look_at_others(self) -> None:
        """Divide cluster-wide quotas by what the masters of the cluster were asked for."""
        wide = [quota for quota in self._quotas.by_name.values() if quota.is_cluster_wide]
        if not wide:
            return
        broker = self._core.config.broker
        try:
            names = await self._others.masters(broker.broker_cluster_name)
        except SprocketError:
            names = None  # as before
        others = [] if names is None else [name for name in names if name != broker.broker_name]
        if names is not None:
            self._masters = len(others) + 1
        asked: dict[str, list[float]] = defaultdict(list)
        unknown = self._masters - 1
        for name in others:
            try:
                answer = await self._others.ask(name, RequestCode.GET_QUOTA_USAGE, NoHeader())
                uses = loads(bytes(answer.body), QuotaUsageBody).uses if answer.code == ResponseCode.SUCCESS else None
            except SprocketError:
                uses = None
            if uses is not None:
                unknown -= 1
                for wanted, part in self._asked(uses).items():
                    asked[wanted].append(part)
        known = self._masters - 1 - unknown
        own = self._asked(await in_turns(self.uses()))
        shares = {}
        for quota in wide:
            rates = asked[quota.name] + [0.0] * (known - len(asked[quota.name]))
            shares[quota.name] = share(own.get(quota.name, 0.0), rates, unknown)
        self._quotas.set_shares(1 / self._masters, shares)

    def _asked(self, uses: list[QuotaUse]) -> Mapping[str, float]:
        """Return which part of each quota was asked for; with several limits, the largest part."""
        asked: dict[str, float] = {}
        for use in uses:
            quota = self._quotas.by_name.get(use.quota)
            limit = 0 if quota is None else getattr(quota, use.kind, 0)
            if limit:
                asked[use.quota] = max(asked.get(use.quota, 0.0), use.asked / limit)
        return asked

    # Storage and backlog

    def _full_topics(self) -> dict[str, str]:
        """Return the topics that store more than their quota, and why each is closed; drop the oldest instead."""
        closed, self.stored_bytes = {}, {}
        has_any = any(quota.storage_bytes for quota in self._quotas.by_name.values())
        patterns = by_dimension(self._quotas.by_name if has_any else {})[Dimension.TOPIC]
        counted: set[tuple[str, int]] = set()
        for topic, config in list(self._core.topics.by_name.items()) if patterns else ():
            quota = None if is_exempt(topic) else patterns.find(topic)
            if quota is None or not quota.storage_bytes:
                continue
            queues = self._queues(topic, max(config.read_queue_nums, config.write_queue_nums))
            held = {queue: self._bytes_of(queue) for queue in queues}
            counted |= {(topic, queue.queue_id) for queue in held}
            total = self.stored_bytes[topic] = sum(one.size_bytes for one in held.values())
            if total > quota.storage_bytes and quota.drops_oldest:
                for queue, one in held.items():
                    raise_min(queue, one.start_within(quota.storage_bytes * one.size_bytes // total))
            elif total >= quota.storage_bytes and not quota.is_soft:
                closed[topic] = (
                    f"quota {quota.storage_bytes} bytes stored of topic {topic} is used up; "
                    "try again when old messages have expired"
                )
        self._held = {key: held for key, held in self._held.items() if key in counted}
        return closed

    def _queues(self, topic: str, count: int) -> list[ConsumeQueue]:
        return [queue for queue in self._core.store.kernel_reads.queues(topic, range(count)) if queue is not None]

    def _bytes_of(self, queue: ConsumeQueue) -> HeldBytes:
        """Return the count of the bytes of a queue, brought up to date."""
        key = queue.topic, queue.queue_id
        held = self._held.get(key)
        if held is None or not held.counts(queue):
            held = self._held[key] = HeldBytes(queue)
        held.start_within(_NO_BOUND)
        return held

    def _lagging_topics(self) -> dict[str, str]:
        """Return the topics in which a group is further behind than its quota allows, and why each is closed."""
        closed: dict[str, str] = {}
        self.backlogs = {}
        core, has_any = self._core, any(quota.backlog_messages for quota in self._quotas.by_name.values())
        patterns = by_dimension(self._quotas.by_name if has_any else {})[Dimension.GROUP]
        for group in list(core.groups.by_name) if patterns else ():
            quota = patterns.find(group)
            if quota is None or not quota.backlog_messages:
                continue
            lags = {topic: self._lag(group, topic) for topic in core.offsets.topics_of(group) if not is_exempt(topic)}
            total = self.backlogs[group] = sum(lags.values())
            if total >= quota.backlog_messages and not quota.is_soft:
                remark = (
                    f"quota {quota.backlog_messages} messages of backlog of consumer group {group} is used up; "
                    "try again when the group has consumed some"
                )
                closed |= {topic: remark for topic, lag in lags.items() if lag}
        return closed

    def _lag(self, group: str, topic: str) -> int:
        store, offsets = self._core.store, self._core.offsets.queues(group, topic)
        return sum(max(0, store.max_offset(topic, queue_id) - offset) for queue_id, offset in offsets.items())

    # Metrics

    def exported_metrics(self) -> list[Metric]:
        """Return the metrics of quotas.  The labels are the names of quotas, which operators choose."""

        def used() -> list[tuple[Labels, Value]]:
            return [((name, kind.value), tally.used) for (name, kind), tally in self._quotas.tallies().items()]

        def exceeded() -> list[tuple[Labels, Value]]:
            return [((name, kind.value), tally.exceeded) for (name, kind), tally in self._quotas.tallies().items()]

        def limits() -> list[tuple[Labels, Value]]:
            return [((use.quota, use.kind), use.limit) for use in at_once(self.uses())]

        def stored() -> list[tuple[Labels, Value]]:
            return [((topic,), size) for topic, size in self.stored_bytes.items()]

        def backlogs() -> list[tuple[Labels, Value]]:
            return [((group,), lag) for group, lag in self.backlogs.items()]

        counter, gauge = MetricKind.COUNTER, MetricKind.GAUGE
        return [
            Metric("sprocket_quota_used_total", counter, "what requests took from a quota", used, _LABELS),
            Metric(
                "sprocket_quota_exceeded_total", counter,
                "messages and reads that a quota refused or delayed, or a soft one reported", exceeded, _LABELS,
            ),
            Metric("sprocket_quota_limit", gauge, "limit of a quota at this broker, per second", limits, _LABELS),
            Metric("sprocket_quota_stored_bytes", gauge, "bytes of a topic with a quota for them", stored, ("topic",)),
            Metric(
                "sprocket_quota_backlog_messages", gauge, "messages that a group with a quota for them has yet to read",
                backlogs, ("consumer_group",),
            ),
            Metric(
                "sprocket_quota_waiting_reads", gauge, "pulls and pops that wait for a quota",
                lambda: [((), len(self._core.quota_reads))],
            ),
        ]  # fmt: skip
