"""Refuses a part of what comes while requests wait for too long before they are read: some are told so in time.

Source: RocketMQ 5.3.3, `BrokerFastFailure.cleanExpiredRequestInQueue`.  There a request waits in the queue of its
thread pool; here in the buffers of sockets, see `sprocket.remoting.flow.shedding`.
"""

import logging
from typing import Final

from broker.config.live_config import LiveConfig
from sprocket.common.clock import Clock
from sprocket.remoting.routes import Lane, Verdict

logger = logging.getLogger(__name__)

CHECK_S: Final = 1.0
_SERVE_ALL: Final = (1.0, "")
# What is served of every read, at least: to refuse is far cheaper than to serve, so queues end at this share.
_LEAST_SHARE: Final = 1 / 64
# The share falls when something was too late, at most so often in the time that a request may wait, and rises after
# so much of it in which nothing was.
_FALLS: Final = 4
_RISES: Final = 2
# Requests may wait for this part of their limit while some are refused, for queues must become empty; the part grows
# with each limit in which nothing was later than that, so that a load that can be served is served again.
_STRICT: Final = 1 / 4
_RELAX: Final = 1.5
# Nothing is known any more after so many limits without a read, and after this time at least.
_FORGET: Final = 5
_FORGET_S: Final = 1.0


class LaneLoad:
    """What share of the requests of one lane is served, 0 to 1.  Pure; all times in s.

    Beyond the reference: they have to be late for as long as they may wait, so that a single pause refuses nothing;
    and of each read the same share is served, so that no connection is passed over for good.
    """

    def __init__(self) -> None:
        self.share = 1.0
        self.worst_s = 0.0  # what the last request that was late has waited
        self._part = 1.0  # of the limit, which counts as in time
        self._late_since: float | None = None
        self._late_at = 0.0
        self._relaxed_at = 0.0
        self._changed_at = 0.0
        self.seen_at = 0.0

    def seen(self, waited_s: float, limit_s: float, now: float) -> float:
        """The share to serve of what has waited, read at `now`, monotonic, and may wait `limit_s`."""
        self.seen_at = now
        if waited_s >= limit_s * self._part:
            self._late(waited_s, limit_s, now)
        else:
            self._in_time(waited_s, limit_s, now)
        return self.share

    def _late(self, waited_s: float, limit_s: float, now: float) -> None:
        if self._late_since is None:
            self._late_since = self._changed_at = now
        self._late_at, self.worst_s = now, waited_s
        if now - self._late_since < limit_s:
            return
        if waited_s >= limit_s:
            self._part, self._relaxed_at = _STRICT, now
        if now - self._changed_at >= limit_s / _FALLS:
            self._changed_at = now
            self.share = max(_LEAST_SHARE, self.share * (0.5 if waited_s >= limit_s else 0.8))

    def _in_time(self, waited_s: float, limit_s: float, now: float) -> None:
        if self.share < 1.0:
            if now - self._relaxed_at >= limit_s:
                self._part, self._relaxed_at = min(1.0, self._part * _RELAX), now
            if now - max(self._late_at, self._changed_at) >= limit_s / _RISES:
                self._changed_at = now
                self.share = min(1.0, self.share * (1.1 if waited_s >= limit_s / 16 else 1.5))
        elif now - self._late_at >= limit_s:
            self._late_since, self._part = None, 1.0


class FastFailure:
    """Which requests of one broker are refused.  Lives in the event loop's thread."""

    def __init__(self, config: LiveConfig, clock: Clock) -> None:
        self._config = config
        self._clock = clock
        self.reads_refused = 0  # of whose requests some were
        self._loads = {Lane.SEND: LaneLoad(), Lane.PULL: LaneLoad()}
        self._refused_before = 0  # at the last look
        self._is_refusing = False

    def verdict(self, lane: Lane, waited_s: float, count: int) -> Verdict:
        """What is served of the requests of `lane` in a read that brought `count` and has waited, and why no more."""
        broker = self._config.broker
        load = self._loads.get(lane)
        # Heartbeats and operators are few, and to turn them away makes things worse.
        if load is None or not broker.broker_fast_failure_enable:
            return _SERVE_ALL
        is_send = lane is Lane.SEND
        limit_s = (broker.wait_time_mills_in_send_queue if is_send else broker.wait_time_mills_in_pull_queue) / 1000
        now = self._clock.monotonic()
        if now - load.seen_at > max(_FORGET_S, _FORGET * limit_s):
            load = self._loads[lane] = LaneLoad()
        share = load.seen(waited_s, limit_s, now)
        if share >= 1.0:
            return _SERVE_ALL
        self.reads_refused += 1
        waited_ms = int(max(waited_s, load.worst_s) * 1000)
        return (
            share,
            f"[TIMEOUT_CLEAN_QUEUE]broker busy, start flow control for a while, period in queue: {waited_ms}ms, "
            f"size of queue: {count}; retry after {waited_ms} ms",
        )

    def look(self) -> None:
        """Say once that it begins, and that it is over."""
        is_refusing = self.reads_refused > self._refused_before
        self._refused_before = self.reads_refused
        if is_refusing != self._is_refusing:
            self._is_refusing = is_refusing
            state = "refusing" if is_refusing else "serving"
            logger.warning("event=overload state=%s reads_refused=%d", state, self.reads_refused)
