"""Runtime figures of the store under RocketMQ's names.  Source: RocketMQ 5.3.3, `StoreStatsService`."""

from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple

from sprocket.common.clock import Clock
from store.queue.queue_reader import QueueReader

_WINDOWS_S: Final = (10, 60, 600)
_LATENCY_WINDOW_S: Final = 60
# Upper bounds, ms, of the classes in which appends are counted, with RocketMQ's labels.
_CLASSES_MS: Final = (0, 10, 50, 100, 200, 500, 1000, 2000, 3000, 4000, 5000, 10000)
_CLASS_LABELS: Final = (
    "[<=0ms]", "[0~10ms]", "[10~50ms]", "[50~100ms]", "[100~200ms]", "[200~500ms]", "[500ms~1s]", "[1~2s]",
    "[2~3s]", "[3~4s]", "[4~5s]", "[5~10s]", "[10s~]",
)  # fmt: skip


class _Sample(NamedTuple):
    at_s: float
    put: int
    found: int
    missed: int
    transferred: int


def _nothing(seconds: float) -> None:
    """The default of `on_slow_put`."""


class StoreStatistics:
    """Counters, sampled about once a second by whoever calls `sample`."""

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
        self.failed_puts = 0
        # Called with the seconds of an append that took a millisecond or more.
        self._on_slow_put = on_slow_put
        self.sample()

    def put(self, messages: int, size_bytes: int, seconds: float) -> None:
        """Count one append."""
        self.put_messages += messages
        self.put_bytes += size_bytes
        if seconds < 0.001:
            self._classes[0] += messages
        else:
            self._on_slow_put(seconds)
            milliseconds = seconds * 1000
            self._classes[sum(milliseconds > bound for bound in _CLASSES_MS)] += messages
        if seconds > self._longest_put_s:
            self._longest_put_s = seconds

    def put_failed(self, messages: int) -> None:
        """Count messages that were refused for the disk's sake."""
        self.failed_puts += messages

    def sample(self) -> None:
        """Note the counters and the time."""
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
        """Per second over the last 10, 60 and 600 s, or over what there is of them."""
        samples = list(self._samples)
        last = samples[-1]
        rates = []
        for window in _WINDOWS_S:
            first = samples[-min(window + 1, len(samples))]
            count = sum(getattr(last, field) - getattr(first, field) for field in fields)
            rates.append(count / max(last.at_s - first.at_s, 0.001) if last is not first else 0.0)
        return " ".join(str(rate) for rate in rates)

    def _put_latency_ms(self, share: float) -> str:
        """What `share` of the messages of the last minute took at most, ms, as near as their classes tell."""
        first = self._class_samples[0]
        return f"{_within(share, [now - then for now, then in zip(self._classes, first, strict=True)]):.2f}"

    def runtime_info(self) -> dict[str, str]:
        """The figures as text, as `getRuntimeInfo` gives them."""
        seconds = int(self._clock.monotonic() - self._boot_s)
        days, rest = divmod(seconds, 86_400)
        hours, rest = divmod(rest, 3_600)
        classes = "".join(f"{label}:{count} " for label, count in zip(_CLASS_LABELS, self._classes, strict=True))
        total = max(1, self.put_messages)
        return {
            "bootTimestamp": str(self._boot_timestamp),
            "runtime": f"[ {days} days, {hours} hours, {rest // 60} minutes, {rest % 60} seconds ]",
            "putMessageEntireTimeMax": str(int(self._longest_put_s * 1000)),
            "putMessageTimesTotal": str(total),
            "putMessageFailedTimes": str(self.failed_puts),
            "putMessageSizeTotal": str(self.put_bytes),
            "putMessageDistributeTime": classes,
            "putMessageAverageSize": str(self.put_bytes / total),
            "dispatchMaxBuffer": "0",
            "getMessageEntireTimeMax": "0",
            "putTps": self._rates("put"),
            "getFoundTps": self._rates("found"),
            "getMissTps": self._rates("missed"),
            "getTotalTps": self._rates("found", "missed"),
            "getTransferredTps": self._rates("transferred"),
            "putLatency99": self._put_latency_ms(0.99),
            "putLatency999": self._put_latency_ms(0.999),
            # RocketMQ has none of these two: it does not look.
            "damagedRecords": str(self._reader.cold.damaged_records),
            "damagedReads": str(self._reader.cold.damaged_reads),
        }


def _within(share: float, counts: list[int]) -> float:
    """The place of `share` of all counts among the classes, ms: even inside a class, its lower bound in the last.

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
