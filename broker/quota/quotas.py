"""Quotas of one broker in force: the buckets of resources, and who is charged for a request.

Planners ask for the buckets of topics and groups when they make a plan, so a request does not search for them.  The
buckets of the account and the address are kept at the connection until a quota changes, or another account signs there.

A connection with requests over a quota is read more slowly, so that a flood of them costs the others little.
"""

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, NamedTuple, Protocol
from weakref import WeakValueDictionary

from acl.gate import PROVEN_ACCOUNT
from broker.quota.bucket import Bucket, Buckets, Kind, QuotaExceeded, Tally, charge
from broker.quota.quota_table import QuotaTable
from broker.quota.rules import Dimension, by_dimension, is_exempt, is_exempt_group
from broker.quota.work_budget import WorkBudget
from sprocket.common.clock import Clock
from sprocket.common.errors import RequestError
from sprocket.common.logs.peer_lines import peer_lines
from sprocket.common.refusal_pace import MAX_WAIT_S
from sprocket.common.refusal_reasons import Reason
from sprocket.remoting.bodies.quota import Quota
from sprocket.remoting.codes import ResponseCode
from sprocket.remoting.command import Request
from sprocket.remoting.message.namespaces import TENANT_SEPARATOR, namespace_of
from sprocket.remoting.routes import FramesChannel

logger = logging.getLogger(__name__)

# Resources whose buckets are kept although no plan or connection uses them, so that to connect again wins nothing.
MAX_RECENT: Final = 4096
_IN: Final = (Kind.MESSAGES_IN, Kind.BYTES_IN, Kind.REQUESTS)
_OUT: Final = (Kind.MESSAGES_OUT, Kind.BYTES_OUT, Kind.REQUESTS)
_WORDS: Final = {
    Dimension.ACCOUNT: "account", Dimension.TOPIC: "topic", Dimension.GROUP: "consumer group",
    Dimension.ADDRESS: "address", Dimension.NAMESPACE: "namespace", Dimension.TENANT: "tenant",
}  # fmt: skip
# Attribute of a connection: for whom a proxy speaks on it.
_NAMED: Final = "quota_named_caller"
# Max time for which a connection is not read because of the work that it makes; MAX_WAIT_S is for a quota.
_MAX_WORK_SLOW_S: Final = 5.0


class CallerChannel(Protocol):
    """The connection of a request."""

    @property
    def peer(self) -> tuple[str, int]: ...

    @property
    def attributes(self) -> dict[str, Any]: ...

    charged: Any


class _Named(NamedTuple):
    """The client whose requests come on a connection of a proxy, and the account that the proxy had proved."""

    proved: str | None
    account: str | None
    address: str


class ChargedPlan(Protocol):
    """Part of the plan of a send."""

    @property
    def buckets(self) -> Buckets: ...

    @property
    def is_retry(self) -> bool: ...


class Charged(NamedTuple):
    """The buckets for what the peer of a connection sends and reads, as long as `change` is the last of the quotas.

    The kernel of sends reads the first two by their place.
    """

    change: object
    into: Buckets
    out: Buckets


def _of_kinds(kinds: tuple[Kind, ...], buckets: Buckets) -> Buckets:
    return tuple(bucket for bucket in buckets if bucket.kind in kinds)


