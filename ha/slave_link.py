"""The slave's end of the connection to its master: a machine that is fed with bytes and time.

It reports where its log ends, takes the pieces that follow, and after each reports the end again.
Source: RocketMQ 5.3.3, `DefaultHAClient`.

Unlike there, it lets the master begin a little before the end of its log, and compares those bytes with its own.  A
master that lost its last records in a power loss soon has other records in their place.  Records of one size end at the
same offsets, so nothing else would show that the logs differ.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from ha.protocol import TransferReader, report
from sprocket.common.errors import ProtocolError

# Size of the end that is compared, within its segment: the master may have deleted the segment before.
_COMPARED_BYTES: Final = 4096
# The advice calls neither store the wrong one, because the slave cannot know.
KEEP_BOTH: Final = (
    "Delete nothing yet: stop both brokers, copy both stores aside, compare them (sprocket store check), and only then"
    " choose the master"
)


class ReplicaLog(Protocol):
    """The part of a slave's store that takes what the master sends."""

    @property
    def end_offset(self) -> int:
        """End of the last complete record: what is acknowledged."""

    @property
    def received_offset(self) -> int:
        """End of the received bytes: where the next piece begins."""

    @property
    def min_offset(self) -> int:
        """First byte of the log."""

    def piece_at(self, offset: int, max_bytes: int, /) -> memoryview | None:
        """Return at most `max_bytes` from `offset` on, within one segment; None if there are none."""

    def restart(self) -> int:
        """Drop an incomplete record for a new connection; return the offset at which the master is to continue."""

    def append(self, from_offset: int, pieces: Sequence[memoryview], /) -> None:
        """Take bytes that begin at `received_offset`, or at any segment if the log is empty.  Raises StoreError."""


@dataclass(frozen=True)
class SlaveRules:
    """haSendHeartbeatInterval, haHousekeepingInterval, and the segment's size."""

    heartbeat_s: float = 5.0
    housekeeping_s: float = 20.0
    segment_bytes: int = 1 << 30


class SlaveLink:
    """One connection to the master.  Times are monotonic, in seconds."""

    def __init__(self, rules: SlaveRules, log: ReplicaLog, now: float) -> None:
        self._rules = rules
        self._log = log
        self._reader = TransferReader()
        self.read_at = now  # when the master last sent something
        self.wrote_at = now  # when something was last written to it
        self._reported = -1
        # The log is known to equal the master's up to `_same_to`.  The bytes up to `_same_end` are compared first.
        self._same_to = self._same_end = 0
        self.master_offset = -1  # the master has sent up to here; -1 before it sent anything
        self.received_bytes = 0
        self._has_begun = False

    def configure(self, rules: SlaveRules) -> None:
        """Apply changed intervals."""
        self._rules = rules

    @property
    def admits_polling(self) -> bool:
        """Whether the master may be asked for its tables: its log continues this one, or this one is empty."""
        return self._has_begun and self._same_to >= self._same_end

    def begin(self, now: float) -> bytes:
        """Return the first report to write."""
        self._log.restart()
        self._compare_from(self._log.end_offset)
        return self._report(now)

    def _compare_from(self, end: int) -> None:
        """Choose the end of the log, which ends at `end`, that is compared with the master's."""
        self._has_begun = True
        self._same_end = end
        # 0 would mean that the log is empty.
        begin = max(self._log.min_offset, end - end % self._rules.segment_bytes, end - _COMPARED_BYTES)
        self._same_to = max(begin, min(1, end))

    def received(self, data: bytes | memoryview, now: float) -> bytes:
        """Take `data` and return what to write, perhaps nothing.

        Raises ProtocolError for a piece that does not follow the log or differs from it, and StoreError from the log;
        close the connection then.  Nothing after the bad piece is taken.
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
            # One append and one report for each read.
            if pieces:
                self._log.append(start, pieces)
                self.received_bytes += sum(map(len, pieces))
                self.master_offset = start + sum(map(len, pieces))
        self.master_offset = max(self.master_offset, expected)
        return self.acknowledge(now)

    def _compare(self, content: memoryview) -> memoryview:
        """Compare `content` with the log; return the part after the log's end.  Raises ProtocolError if they differ."""
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
        """Return a heartbeat if one is due."""
        return self._report(now) if now - self.wrote_at >= self._rules.heartbeat_s else b""

    def acknowledge(self, now: float) -> bytes:
        """Return a report if the log reaches further than the last one said."""
        return self._report(now) if self._confirmed > self._reported else b""

    @property
    def _confirmed(self) -> int:
        """The offset to report: what the master is known to have as well."""
        return self._same_to if self._same_to < self._same_end else self._log.end_offset

    def _report(self, now: float) -> bytes:
        self.wrote_at = now
        self._reported = self._confirmed
        return report(self._reported)

    def is_expired(self, now: float) -> bool:
        """Return whether the master was silent for longer than haHousekeepingInterval."""
        return now - self.read_at > self._rules.housekeeping_s

    def wait_s(self, now: float) -> float:
        """Return the seconds from `now` until `due` and `is_expired` must be called again at the latest."""
        heartbeat = self.wrote_at + self._rules.heartbeat_s - now
        return max(0.0, min(heartbeat, self.read_at + self._rules.housekeeping_s - now))
