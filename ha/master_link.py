"""The master's end of one connection to a slave: a machine that is fed with bytes and time.

The first report says where the slave's log ends; from there on the log is sent, in pieces, as it grows.  Later
reports acknowledge.  Source: RocketMQ 5.3.3, `DefaultHAConnection`; stricter than it: a report beyond what this
connection has sent is no acknowledgement, it ends the connection; so does a first report beyond what this master has
ever sent, for such a log is no copy.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

from ha.protocol import ReportReader, transfer_head
from sprocket.common.errors import ProtocolError


class Log(Protocol):
    """The part of a store's log that is read for a slave."""

    @property
    def min_offset(self) -> int: ...

    @property
    def end_offset(self) -> int: ...

    def piece_at(self, offset: int, most_bytes: int, /) -> memoryview | None:
        """At most so many bytes from `offset` on, of one segment; None if there are none."""


@dataclass(frozen=True)
class LinkRules:
    """Intervals and sizes: haSendHeartbeatInterval, haHousekeepingInterval, haTransferBatchSize, the segment's size."""

    heartbeat_s: float = 5.0
    housekeeping_s: float = 20.0
    batch_bytes: int = 32 * 1024
    # The same for a slave that is Sprocket too; 0 for as much as for others.
    session_batch_bytes: int = 0
    segment_bytes: int = 1 << 30
    # An empty slave begins with the last segment, as RocketMQ's; or with the first one that there is.
    from_last_segment: bool = True
    # maxHaTransferByteInSecond; 0 is no limit.
    bytes_per_s: int = 0


class MasterLink:
    """One slave, from its first report to the end of the connection.  Times are those of a monotonic clock, s.

    `known_offset` says up to where a slave can have the log at all; without it the log's end.
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
        self.requested_offset: int | None = None  # where the slave's log ended when it came
        self.next_offset = -1  # the next piece begins here; -1 until the slave has said where it is
        self.acked_offset = -1  # the slave has all before this
        self.flushed_offset: int | None = None  # and this on its disk; None from a slave that does not say it
        self.sent_bytes = 0

    # What comes

    def configure(self, rules: LinkRules) -> None:
        """Take changed intervals and sizes; where an empty slave begins stays."""
        self._rules = replace(rules, from_last_segment=self._rules.from_last_segment)

    def received(self, data: bytes, now: float) -> bool:
        """Whether the slave acknowledged more than before.

        Raises ProtocolError for what no slave of this log can say; the connection is then to be closed.
        """
        offsets = self._reader.feed(data)
        self._read_at = now
        acked_before = self.acked_offset
        for offset in offsets:
            if self.requested_offset is None:
                self._begin(offset)
            elif offset > self.next_offset:
                raise ProtocolError("ha_report", f"a slave reports {offset}, was sent up to {self.next_offset}")
            elif offset > self.acked_offset:
                self.acked_offset = offset
        return self.acked_offset > acked_before

    def _begin(self, offset: int) -> None:
        log, rules = self._log, self._rules
        if offset > log.end_offset:
            raise ProtocolError("ha_report", f"a slave's log ends at {offset}, behind the master's at {log.end_offset}")
        if self._known_offset is not None and offset > (known := self._known_offset()):
            # It has something else where this master has written what it has sent to nobody.
            raise ProtocolError("ha_report", f"a slave's log ends at {offset}, this master's was sent up to {known}")
        start = offset
        if offset == 0:
            # It has nothing, and takes whatever comes first.
            start = log.min_offset
            if rules.from_last_segment:
                # The last one that holds something: of an empty one nothing could be sent or acknowledged.
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

    # What goes

    def next_piece(self, now: float) -> list[bytes | memoryview]:
        """What to write now: a head and a piece of the log, a heartbeat, or nothing.  Empty until the first report."""
        if self.requested_offset is None:
            return []
        most_bytes = min(self._rules.batch_bytes, self._allowance(now))
        piece = self._log.piece_at(self.next_offset, most_bytes) if most_bytes > 0 else None
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

    def _head(self, offset: int, piece: memoryview) -> bytes:
        return transfer_head(offset, len(piece))

    def _heartbeat(self) -> bytes:
        return transfer_head(self.next_offset, 0)

    def _allowance(self, now: float) -> int:
        """How many bytes may still be sent in this second."""
        if not self._rules.bytes_per_s:
            return self._rules.batch_bytes
        if now - self._window_at >= 1.0:
            self._window_at, self._window_bytes = now, 0
        return self._rules.bytes_per_s - self._window_bytes

    # Time

    def is_expired(self, now: float) -> bool:
        """Whether the slave has been silent for too long."""
        return now - self._read_at > self._rules.housekeeping_s

    def wait_s(self, now: float) -> float:
        """Until when at the latest `next_piece` and `is_expired` are to be asked again, seconds from `now`."""
        waits = [self._read_at + self._rules.housekeeping_s - now, self._wrote_at + self._rules.heartbeat_s - now]
        if self._rules.bytes_per_s and self._window_bytes >= self._rules.bytes_per_s:
            waits.append(self._window_at + 1.0 - now)
        return max(0.0, min(waits))

    def lag_bytes(self) -> int:
        """How far the slave is behind."""
        return max(0, self._log.end_offset - max(0, self.acked_offset))
