"""Refusal of a share of the requests while requests wait for too long, so that the refused clients learn it in time.

Source: RocketMQ 5.3.3, `BrokerFastFailure.cleanExpiredRequestInQueue`.  There a request waits in the queue of a thread
pool; here it waits in the buffers of its socket until it is read, see `sprocket.remoting.flow.shedding`.
"""

import logging
from typing import Final

from broker.config.live_config import LiveConfig
from sprocket.common.clock import Clock
from sprocket.common.logs.peer_lines import peer_lines
from sprocket.remoting.routes import Traffic, Verdict

logger = logging.getLogger(__name__)

CHECK_S: Final = 1.0
_SERVE_ALL: Final = (1.0, "")
# Min share of every read that is served.  A refusal is far cheaper than serving, so at this share queues become empty.
_MIN_SHARE: Final = 1 / 64
# "Limit" means the max wait of a request.  The share falls at most this many times per limit, when a request was late.
_FALLS_PER_LIMIT: Final = 4
# It rises once in each limit divided by this number, when no request was late.
_RISES_PER_LIMIT: Final = 2
# While requests are refused, a request is late after this part of the limit, because queues must become empty.
_STRICT: Final = 1 / 4
# After each limit without a late request that part grows by this factor, so that a load that fits is served again.
_RELAX: Final = 1.5
# A class starts again after this many limits without a read, but not before `_FORGET_S`.
_FORGET_LIMITS: Final = 5
_FORGET_S: Final = 1.0


class ClassLoad:
    """Share of the requests of one class to serve, 0 to 1.  Pure; all times in s.

    Beyond RocketMQ: requests must be late for a whole limit before any is refused, so that a single pause refuses
    nothing.  The share is the same for each read, so that no connection starves.
    """

    def __init__(self) -> None:
        self.share = 1.0
        self.last_late_s = 0.0  # wait of the last late request
        self._strictness = 1.0  # a request is late after this part of the limit
        self._late_since: float | None = None
        self._late_at = 0.0
        self._relaxed_at = 0.0
        self._changed_at = 0.0
        self.seen_at = 0.0

    def share_for(self, waited_s: float, limit_s: float, now: float) -> float:
        """Return the share to serve of a read at `now`, monotonic, whose requests waited `waited_s` of `limit_s`."""
        self.seen_at = now
        if waited_s >= limit_s * self._strictness:
            self._late(waited_s, limit_s, now)
        else:
            self._in_time(waited_s, limit_s, now)
        return self.share

    def _late(self, waited_s: float, limit_s: float, now: float) -> None:
        if self._late_since is None:
            self._late_since = self._changed_at = now
        self._late_at, self.last_late_s = now, waited_s
        if now - self._late_since < limit_s:
            return
        if waited_s >= limit_s:
            self._strictness, self._relaxed_at = _STRICT, now
        if now - self._changed_at >= limit_s / _FALLS_PER_LIMIT:
            self._changed_at = now
            self.share = max(_MIN_SHARE, self.share * (0.5 if waited_s >= limit_s else 0.8))

    def _in_time(self, waited_s: float, limit_s: float, now: float) -> None:
        if self.share < 1.0:
            if now - self._relaxed_at >= limit_s:
                self._strictness, self._relaxed_at = min(1.0, self._strictness * _RELAX), now
            if now - max(self._late_at, self._changed_at) >= limit_s / _RISES_PER_LIMIT:
                self._changed_at = now
                self.share = min(1.0, self.share * (1.1 if waited_s >= limit_s / 16 else 1.5))
        elif now - self._late_at >= limit_s:
            self._late_since, self._strictness = None, 1.0


class FastFailure:
    """Decision which requests a broker refuses.  Lives in the event loop's thread."""

    def __init__(self, config: LiveConfig, clock: Clock) -> None:
        self._config = config
        self._clock = clock
        self.reads_refused = 0  # reads with refused requests
        self._sends, self._pulls = ClassLoad(), ClassLoad()
        self._refused_before = 0  # at the last `report`
        self._is_refusing = False

    def verdict(self, traffic: Traffic, waited_s: float, count: int) -> Verdict:
        """Return the share of a read of `count` requests to serve, and the reason for refusing the rest."""
        broker = self._config.broker
        # Not a mapping by class: hashing an Enum takes longer than the decision.
        load = self._sends if traffic is Traffic.SEND else self._pulls if traffic is Traffic.PULL else None
        # Heartbeats and operators' requests are few, and refusing them makes things worse.
        if load is None or not broker.broker_fast_failure_enable:
            return _SERVE_ALL
        is_send = traffic is Traffic.SEND
        limit_s = (broker.wait_time_mills_in_send_queue if is_send else broker.wait_time_mills_in_pull_queue) / 1000
        now = self._clock.monotonic()
        if now - load.seen_at > max(_FORGET_S, _FORGET_LIMITS * limit_s):
            load = ClassLoad()
            if is_send:
                self._sends = load
            else:
                self._pulls = load
        share = load.share_for(waited_s, limit_s, now)
        if share >= 1.0:
            return _SERVE_ALL
        self.reads_refused += 1
        waited_ms = int(max(waited_s, load.last_late_s) * 1000)
        return (
            share,
            f"[TIMEOUT_CLEAN_QUEUE]broker busy, start flow control for a while, period in queue: {waited_ms}ms, "
            f"size of queue: {count}; retry after {waited_ms} ms",
        )

    def report(self) -> None:
        """Log the start and the end of each overload once."""
        is_refusing = self.reads_refused > self._refused_before
        self._refused_before = self.reads_refused
        if is_refusing != self._is_refusing:
            self._is_refusing = is_refusing
            state = "refusing" if is_refusing else "serving"
            peer_lines.warning(logger, "", "event=overload state=%s reads_refused=%d", state, self.reads_refused)
