"""Figures of brokers over the last hour, and when each broker last answered, in bounded memory.  Pure."""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from sprocket.client.admin.at_once import Outcomes
from sprocket.client.admin.cluster_health import Seen, is_silent
from sprocket.remoting.bodies.route import ClusterInfo

SPAN_MS: Final = 3_600_000
MAX_BROKERS: Final = 64
# Brokers whose last answer is remembered.
MAX_MEMBERS: Final = 1_000


@dataclass(frozen=True, slots=True)
class Counts:
    """What a broker counted since its start, and its latencies now (ms; None if it does not tell them)."""

    time_ms: int
    boot_ms: int
    put_total: int
    got_total: int
    put_p99_ms: float | None
    put_p999_ms: float | None


@dataclass(frozen=True, slots=True)
class Point:
    """One moment of one broker: messages per second since the moment before, and latencies in ms.

    Without messages there is no latency.
    """

    time_ms: int
    put_per_s: float
    got_per_s: float
    put_p99_ms: float | None
    put_p999_ms: float | None


def counts_of(runtime: Mapping[str, str], time_ms: int) -> Counts | None:
    """Return the counts in a broker's runtime figures; None if it does not tell them."""
    try:
        put, got = int(runtime["msgPutTotalTodayNow"]), int(runtime["msgGetTotalTodayNow"])
        boot_ms = int(runtime.get("bootTimestamp", "0"))
    except (KeyError, ValueError):
        return None
    return Counts(time_ms, boot_ms, put, got, _latency(runtime, "putLatency99"), _latency(runtime, "putLatency999"))


def point_between(before: Counts, now: Counts) -> Point | None:
    """Return the rates between two samples; None if the broker restarted or its clock stepped back."""
    elapsed_s = (now.time_ms - before.time_ms) / 1000
    put, got = now.put_total - before.put_total, now.got_total - before.got_total
    if elapsed_s <= 0 or now.boot_ms != before.boot_ms or put < 0 or got < 0:
        return None
    p99_ms, p999_ms = (now.put_p99_ms, now.put_p999_ms) if put else (None, None)
    return Point(now.time_ms, put / elapsed_s, got / elapsed_s, p99_ms, p999_ms)


class History:
    """Points of at most `MAX_BROKERS` brokers, of the last hour, at most one for each `interval_s`."""

    def __init__(self, interval_s: float) -> None:
        self._max_points = int(SPAN_MS / (interval_s * 1000)) + 1
        self._points: dict[str, deque[Point]] = {}
        self._last: dict[str, Counts] = {}
        self._members: dict[str, Seen] = {}
        # Why the last round of samples has none; empty if it has some.
        self.problem = ""

    def record_problem(self, problem: str) -> None:
        """Record why a round of samples has none; an empty text if it has some."""
        self.problem = problem

    @property
    def members(self) -> list[Seen]:
        """The brokers that have answered since the start, each with the time of the last answer."""
        return list(self._members.values())

    def saw(self, info: ClusterInfo, runtime: Outcomes[str, dict[str, str]], now_ms: int) -> None:
        """Record which brokers answer now.  Beyond the limit, the one that has been silent longest is forgotten."""
        for data in info.broker_addr_table.values():
            for broker_id, address in data.broker_addrs.items():
                if address in runtime and not is_silent(runtime[address]):
                    self._members.pop(address, None)
                    self._members[address] = Seen(data.broker_name, broker_id, address, now_ms)
        while len(self._members) > MAX_MEMBERS:
            del self._members[next(iter(self._members))]

    def forget(self, address: str) -> None:
        """Forget a broker that was removed for good."""
        self._members.pop(address, None)

    def add(self, broker: str, counts: Counts) -> None:
        """Add a sample of a broker.  A new broker beyond the limit is left out."""
        before = self._last.get(broker)
        if before is None and len(self._last) >= MAX_BROKERS:
            return
        self._last[broker] = counts
        point = None if before is None else point_between(before, counts)
        if point is not None:
            self._points.setdefault(broker, deque(maxlen=self._max_points)).append(point)

    def forget_before(self, time_ms: int) -> None:
        """Remove points that are older than `time_ms`, and brokers without newer samples."""
        for broker, last in list(self._last.items()):
            points = self._points.get(broker, deque())
            while points and points[0].time_ms < time_ms:
                points.popleft()
            if last.time_ms < time_ms:
                self._last.pop(broker)
                self._points.pop(broker, None)

    def points(self) -> dict[str, list[Point]]:
        """Return the points of each broker, by name."""
        return {broker: list(points) for broker, points in sorted(self._points.items()) if points}


def _latency(runtime: Mapping[str, str], key: str) -> float | None:
    try:
        value = float(runtime[key])
    except (KeyError, ValueError):
        return None
    return value if 0 <= value < 1e9 else None
