"""Token bucket: the arithmetic of one limit, on an injected clock.

A request is admitted while the bucket is not empty, and then takes what it costs, even if the bucket has less.  The
debt is paid back before the next request is admitted.  So the rate holds over time for requests of any size, and a
kernel that admits a run of requests with one look gives the same result as a handler that looks each time.
"""

from array import array
from collections.abc import Iterable
from enum import Enum
from math import ceil
from typing import Final, TypeAlias

from sprocket.common.clock import Clock
from sprocket.common.errors import RequestError
from sprocket.common.refusal_pace import RefusalPace
from sprocket.common.refusal_reasons import Reason
from sprocket.remoting.codes import RETRY_AFTER_FIELD, ResponseCode

# Less is nothing: a sum of times that are no whole numbers in binary is off by less.
_NOTHING: Final = 1e-6
# What `left` returns if there is no bound.
UNBOUND: Final = 1 << 62


class Kind(Enum):
    """What a bucket counts; the value is the field of a `Quota`."""

    MESSAGES_IN = "messages_in"
    BYTES_IN = "bytes_in"
    MESSAGES_OUT = "messages_out"
    BYTES_OUT = "bytes_out"
    REQUESTS = "requests"

    @property
    def unit(self) -> str:
        """The unit in texts."""
        return self.value.partition("_")[0]


# Units by request, see `charge`: a request, its messages, or their bytes.
_BYTES: Final = (Kind.BYTES_IN, Kind.BYTES_OUT)


class Tally:
    """What the buckets of one quota and kind have counted since the start; `exceeded` is what was over it.

    `counted` has what they have taken, so that the compiled kernel of sends adds to it in place.
    """

    __slots__ = ("counted", "exceeded")

    def __init__(self) -> None:
        self.counted = array("d", (0.0,))
        self.exceeded = 0

    @property
    def used(self) -> int:
        """What they have taken."""
        return int(self.counted[0])

    def exceed(self, count: int) -> None:
        """Count what was over the limit."""
        self.exceeded += count


# Indexes of `Bucket.state`; two more are the kernel's: whether bytes are counted, and a place in its last append.
_LEVEL, _READ_AT_S, _RATE, _BURST, _IS_SOFT = range(5)


class Bucket:
    """Bucket with `rate` tokens a second and room for `burst`; full at first.

    `of` names the resource in texts.  A soft bucket counts in `tally.exceeded` what is over the limit, and admits it.
    `state` has the numbers that change, so that the compiled kernel of sends reads and changes them in place, as
    `left` and `take` do.  So it does with `counted`, that of the tally.  `now_s` is the clock.
    """

    __slots__ = ("__weakref__", "_pace", "counted", "counts_bytes", "kind", "now_s", "of", "state", "tally")

    def __init__(
        self, of: str, kind: Kind, rate: float, burst: float, clock: Clock, tally: Tally, *, is_soft: bool = False
    ) -> None:
        self.of = of
        self.kind = kind
        self.counts_bytes = kind in _BYTES
        self.tally, self.counted = tally, tally.counted
        self.now_s = clock.monotonic
        self._pace = RefusalPace()
        self.state = array("d", (burst, clock.monotonic(), rate, burst, is_soft, self.counts_bytes, 0))

    @property
    def rate(self) -> float:
        """Tokens a second."""
        return self.state[_RATE]

    @property
    def burst(self) -> float:
        """Max tokens."""
        return self.state[_BURST]

    @property
    def is_soft(self) -> bool:
        """Whether the bucket refuses nothing, only reports."""
        return self.state[_IS_SOFT] != 0

    def configure(self, rate: float, burst: float, tally: Tally, *, is_soft: bool) -> None:
        """Change the limit.  Debt stays, at the new rate; a soft limit that becomes hard begins with none."""
        self._refill()
        state, self.tally, self.counted = self.state, tally, tally.counted
        state[_LEVEL] = min(state[_LEVEL], burst)
        state[_RATE], state[_BURST], state[_IS_SOFT] = rate, burst, is_soft

    @property
    def level(self) -> float:
        """The tokens that are there now; negative for debt."""
        return self._refill()

    def left(self) -> int:
        """Return the number of tokens after which nothing more is admitted now; 0 if nothing is."""
        if self.state[_IS_SOFT]:
            return UNBOUND
        level = self._refill()
        return ceil(level - _NOTHING) if level > 0 else 0

    def wait_s(self) -> float:
        """Return the seconds until the next request is admitted; 0 if it is now."""
        if self.is_soft:
            return 0.0
        level = self._refill()
        return 0.0 if level > _NOTHING else (1 - level) / self.rate

    def take(self, count: int) -> None:
        """Take what admitted requests cost.

        What has come since the last look is added later, so a bucket that was full may hold that much more.
        """
        self.counted[0] += count
        self.state[_LEVEL] -= count
        if self.state[_IS_SOFT] and self._refill() < 0:
            self.tally.exceed(ceil(-self.state[_LEVEL]))
            self.state[_LEVEL] = 0.0

    def slow_s(self) -> float:
        """Return for how long the connection of a request that was over the limit is not read, in seconds.

        All connections with requests of this resource have one pace.
        """
        return self._pace.refused_s(self.now_s())

    def _refill(self) -> float:
        """Add what has come since the last look; return the tokens that are there now."""
        now_s, state = self.now_s(), self.state
        if now_s > state[_READ_AT_S]:
            state[_LEVEL] = min(state[_BURST], state[_LEVEL] + (now_s - state[_READ_AT_S]) * state[_RATE])
            state[_READ_AT_S] = now_s
        return state[_LEVEL]

    def __str__(self) -> str:
        return f"quota {self.rate:.10g} {self.kind.unit}/s of {self.of}"


Buckets: TypeAlias = tuple[Bucket, ...]


class QuotaExceeded(RequestError):
    """A quota is used up; the remark says which, and when to try again.

    The code is that of RocketMQ's proxy and brokers for flow control.  Source: RocketMQ 5.3.3, `ResponseCode`.
    """

    refusal_reason = Reason.QUOTA

    def __init__(self, bucket: Bucket, wait_s: float) -> None:
        wait_ms = max(1, ceil(wait_s * 1000))
        super().__init__(
            ResponseCode.FLOW_CONTROL, f"{bucket} is used up; try again in {wait_ms} ms", Reason.QUOTA,
            {RETRY_AFTER_FIELD: str(wait_ms)},
        )  # fmt: skip
        self.bucket = bucket


def longest_wait(buckets: Iterable[Bucket]) -> tuple[Bucket | None, float]:
    """Return the bucket that admits last, and in how many seconds; None and 0 if all admit now."""
    last, longest_s = None, 0.0
    for bucket in buckets:
        wait_s = bucket.wait_s()
        if wait_s > longest_s:
            last, longest_s = bucket, wait_s
    return last, longest_s


def admits(buckets: Iterable[Bucket]) -> bool:
    """Return whether all buckets admit a request now."""
    return all(bucket.left() for bucket in buckets)


def charge(buckets: Iterable[Bucket], messages: int, size_bytes: int, requests: int = 1) -> None:
    """Take from each bucket what requests with `messages` of `size_bytes` cost."""
    for bucket in buckets:
        kind = bucket.kind
        bucket.take(size_bytes if bucket.counts_bytes else requests if kind is Kind.REQUESTS else messages)
