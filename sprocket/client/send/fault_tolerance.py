"""Fault tolerance: brokers to avoid for a while, because they were slow or failed.

Source: RocketMQ 5.3.3, `MQFaultStrategy`, `LatencyFaultToleranceImpl`.  Pure: callers pass outcomes and the time.
Different here: a broker group is no longer avoided when the routes name another master.
"""

import math
from collections.abc import Callable

# Latency of a send from which its broker is avoided, and for how long; both in ms.
_LATENCY_MAX_MS = (50, 100, 550, 1800, 3000, 5000, 15000)
_NOT_AVAILABLE_MS = (0, 0, 2000, 5000, 6000, 10000, 30000)
# Latency of a send from which `FaultTolerance.sent` avoids its broker, s.
SLOW_S = 0.55
# Latency that a failed send counts as, ms.
_ISOLATION_LATENCY_MS = 10000


def not_available_ms(latency_ms: int) -> int:
    """Return how long a broker is avoided after a send of `latency_ms`."""
    for limit_ms, avoided_ms in zip(reversed(_LATENCY_MAX_MS), reversed(_NOT_AVAILABLE_MS), strict=True):
        if latency_ms >= limit_ms:
            return avoided_ms
    return 0


class FaultTolerance:
    """Table of avoided brokers by name; times are monotonic s."""

    def __init__(
        self, enabled: bool = True, master_changed_at: Callable[[str], float] = lambda broker_name: -math.inf
    ) -> None:
        """`master_changed_at` returns when the routes last changed the master of a broker group."""
        self._enabled = enabled
        self._master_changed_at = master_changed_at
        # Begin of the attempt that is the reason, and end of the avoidance.  Empty: no check per message is needed.
        self.avoided: dict[str, tuple[float, float]] = {}

    def sent(self, broker_name: str, started: float, now: float) -> None:
        """Record a send that succeeded, or whose refusal says nothing about the broker's health."""
        if now - started >= SLOW_S and self._enabled:
            self._avoid(broker_name, started, now + not_available_ms(int((now - started) * 1000)) / 1000)

    def failed(self, broker_name: str, started: float, now: float) -> None:
        """Record a failed send that began at `started`; it isolates the broker."""
        if self._enabled:
            self._avoid(broker_name, started, now + not_available_ms(_ISOLATION_LATENCY_MS) / 1000)

    def end_avoidances(self, now: float) -> None:
        """Forget what is over: the time has passed, or the routes name another master."""
        for broker_name, (started, until) in list(self.avoided.items()):
            if now >= until or self._master_changed_at(broker_name) >= started:
                del self.avoided[broker_name]

    def is_available(self, broker_name: str) -> bool:
        """Return whether the broker may be used, as of the last `end_avoidances`."""
        return broker_name not in self.avoided

    def _avoid(self, broker_name: str, started: float, until: float) -> None:
        before_started, before_until = self.avoided.get(broker_name, (-math.inf, -math.inf))
        self.avoided[broker_name] = max(started, before_started), max(until, before_until)
