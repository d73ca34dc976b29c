"""Runtime figures of the store under RocketMQ's names.  Source: RocketMQ 5.3.3, `StoreStatsService`."""

from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple

from sprocket.common.clock import Clock
from sprocket.common.figures import Declared, Figure
from sprocket.metrics.declared import Kind, Metric
from sprocket.metrics.distribution import Distribution
from store.queue.queue_reader import QueueReader

_WINDOWS_S: Final = (10, 60, 600)
_LATENCY_WINDOW_S: Final = 60
# Upper bounds, ms, of the classes of append times, with RocketMQ's labels.
_CLASSES_MS: Final = (0, 10, 50, 100, 200, 500, 1000, 2000, 3000, 4000, 5000, 10000)
_CLASS_LABELS: Final = (
    "[<=0ms]", "[0~10ms]", "[10~50ms]", "[50~100ms]", "[100~200ms]", "[200~500ms]", "[500ms~1s]", "[1~2s]",
    "[2~3s]", "[3~4s]", "[4~5s]", "[5~10s]", "[10s~]",
)  # fmt: skip
_PER_SECOND: Final = "per second, in the last 10, 60 and 600 s"


class _Sample(NamedTuple):
    at_s: float
    put: int
    found: int
    missed: int
    transferred: int


def _nothing(seconds: float) -> None:
    """The default of `on_slow_put`."""


