"""Limit on wrong signatures per address: a token bucket for each, in a bounded table.  Pure.

A file of its own, because it is a rule of its own that is tested without a gate.
"""

from collections import OrderedDict
from typing import Final

from acl.remote_addresses import Parts

# Addresses to remember; the one whose last failure is oldest is dropped first.
_MAX_ADDRESSES: Final = 4096
# The owner of one IPv6 address has a whole /64 network.
_IPV6_PARTS: Final = 8
_IPV6_NETWORK_PARTS: Final = 4


class FailedAttempts:
    """Attempts per address: `burst` at once, refilled by `per_second`; 0 sets no limit."""

    def __init__(self, per_second: float, burst: int, max_addresses: int = _MAX_ADDRESSES) -> None:
        self._per_second = per_second
        self._burst = float(burst)
        self._max_addresses = max_addresses
        # (tokens left, time in s); the address that failed last is last.
        self._buckets: OrderedDict[Parts, tuple[float, float]] = OrderedDict()

    def is_locked(self, peer: Parts | None, now: float) -> bool:
        """Return whether the address has no attempt left at `now` (s of a clock that never steps back)."""
        if not self._buckets:
            return False
        bucket = self._buckets.get(_network(peer))
        return bucket is not None and self._tokens(bucket, now) < 1

    def failed(self, peer: Parts | None, now: float) -> None:
        """Spend an attempt of the address."""
        if not self._per_second:
            return
        key = _network(peer)
        left = self._tokens(self._buckets.pop(key, (self._burst, now)), now) - 1
        self._buckets[key] = (max(left, 0.0), now)
        if len(self._buckets) > self._max_addresses:
            self._buckets.popitem(last=False)

    def __len__(self) -> int:
        return len(self._buckets)

    def _tokens(self, bucket: tuple[float, float], now: float) -> float:
        left, at = bucket
        return min(self._burst, left + (now - at) * self._per_second)


def _network(peer: Parts | None) -> Parts:
    parts = peer or ()
    return parts[:_IPV6_NETWORK_PARTS] if len(parts) == _IPV6_PARTS else parts
