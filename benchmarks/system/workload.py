"""What the load generator is told and what it reports."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from sprocket.remoting.credentials import Credentials
from tests.compat import wire

EXCHANGES: Final = ("transaction", "delayed", "sql pull", "pop and ack")


class LoadError(Exception):
    """The broker refused a request, answered what was not asked, or went silent."""


@dataclass(frozen=True)
class Access:
    """How requests are made: signed by an account, or over TLS."""

    account: Credentials | None = None
    has_tls: bool = False

    def can_do(self, workload: "Workload") -> bool:
        """Return whether the generator has this workload with this access: not all need it."""
        return self == OPEN or not (workload.is_exchange or (self.has_tls and workload.connections > 1))


OPEN: Final = Access()


@dataclass(frozen=True)
class Workload:
    """What to do: `kind` is send, pull, or one of `EXCHANGES`; `outstanding` is the total over all connections.

    It ends after its seconds, or when `stop_after` messages are answered (0: no limit).
    """

    kind: str
    body_bytes: int
    outstanding: int
    connections: int = 1
    serialization: int = wire.JSON
    sync_flush: bool = False
    stop_after: int = 0
    with_values: bool = False

    @property
    def is_exchange(self) -> bool:
        """Whether it takes several steps and a loop of its own."""
        return self.kind in EXCHANGES

    @property
    def slots(self) -> int:
        """Requests outstanding on each connection."""
        return max(1, self.outstanding // self.connections)

    @property
    def name(self) -> str:
        """What a table says of it, and its key in the JSON report: 16x4 is 16 connections with 4 outstanding each."""
        words = [f"{self.kind} {self.body_bytes} B, {self.connections}x{self.slots}"]
        if self.serialization == wire.ROCKETMQ:
            words.append("binary header")
        if self.sync_flush:
            words.append("SYNC_FLUSH")
        return ", ".join(words)

    def is_called(self, words: str) -> bool:
        """Return whether its name has all these words, as `send 128 16x1`."""
        return {*words.replace(",", " ").split()} <= {*self.name.replace(",", "").split()}


# How applications send and pull: connections, and requests outstanding on each.
SHAPES: Final = (
    *(
        Workload("send", 128, connections * each, connections)
        for connections, each in ((1, 256), (1, 64), (16, 4), (16, 1), (64, 1), (1, 1))
    ),
    Workload("pull", 128, 16, 16),
)


@dataclass(frozen=True)
class Result:
    """Messages, seconds, and the sampled latencies of requests in microseconds, sorted."""

    messages: int
    elapsed_s: float
    latencies_us: Sequence[float]

    @property
    def rate(self) -> float:
        """Messages per second."""
        return self.messages / self.elapsed_s

    def percentile_us(self, fraction: float) -> float:
        """Latency that this fraction of the samples does not exceed; 0 without samples."""
        if not self.latencies_us:
            return 0.0
        return self.latencies_us[min(len(self.latencies_us) - 1, int(fraction * len(self.latencies_us)))]
