"""How many wrong signatures an address may send: a bucket of tokens for each, in a table that stays small.  Pure."""

from collections import OrderedDict
from typing import Final

from acl.remote_addresses import Parts

# Addresses that are remembered; the one whose last failure lies farthest back makes room.
_MOST_ADDRESSES: Final = 4096
# Whoever has one IPv6 address has a whole network of them: /64.
_IPV6_PARTS: Final = 8
_IPV6_NETWORK_PARTS: Final = 4


class FailedAttempts:
    """Each address has `burst` attempts, and gets back `per_second` of them; 0 sets no limit."""

    def __init__(self, per_second: float, burst: int, most: int = _MOST_ADDRESSES) -> None:
        self._per_second = per_second
        self._burst = float(burst)
        self._most = most
        # Tokens that were left at a time in seconds; the address that failed last stands last.
        self._buckets: OrderedDict[Parts, tuple[float, float]] = OrderedDict()

    def is_locked(self, peer: Parts | None, now: float) -> bool:
        """Whether the address has no attempt left at `now` (seconds of a clock that never steps back)."""
        if not self._buckets:
            return False
        bucket = self._buckets.get(_network(peer))
        return bucket is not None and self._tokens(bucket, now) < 1

    def failed(self, peer: Parts | None, now: float) -> None:
        """The address has spent an attempt."""
        if not self._per_second:
            return
        key = _network(peer)
        left = self._tokens(self._buckets.pop(key, (self._burst, now)), now) - 1
        self._buckets[key] = (max(left, 0.0), now)
        if len(self._buckets) > self._most:
            self._buckets.popitem(last=False)

    def __len__(self) -> int:
        return len(self._buckets)

    def _tokens(self, bucket: tuple[float, float], now: float) -> float:
        left, at = bucket
        return min(self._burst, left + (now - at) * self._per_second)


def _network(peer: Parts | None) -> Parts:
    parts = peer or ()
    return parts[:_IPV6_NETWORK_PARTS] if len(parts) == _IPV6_PARTS else parts
