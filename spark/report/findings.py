"""Findings of a report, as plain values that a test can compute in another way."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from spark.report.topic_kinds import TopicKind

PERCENTILES = (0.5, 0.9, 0.99, 0.999)


@dataclass(frozen=True)
class TopicTotals:
    """Totals of one topic.  Times are store timestamps in ms; sizes of bodies are as stored."""

    topic: str
    kind: TopicKind
    messages: int
    body_bytes: int
    store_bytes: int
    first_ms: int
    last_ms: int


@dataclass(frozen=True)
class BrokerTotals:
    """Totals of one broker, and the physical offsets of its first and last record."""

    broker: str
    messages: int
    store_bytes: int
    first_ms: int
    last_ms: int
    first_offset: int
    last_offset: int


@dataclass(frozen=True)
class Buckets:
    """Time axis with `count` steps of `step_s` seconds; the first begins `start_s` seconds after 1970."""

    start_s: int
    step_s: int
    count: int

    def index(self, ms: int) -> int:
        """Return the index of the step at this time; it may be out of range."""
        return (ms // 1000 - self.start_s) // self.step_s

    @property
    def starts(self) -> list[int]:
        return [self.start_s + index * self.step_s for index in range(self.count)]


@dataclass(frozen=True)
class Latency:
    """Milliseconds over some messages: percentiles of `PERCENTILES` (linear between neighbours) and the largest."""

    name: str
    messages: int
    percentiles: tuple[float, ...]
    largest: float


@dataclass(frozen=True)
class StoreLatency:
    """Latency from bornTimestamp to storeTimestamp, for messages of applications without a delay."""

    by_topic: Sequence[Latency] = ()
    overall: Latency | None = None
    by_step: Sequence[tuple[int, float, float, float]] = ()  # step, p50, p99, largest
    negative: int = 0  # stored before they were born: the clocks differ
    held_back: int = 0  # delayed, timed or transactional: not counted
    without_time: int = 0  # bornTimestamp is not a date
    redriven: int = 0  # sent back from a dead-letter topic: not counted


@dataclass(frozen=True)
class Hot:
    """Tag or key, with the number of messages of a topic that have it."""

    topic: str
    value: str
    messages: int
    body_bytes: int


@dataclass(frozen=True)
class HotValues:
    """Most frequent values, with the numbers of different values and of messages."""

    top: Sequence[Hot] = ()
    different: int = 0
    messages: int = 0


@dataclass(frozen=True)
class FailureFlow:
    """Retries and dead letters of one group from one topic (None: unknown)."""

    group: str
    origin: str | None
    retries: int
    dead_letters: int


@dataclass(frozen=True)
class GroupConsumption:
    """Figures of one group from the trace."""

    group: str
    latency: Latency  # from bornTimestamp to the first delivery
    cost: Latency | None  # time of the consumer for each delivery
    attempts: int
    failures: int


@dataclass(frozen=True)
class Traced:
    """Figures from the trace topic."""

    groups: Sequence[GroupConsumption] = ()
    # group -> messages stored but not delivered at the end of each step; only messages with a delivery count
    waiting: dict[str, list[int]] = field(default_factory=dict)
    not_in_log: int = 0  # pairs of group and message whose message the log no longer holds


@dataclass(frozen=True)
class GroupLag:
    """Current lag of a group on a topic of a broker."""

    broker: str
    group: str
    topic: str
    queues: int
    lag: int
    oldest_ms: int | None  # store timestamp of the first message that the group has not committed


@dataclass(frozen=True)
class Findings:
    """All findings of a page."""

    stores: Sequence[str]
    brokers: Sequence[BrokerTotals] = ()
    topics: Sequence[TopicTotals] = ()  # largest first
    buckets: Buckets = field(default_factory=lambda: Buckets(0, 60, 0))
    traffic: dict[str, list[int]] = field(default_factory=dict)  # drawn topic -> messages in each step
    sizes: dict[int, int] = field(default_factory=dict)  # bits of the size -> application messages
    latency: StoreLatency = field(default_factory=StoreLatency)
    tags: HotValues = field(default_factory=HotValues)
    keys: HotValues = field(default_factory=HotValues)
    failures: Sequence[FailureFlow] = ()
    retries: dict[str, list[int]] = field(default_factory=dict)  # group -> retries in each step
    dead_letters: dict[str, list[int]] = field(default_factory=dict)
    traced: Traced | None = None
    popped: dict[str, list[int | None]] = field(default_factory=dict)  # group on topic -> lag at the end of each step
    lags: Sequence[GroupLag] = ()
    missing: Sequence[tuple[str, str]] = ()  # what the page cannot show, and why

    @property
    def messages(self) -> int:
        return sum(topic.messages for topic in self.topics)

    def of_kind(self, kind: TopicKind) -> list[TopicTotals]:
        return [topic for topic in self.topics if topic.kind is kind]