class Quotas:
    """Quotas of a `QuotaTable` in force.  Lives in the event loop's thread.

    `own_account` is the account with which servers of the cluster sign.  A connection of a proxy is for all its
    clients, and not slowed, unless the proxy says for which one it is.
    """

    def __init__(self, table: QuotaTable, clock: Clock, own_account: str | None = None) -> None:
        self.table = table
        self._clock = clock
        self._own_account = own_account
        self._work = WorkBudget(clock)
        self.change = object()  # the last change; no other has the same
        self._patterns = by_dimension({})
        self.has_callers = False  # whether any account or address has a quota
        # All that a plan, a connection or `_recent` uses: so a resource never has two buckets of a kind.
        self._buckets: WeakValueDictionary[tuple[Dimension, str, Kind], Bucket] = WeakValueDictionary()
        self._recent: dict[tuple[Dimension, str], tuple[Quota, Buckets]] = {}
        self._tallies: dict[tuple[str, Kind], Tally] = {}
        self._shares: dict[str, float] = {}
        self._even_share = 1.0
        self.closed: Mapping[str, str] = {}  # topics that take no messages now, and why
        table.on_change.append(self._changed)
        self._changed(table.by_name)

    def _changed(self, quotas: Mapping[str, Quota]) -> None:
        self.change = object()
        self._patterns = by_dimension(quotas)
        self.has_callers = bool(self._patterns[Dimension.ACCOUNT] or self._patterns[Dimension.ADDRESS])
        for key in [key for key in self._tallies if key[0] not in quotas]:
            del self._tallies[key]
        self._configure()

    def _configure(self) -> None:
        """Let all buckets in use have the limits that hold now."""
        for (dimension, name, kind), bucket in list(self._buckets.items()):
            quota = self._patterns[dimension].find(name)
            if quota is not None and getattr(quota, kind.value):
                tally = self._tallies.setdefault((quota.name, kind), Tally())
                bucket.configure(*self._rate(quota, kind), tally, is_soft=quota.is_soft)

    # For planners

    def of_send(self, topic: str) -> Buckets:
        """Return the buckets of sends to a topic."""
        if is_exempt(topic):
            return ()
        return _of_kinds(_IN, (*self._buckets_of(Dimension.TOPIC, topic), *self._of_namespace(topic)))

    def of_read(self, topic: str, group: str) -> Buckets:
        """Return the buckets of pulls and pops of a topic by a group; the namespace is that of the group."""
        if is_exempt_group(group):
            return ()
        of_topic = () if is_exempt(topic) else self._buckets_of(Dimension.TOPIC, topic)
        of_group = self._buckets_of(Dimension.GROUP, group)
        return _of_kinds(_OUT, (*of_topic, *of_group, *self._of_namespace(group)))

    def close(self, topics: Mapping[str, str]) -> None:
        """Refuse sends to some topics from now on, for a reason each; open all others."""
        self.closed = dict(topics)
        self.table.plans_changed()

    # For each read of a connection, if there are callers with quotas

    def callers_in(self, channel: CallerChannel) -> Buckets:
        """Return the buckets of who sends on a connection."""
        return self.charged(channel).into

    def callers_out(self, channel: CallerChannel) -> Buckets:
        """Return the buckets of who reads on a connection."""
        return self.charged(channel).out

    def charged(self, channel: CallerChannel) -> Charged:
        """Return the buckets of a connection.  The kernel of sends looks at `channel.charged` before it asks."""
        known: Charged | None = channel.charged
        if known is None or known.change is not self.change:
            account, address = self._payer(channel)
            buckets = self._buckets_of(Dimension.ADDRESS, address)
            if account is not None:
                buckets = (*self._buckets_of(Dimension.ACCOUNT, account), *buckets)
            known = channel.charged = Charged(self.change, _of_kinds(_IN, buckets), _of_kinds(_OUT, buckets))
        return known

    def _payer(self, channel: CallerChannel) -> tuple[str | None, str]:
        """Return the account and the address that pay for the requests of a connection."""
        account, named = channel.attributes.get(PROVEN_ACCOUNT), channel.attributes.get(_NAMED)
        if named is not None and named.proved == account:
            return named.account, named.address
        return account, channel.peer[0]

    # Proxies

    def trusts(self, channel: FramesChannel) -> bool:
        """Return whether a connection may name the client to charge: it is one of the cluster, or of this process.

        Any other peer could let somebody else pay.
        """
        account = channel.attributes.get(PROVEN_ACCOUNT)
        return channel.is_trusted or (account is not None and account == self._own_account)

    def charge_caller(self, channel: FramesChannel, account: str | None, address: str) -> None:
        """Charge a client of a proxy for all further requests on its connection, while the proxy proves to be one.

        Raises RequestError if the connection is not trusted.
        """
        if not self.trusts(channel):
            remark = "only servers of the cluster, which sign with its own account, may name whom to charge"
            raise RequestError(ResponseCode.NO_PERMISSION, remark, Reason.ACCESS_DENIED)
        attributes = channel.attributes
        attributes[_NAMED] = _Named(attributes.get(PROVEN_ACCOUNT), account, address)
        channel.charged = None

    # Requests that were decoded

    def spend(self, plan: ChargedPlan, callers: Buckets, request: Request[Any], messages: int = 1) -> None:
        """Charge a send with some messages to the buckets of its plan and of its sender.  A retry was charged before.

        Raises QuotaExceeded, with nothing charged, if a bucket does not admit it.
        """
        buckets = () if plan.is_retry else plan.buckets + callers
        for bucket in buckets:
            if not bucket.left():
                self.exceeded(bucket, request, messages)
                raise QuotaExceeded(bucket, bucket.wait_s())
        charge(buckets, messages, sent_bytes(request))

    def note(self, channel: FramesChannel, group: str, count: int = 1) -> None:
        """Charge requests of a group that are never refused; while a quota is used up, the connection is not read."""
        if not self.table.by_name:
            return
        buckets = self.callers_out(channel) if self.has_callers else ()
        if not is_exempt_group(group):
            buckets += (*self._buckets_of(Dimension.GROUP, group), *self._of_namespace(group))
        for bucket in buckets:
            if bucket.kind is Kind.REQUESTS:
                is_used_up = bucket.wait_s() > 0
                bucket.take(count)
                if is_used_up:
                    bucket.tally.exceed(count)
                    self._slow(channel, bucket.wait_s())

    def worked(self, channel: FramesChannel, seconds: float) -> None:
        """Charge who sends on a connection with work on the loop, if there are quotas; too much is read more slowly."""
        if not self.table.by_name:
            return
        slow_s = self._work.spend(self._worker(channel), seconds)
        if slow_s > 0:
            self._slow(channel, slow_s, _MAX_WORK_SLOW_S)

    def has_overworked(self, channel: FramesChannel) -> bool:
        """Return whether who sends on a connection has used up its share of the loop's time, if there are quotas."""
        return bool(self.table.by_name) and not self._is_of_many(channel) and self._work.is_spent(self._worker(channel))

    def _is_of_many(self, channel: FramesChannel) -> bool:
        """Return whether a connection is of a proxy that does not say for which client."""
        return _NAMED not in channel.attributes and self.trusts(channel)

    def _worker(self, channel: FramesChannel) -> str:
        account, address = self._payer(channel)
        return f"address {address}" if account is None else f"account {account}"

    @contextmanager
    def work_of(self, channel: FramesChannel) -> Iterator[None]:
        """Charge who sends on a connection with the time that the block takes."""
        began_s = self._clock.monotonic()
        try:
            yield
        finally:
            self.worked(channel, self._clock.monotonic() - began_s)

    def exceeded(self, bucket: Bucket, request: Request[Any], count: int = 1) -> None:
        """Count a request that a quota refuses or delays, write a line, and read its connection more slowly."""
        bucket.tally.exceed(count)
        text, (host, port) = str(bucket), request.channel.peer
        # Limited for each quota: otherwise one with many senders would hide the others.
        peer_lines.warning(
            logger, text, "event=quota_exceeded quota=%r peer=%s:%d code=%d", text, host, port, request.code
        )
        self._slow(request.channel, bucket.slow_s())

    def _slow(self, channel: FramesChannel, seconds: float, max_s: float = MAX_WAIT_S) -> None:
        if not self._is_of_many(channel):
            channel.read_after(min(seconds, max_s))

    # The buckets

    def _of_namespace(self, name: str) -> Buckets:
        """Return the buckets of the namespace, and of its tenant, that a topic or group is in."""
        namespace = namespace_of(name)
        if not namespace:
            return ()
        tenant, separator, _ = namespace.partition(TENANT_SEPARATOR)
        of_tenant = self._buckets_of(Dimension.TENANT, tenant) if separator else ()
        return (*self._buckets_of(Dimension.NAMESPACE, namespace), *of_tenant)

    def _buckets_of(self, dimension: Dimension, name: str) -> Buckets:
        quota = self._patterns[dimension].find(name)
        if quota is None:
            return ()
        key = dimension, name
        known = self._recent.pop(key, None)
        if known is None or known[0] is not quota:
            known = quota, tuple(self._bucket(*key, kind, quota) for kind in Kind if getattr(quota, kind.value))
        self._recent[key] = known
        if len(self._recent) > MAX_RECENT:
            del self._recent[next(iter(self._recent))]
        return known[1]

    def _bucket(self, dimension: Dimension, name: str, kind: Kind, quota: Quota) -> Bucket:
        key, (rate, burst) = (dimension, name, kind), self._rate(quota, kind)
        tally = self._tallies.setdefault((quota.name, kind), Tally())
        bucket = self._buckets.get(key)
        if bucket is None:
            of = f"{_WORDS[dimension]} {name}"
            bucket = self._buckets[key] = Bucket(of, kind, rate, burst, self._clock, tally, is_soft=quota.is_soft)
        return bucket

    def _rate(self, quota: Quota, kind: Kind) -> tuple[float, float]:
        part = self._shares.get(quota.name, self._even_share) if quota.is_cluster_wide else 1.0
        rate = getattr(quota, kind.value) * part
        return rate, max(1.0, rate * quota.burst_millis / 1000)

    # Cluster-wide quotas

    def set_shares(self, even_share: float, shares: Mapping[str, float]) -> None:
        """Set this broker's share of each cluster-wide quota, 0 to 1; `even_share` is that of the others."""
        self._even_share, self._shares = even_share, dict(shares)
        self._configure()

    # For operators

    @property
    def by_name(self) -> Mapping[str, Quota]:
        """The quotas."""
        return self.table.by_name

    def tallies(self) -> Mapping[tuple[str, Kind], Tally]:
        """Return what each quota has counted, by its name and by kind."""
        return self._tallies

    def buckets(self) -> Iterator[tuple[str | None, Bucket]]:
        """Return the buckets in use, each with the name of its quota; None for one whose quota was deleted."""
        for (dimension, name, _), bucket in list(self._buckets.items()):
            quota = self._patterns[dimension].find(name)
            yield None if quota is None else quota.name, bucket


def sent_bytes(request: Request[Any]) -> int:
    """Return the size of a send: its body and its properties, as they were sent."""
    text = request.header.properties or ""
    return len(request.body) + (len(text) if text.isascii() else len(text.encode()))
