"""Fault tolerance: brokers to avoid for a while, because they were slow or failed.

Source: RocketMQ 5.3.3, `MQFaultStrategy`, `LatencyFaultToleranceImpl`.  Pure: callers pass outcomes and the time.
"""

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
    """Table of avoided brokers by name and end of their avoidance; times are monotonic s."""

    def __init__(self, enabled: bool = True) -> None:
        self._enabled = enabled
        self.avoided_until: dict[str, float] = {}  # empty: no check per message is needed

    def sent(self, broker_name: str, latency_s: float, now: float) -> None:
        """Record a send that succeeded, or whose refusal says nothing about the broker's health."""
        if latency_s >= SLOW_S and self._enabled:
            self._avoid(broker_name, now + not_available_ms(int(latency_s * 1000)) / 1000)

    def failed(self, broker_name: str, now: float) -> None:
        """Record a failed send, which isolates the broker."""
        if self._enabled:
            self._avoid(broker_name, now + not_available_ms(_ISOLATION_LATENCY_MS) / 1000)

    def recovered(self, broker_name: str) -> None:
        """Record a heartbeat's response on a new connection: the broker may be used at once."""
        self.avoided_until.pop(broker_name, None)

    def is_available(self, broker_name: str, now: float) -> bool:
        until = self.avoided_until.get(broker_name)
        return until is None or now >= until

    def _avoid(self, broker_name: str, until: float) -> None:
        self.avoided_until[broker_name] = max(until, self.avoided_until.get(broker_name, 0.0))
