"""The slave's end of the connection to its master: a machine that is fed with bytes and time.

It says where its log ends, takes the pieces that follow, and says again where the log ends after each.
Source: RocketMQ 5.3.3, `DefaultHAClient`.

Unlike there it has the master begin a little before the end of its log, and compares that with what it has.  A master
that lost its last records in a loss of power has others in their place by the time it is long enough again; records of
one size end at the same places, and then nothing else shows that the two logs are different ones.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from ha.protocol import TransferReader, report
from sprocket.common.errors import ProtocolError

# So much of the end is compared, within its segment: the master may have no more of what is before.
_COMPARED_BYTES: Final = 4096
# Advice that cannot be misread: neither store is called the wrong one.
KEEP_BOTH: Final = (
    "Delete nothing yet: stop both brokers, copy both stores aside, compare them (sprocket store check), and only then"
    " choose the master"
)


class ReplicaLog(Protocol):
    """The part of a slave's store that takes what the master sends."""

    @property
    def end_offset(self) -> int:
        """One past the last whole record: what is acknowledged."""

    @property
    def received_offset(self) -> int:
        """One past the last byte: where the next piece begins."""

    @property
    def min_offset(self) -> int:
        """Where the log begins."""

    def piece_at(self, offset: int, most_bytes: int, /) -> memoryview | None:
        """At most so many bytes from `offset` on, of one segment; None if there are none."""

    def restart(self) -> int:
        """A new connection begins: forget what is not whole.  Where the master is to go on."""

    def append(self, from_offset: int, pieces: Sequence[memoryview], /) -> None:
        """Take bytes that begin at `received_offset`, or at any segment if the log is empty.  Raises `StoreError`."""


@dataclass(frozen=True)
class SlaveRules:
    """haSendHeartbeatInterval, haHousekeepingInterval, and the segment's size."""

    heartbeat_s: float = 5.0
    housekeeping_s: float = 20.0
    segment_bytes: int = 1 << 30


class SlaveLink:
    """One connection to the master.  Times are those of a monotonic clock, seconds."""

    def __init__(self, rules: SlaveRules, log: ReplicaLog, now: float) -> None:
        self.rules = rules
        self._log = log
        self._reader = TransferReader()
        self.read_at = now  # when the master was last heard
        self.wrote_at = now  # when it was last told something
        self._reported = -1
        # Up to where the log is known to be the master's, and up to where that is to be found out first.
        self._same_to = self._same_end = 0
        self.master_offset = -1  # the master has sent up to here; -1 before its first word
        self.received_bytes = 0
        self._has_begun = False

    @property
    def admits_polling(self) -> bool:
        """Whether the master may be asked for its tables: its log goes on from this one, or this one is empty."""
        return self._has_begun and self._same_to >= self._same_end

    def begin(self, now: float) -> bytes:
        """The first thing to write."""
        self._log.restart()
        self._has_begun = True
        log = self._log
        end = self._same_end = log.end_offset
        # 0 would say that the log is empty.
        self._same_to = max(log.min_offset, end - end % self.rules.segment_bytes, end - _COMPARED_BYTES, min(1, end))
        return self._report(now)

    def received(self, data: bytes | memoryview, now: float) -> bytes:
        """Take what came; what to write for it, perhaps nothing.

        Raises ProtocolError for a piece that does not follow what is there or is not what is there, and `StoreError`
        from the log; the connection is then to be closed.  Nothing behind the bad piece is taken.
        """
        self.read_at = now
        expected = self._same_to if self._same_to < self._same_end else self._log.received_offset
        start = self._log.received_offset
        pieces: list[memoryview] = []
        try:
            for transfer in self._reader.feed(data):
                if expected and transfer.from_offset != expected:
                    detail = f"the master sends from {transfer.from_offset}, the slave's log ends at {expected}"
                    raise ProtocolError("ha_transfer", detail)
                content = transfer.content
                if self._same_to < self._same_end:
                    content = self._compare(content)
                elif not pieces:
                    start = transfer.from_offset
                if content:
                    pieces.append(content)
                expected = transfer.from_offset + len(transfer.content)
        finally:
            # One append and one report for all that a read brought.
            if pieces:
                self._log.append(start, pieces)
                self.received_bytes += sum(map(len, pieces))
                self.master_offset = start + sum(map(len, pieces))
        self.master_offset = max(self.master_offset, expected)
        return self.acknowledge(now)

    def _compare(self, content: memoryview) -> memoryview:
        """Compare what comes with what is there; what of it lies behind that.  Raises ProtocolError."""
        while content and self._same_to < self._same_end:
            own = self._log.piece_at(self._same_to, min(len(content), self._same_end - self._same_to))
            if own is None or own != content[: len(own)]:
                detail = (
                    f"this slave's log ends at {self._same_end} and differs from the master's after {self._same_to};"
                    f" both stores hold data and this slave keeps its own untouched.  {KEEP_BOTH}"
                )
                raise ProtocolError("ha_diverged", detail)
            self._same_to += len(own)
            content = content[len(own) :]
        return content

    def due(self, now: float) -> bytes:
        """A heartbeat, if it is time for one."""
        return self._report(now) if now - self.wrote_at >= self.rules.heartbeat_s else b""

    def acknowledge(self, now: float) -> bytes:
        """A report, if the log reaches further than the last one said."""
        return self._report(now) if self._confirmed > self._reported else b""

    @property
    def _confirmed(self) -> int:
        """What is reported: what the master has as well."""
        return self._same_to if self._same_to < self._same_end else self._log.end_offset

    def _report(self, now: float) -> bytes:
        self.wrote_at = now
        self._reported = self._confirmed
        return report(self._reported)

    def is_expired(self, now: float) -> bool:
        """Whether the master has been silent for too long."""
        return now - self.read_at > self.rules.housekeeping_s

    def wait_s(self, now: float) -> float:
        """Until when at the latest `due` and `is_expired` are to be asked again, seconds from `now`."""
        heartbeat = self.wrote_at + self.rules.heartbeat_s - now
        return max(0.0, min(heartbeat, self.read_at + self.rules.housekeeping_s - now))