class StoreStatistics:
    """Counters of appends and reads.  The flush thread samples them about once a second with `sample`."""

    def __init__(self, clock: Clock, reader: QueueReader, *, on_slow_put: Callable[[float], None] = _nothing) -> None:
        self._clock = clock
        self._reader = reader
        self._boot_timestamp = clock.wall_ms()
        self._boot_s = clock.monotonic()
        self._classes = [0] * len(_CLASS_LABELS)
        self._longest_put_s = 0.0
        self._samples: deque[_Sample] = deque(maxlen=_WINDOWS_S[-1] + 1)
        self._class_samples: deque[tuple[int, ...]] = deque(maxlen=_LATENCY_WINDOW_S + 1)
        self.put_messages = 0
        self.put_bytes = 0
        self.put_seconds = 0.0  # times of appends, each counted once for each of its messages
        self.failed_puts = 0
        # Called with the seconds of an append that took a millisecond or more.
        self._on_slow_put = on_slow_put
        self.sample()

    def put(self, messages: int, size_bytes: int, seconds: float) -> None:
        """Count one append."""
        self.put_messages += messages
        self.put_bytes += size_bytes
        self.put_seconds += messages * seconds
        if seconds < 0.001:
            self._classes[0] += messages
        else:
            self._on_slow_put(seconds)
            milliseconds = seconds * 1000
            self._classes[sum(milliseconds > bound for bound in _CLASSES_MS)] += messages
        if seconds > self._longest_put_s:
            self._longest_put_s = seconds

    def put_failed(self, messages: int) -> None:
        """Count messages that the store refused."""
        self.failed_puts += messages

    def sample(self) -> None:
        """Record the counters and the time."""
        reader = self._reader
        self._class_samples.append(tuple(self._classes))
        self._samples.append(
            _Sample(
                self._clock.monotonic(),
                self.put_messages,
                reader.found_times,
                reader.missed_times,
                reader.transferred_messages,
            )
        )

    def _rates(self, *fields: str) -> str:
        """Return rates per second over the last 10, 60 and 600 s, or over the time that is recorded."""
        samples = list(self._samples)
        last = samples[-1]
        rates = []
        for window in _WINDOWS_S:
            first = samples[-min(window + 1, len(samples))]
            count = sum(getattr(last, field) - getattr(first, field) for field in fields)
            rates.append(count / max(last.at_s - first.at_s, 0.001) if last is not first else 0.0)
        return " ".join(str(rate) for rate in rates)

    def _put_latency_ms(self, share: float) -> str:
        """Return an append time, ms: `share` of the last minute's messages took at most this, by their classes."""
        first = self._class_samples[0]
        return f"{_within(share, [now - then for now, then in zip(self._classes, first, strict=True)]):.2f}"

    def metric(self) -> Metric:
        """Return the times of appends.  Not in RocketMQ."""
        return Metric(
            "sprocket_store_append_time", Kind.HISTOGRAM, "time of the append that stored a message, for each message",
            lambda: [((), self._append_times())], unit="milliseconds",
        )  # fmt: skip

    def _append_times(self) -> Distribution:
        times = Distribution((1, *_CLASSES_MS[1:]))
        times.counts = list(self._classes)
        times.count = sum(self._classes)
        times.total = self.put_seconds * 1000
        return times

    def figures(self) -> list[Declared]:
        """Return the figures, in the form of `getRuntimeInfo`."""
        cold = self._reader.cold
        return [
            Figure("bootTimestamp", "start of the store, ms since 1970", lambda: self._boot_timestamp),
            Figure("runtime", "time since the start", self._runtime),
            Figure("putMessageEntireTimeMax", "longest append, ms", lambda: int(self._longest_put_s * 1000)),
            Figure("putMessageTimesTotal", "messages appended, at least 1", lambda: max(1, self.put_messages)),
            Figure("putMessageFailedTimes", "messages that the store refused", lambda: self.failed_puts),
            Figure("putMessageSizeTotal", "bytes appended", lambda: self.put_bytes),
            Figure("putMessageDistributeTime", "messages by the time of their append", self._classes_text),
            Figure("putMessageAverageSize", "bytes per message", lambda: self.put_bytes / max(1, self.put_messages)),
            Figure("dispatchMaxBuffer", "0: there is no such buffer", lambda: 0),
            Figure("getMessageEntireTimeMax", "0: reads are not timed", lambda: 0),
            Figure("putTps", f"messages appended {_PER_SECOND}", lambda: self._rates("put")),
            Figure("getFoundTps", f"reads that found messages {_PER_SECOND}", lambda: self._rates("found")),
            Figure("getMissTps", f"reads that found none {_PER_SECOND}", lambda: self._rates("missed")),
            Figure("getTotalTps", f"all reads {_PER_SECOND}", lambda: self._rates("found", "missed")),
            Figure("getTransferredTps", f"messages read {_PER_SECOND}", lambda: self._rates("transferred")),
            # The name of RocketMQ 4.9, which rocketmq-dashboard 1.0.0 reads.
            Figure("getTransferedTps", "the same as getTransferredTps", lambda: self._rates("transferred")),
            Figure(
                "putLatency99",
                "99 % of the last minute's appends took at most this, ms",
                lambda: self._put_latency_ms(0.99),
            ),
            Figure("putLatency999", "the same for 99.9 %", lambda: self._put_latency_ms(0.999)),
            # RocketMQ has neither of these: it does not check records that it reads.
            Figure("damagedRecords", "damaged records that a read has found", lambda: cold.damaged_records),
            Figure("damagedReads", "reads that met a damaged record", lambda: cold.damaged_reads),
        ]

    def _runtime(self) -> str:
        days, rest = divmod(int(self._clock.monotonic() - self._boot_s), 86_400)
        hours, rest = divmod(rest, 3_600)
        return f"[ {days} days, {hours} hours, {rest // 60} minutes, {rest % 60} seconds ]"

    def _classes_text(self) -> str:
        return "".join(f"{label}:{count} " for label, count in zip(_CLASS_LABELS, self._classes, strict=True))


def _within(share: float, counts: list[int]) -> float:
    """Return the append time, ms, below which `share` of all counts lies.

    Times are taken as evenly spread inside a class.  The last class, which has no upper bound, gives its lower bound.
    Source: RocketMQ 5.3.3, `StoreStatsService.findPutMessageEntireTimePX`.
    """
    rank = sum(counts) * share
    lower = 0
    for count, upper in zip(counts, (1, *_CLASSES_MS[1:]), strict=False):
        if count and rank <= count:
            return lower + (upper - lower) * rank / count
        rank -= count
        lower = upper
    return float(lower) if any(counts) else 0.0
