"""The master's end of one connection to a slave: a machine that is fed with bytes and time.

The slave's first report says where its log ends.  From there the log is sent in pieces, as it grows.  Later reports
acknowledge.  Source: RocketMQ 5.3.3, `DefaultHAConnection`.

Two reports end the connection here, unlike there: one beyond what this connection has sent, and a first report beyond
what this master has ever sent, because such a log is no copy of this one.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

from ha.hello import Identity
from ha.protocol import ReportReader, transfer_head
from sprocket.common.errors import ProtocolError


class Log(Protocol):
    """The part of a store's log that is read for a slave."""

    @property
    def min_offset(self) -> int: ...

    @property
    def end_offset(self) -> int: ...

    def piece_at(self, offset: int, max_bytes: int, /) -> memoryview | None:
        """Return at most `max_bytes` from `offset` on, within one segment; None if there are none."""


@dataclass(frozen=True)
class LinkRules:
    """Intervals and sizes: haSendHeartbeatInterval, haHousekeepingInterval, haTransferBatchSize, the segment's size."""

    heartbeat_s: float = 5.0
    housekeeping_s: float = 20.0
    batch_bytes: int = 32 * 1024
    # haTransferBatchSize for a slave that is a Sprocket broker; 0 for `batch_bytes`.
    session_batch_bytes: int = 0
    segment_bytes: int = 1 << 30
    # An empty slave begins with the last segment, as RocketMQ's does; otherwise with the first segment that is kept.
    from_last_segment: bool = True
    # maxHaTransferByteInSecond; 0 for no limit.
    bytes_per_s: int = 0


class MasterLink:
    """One slave, from its first report to the end of the connection.  Times are monotonic, in seconds.

    `known_offset` returns the highest offset that a slave can have; without it the end of the log.
    """

    def __init__(self, rules: LinkRules, log: Log, now: float, known_offset: Callable[[], int] | None = None) -> None:
        self._rules = rules
        self._log = log
        self._known_offset = known_offset
        self._reader = ReportReader()
        self._read_at = now
        self._wrote_at = now
        self._window_at = now
        self._window_bytes = 0
        self.requested_offset: int | None = None  # the slave's log ended here when it connected
        self.next_offset = -1  # the next piece begins here; -1 before the first report
        self.acked_offset = -1  # the slave has everything before it
        self.flushed_offset: int | None = None  # the slave has flushed to here; None if it does not report that
        self.sent_bytes = 0
        self.identity: Identity | None = None  # None before the slave proved or told it; always with the plain protocol
        self.is_learner = False  # the slave never counts as in sync

    # Input

    def configure(self, rules: LinkRules) -> None:
        """Apply changed intervals and sizes; where an empty slave begins does not change."""
        self._rules = replace(rules, from_last_segment=self._rules.from_last_segment)

    def received(self, data: bytes, now: float) -> bool:
        """Take `data` and return whether the slave acknowledged more than before.

        Raises ProtocolError for what no slave of this log can report; close the connection then.
        """
        offsets = self._reader.feed(data)
        self._read_at = now
        acked_before = self.acked_offset
        for offset in offsets:
            self._reported(offset)
        return self.acked_offset > acked_before

    def _reported(self, offset: int) -> None:
        if self.requested_offset is None:
            self._begin(offset)
        elif offset > self.next_offset:
            raise ProtocolError("ha_report", f"a slave reports {offset}, was sent up to {self.next_offset}")
        elif offset > self.acked_offset:
            self.acked_offset = offset

    def _begin(self, offset: int) -> None:
        log, rules = self._log, self._rules
        if offset > log.end_offset:
            raise ProtocolError("ha_report", f"a slave's log ends at {offset}, after the master's at {log.end_offset}")
        if self._known_offset is not None and offset > (known := self._known_offset()):
            # The slave has other records at offsets that this master has sent to nobody.
            raise ProtocolError("ha_report", f"a slave's log ends at {offset}, this master's was sent up to {known}")
        start = offset
        if offset == 0:
            # The slave is empty and accepts any first offset.
            start = log.min_offset
            if rules.from_last_segment:
                # The last segment that has data: an empty one gives nothing to send or acknowledge.
                last = max(0, log.end_offset - 1)
                start = max(start, last - last % rules.segment_bytes)
        elif offset < log.min_offset:
            detail = (
                f"a slave's log ends at {offset}, the master's begins at {log.min_offset}: move the slave's store"
                " aside, start the slave with an empty one, and delete the old store once the slave is in sync"
            )
            raise ProtocolError("ha_report", detail)
        self.requested_offset = self.acked_offset = offset
        self.next_offset = start

    # Output

    def next_piece(self, now: float) -> list[bytes | memoryview]:
        """Return what to write now: a head and a piece of the log, a heartbeat, or nothing (before the first one)."""
        if self.requested_offset is None:
            return []
        max_bytes = min(self._rules.batch_bytes, self._allowance(now))
        piece = self._log.piece_at(self.next_offset, max_bytes) if max_bytes > 0 else None
        if piece is not None:
            head = self._head(self.next_offset, piece)
            self.next_offset += len(piece)
            self.sent_bytes += len(piece)
            self._window_bytes += len(piece)
            self._wrote_at = now
            return [head, piece]
        if now - self._wrote_at >= self._rules.heartbeat_s:
            self._wrote_at = now
            return [self._heartbeat()]
        return []

    @property
    def is_drained(self) -> bool:
        """Whether `next_piece` has certainly nothing more to write now, a heartbeat apart."""
        return False

    def _head(self, offset: int, piece: memoryview) -> bytes:
        return transfer_head(offset, len(piece))

    def _heartbeat(self) -> bytes:
        return transfer_head(self.next_offset, 0)

    def _allowance(self, now: float) -> int:
        """Return how many bytes may still be sent in this second."""
        if not self._rules.bytes_per_s:
            return self._rules.batch_bytes
        if now - self._window_at >= 1.0:
            self._window_at, self._window_bytes = now, 0
        return self._rules.bytes_per_s - self._window_bytes

    # Time

    def is_expired(self, now: float) -> bool:
        """Return whether the slave was silent for longer than haHousekeepingInterval."""
        return now - self._read_at > self._rules.housekeeping_s

    def wait_s(self, now: float) -> float:
        """Return the seconds from `now` until `next_piece` and `is_expired` must be called again at the latest."""
        waits = [self._read_at + self._rules.housekeeping_s - now, self._wrote_at + self._rules.heartbeat_s - now]
        if self._rules.bytes_per_s and self._window_bytes >= self._rules.bytes_per_s:
            waits.append(self._window_at + 1.0 - now)
        return max(0.0, min(waits))

    def lag_bytes(self) -> int:
        """Return by how many bytes the slave lags behind the master."""
        return max(0, self._log.end_offset - max(0, self.acked_offset))
