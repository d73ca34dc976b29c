"""The slave's end of a session with a Sprocket master: a `SlaveLink` that speaks in frames.

It greets, finds the common prefix of the two logs, and follows from its end.  What the slave has after the common
prefix goes to a master that lost it; otherwise the slave copies it aside and truncates its log.  It reports what it has
received and what it has flushed.  A table is applied at its place in the stream, where the slave has the log that the
table requires.

In controller mode the histories of both logs tell first where the logs diverge; the checksums verify it.  The start of
an epoch is on the disk before the first byte of that epoch is appended.
"""

from collections.abc import Callable, Sequence
from enum import Enum, auto
from typing import Protocol

from ha.common_prefix import CommonPrefix
from ha.epochs.epoch_file import EpochFile
from ha.epochs.epoch_history import OPEN_END, EpochHistory
from ha.greeting import Credentials, SlaveGreeting
from ha.hello import Standing
from ha.master_session import checksum
from ha.session import (
    CHECKSUM,
    MAX_SLAVE_BODY_BYTES,
    PIECE,
    RANGE,
    STATE,
    Frame,
    FrameReader,
    FrameType,
    checked_epoch,
    decode_history,
    encode_history,
    frame,
    report,
)
from ha.slave_link import KEEP_BOTH, ReplicaLog, SlaveLink, SlaveRules
from ha.slave_tables import pieces
from ha.table_queue import TableContent, TableUpdate, decode_table
from sprocket.common.errors import ProtocolError


class SessionReplicaLog(ReplicaLog, Protocol):
    """The part of a slave's store that a session needs."""

    @property
    def min_offset(self) -> int: ...

    @property
    def flushed_offset(self) -> int: ...

    def piece_at(self, offset: int, max_bytes: int, /) -> memoryview | None:
        """Return at most `max_bytes` from `offset` on, within one segment; None if there are none."""

    def record_end(self, offset: int, /) -> int:
        """Return the end of the last record that ends at `offset` or before; the log's first byte if there is none."""

    def cut(self, offset: int, reason: str, /) -> None:
        """Truncate the log at `offset`, after copying aside what follows.  Raises StoreError."""


class _State(Enum):
    GREETING = auto()
    OUTDATED = auto()
    RANGING = auto()
    COMPARING = auto()
    SURPLUS = auto()
    STREAMING = auto()


class SlaveSession(SlaveLink):
    """One connection to the master.  Times are monotonic, in seconds.

    `apply` installs one of the master's tables.  `own_tables` returns the tables for a master that lost log and tables.
    `epochs` is the history of the slave's log; None outside controller mode.  There, a slave with `is_learner` never
    counts for an acknowledgement, and an empty one with `from_last_segment` begins with the master's last segment.
    """

    def __init__(
        self,
        rules: SlaveRules,
        log: SessionReplicaLog,
        credentials: Credentials,
        apply: Callable[[TableContent], None],
        now: float,
        *,
        dialed: str = "",
        own_tables: Callable[[], Sequence[TableUpdate]] = tuple,
        epochs: EpochFile | None = None,
        is_learner: bool = False,
        from_last_segment: bool = False,
    ) -> None:
        super().__init__(rules, log, now)
        self._session_log = log
        self._epochs = epochs
        standing = None if epochs is None else Standing(epochs.accepted, is_learner, from_last_segment)
        self._greeting = SlaveGreeting(credentials, dialed, standing)
        self._master_history = EpochHistory()
        # Where the next epoch begins that the file does not have yet.
        self._next_epoch_at = OPEN_END
        self._may_cut_all = False  # the histories prove that not even the first byte is common
        self._frames = FrameReader(from_slave=False)
        self._apply = apply
        self._own_tables = own_tables
        self._state = _State.GREETING
        self._search = CommonPrefix(0, 0)
        self._common_end = 0
        self._compared_to = 0  # end of the master's log at the time of the comparison
        self._flushed_reported = -1
        self.epoch = -1  # the master's epoch; -1 before WELCOME
        self.counts_flushed = False  # the master wants this slave to flush at once
        self.master_confirm_offset = -1
        self.master_flushed_offset = -1

    @property
    def admits_polling(self) -> bool:
        """Never: the session brings the tables, after the logs were compared."""
        return False

    @property
    def is_streaming(self) -> bool:
        """Whether the master sends its log."""
        return self._state is _State.STREAMING

    def begin(self, now: float) -> bytes:
        """Return the first message to write, HELLO."""
        self.wrote_at = now
        self._log.restart()
        return self._greeting.begin()

    def received(self, data: bytes | memoryview, now: float) -> bytes:
        """Take `data` and return what to write, perhaps nothing.

        Raises ProtocolError for what no master of this log can send, and StoreError from the log or a table; close the
        connection then.  Nothing after the bad piece is taken.
        """
        self.read_at = now
        replies = []
        if self._state is _State.GREETING:
            proof = self._greeting.received(data)
            if self._greeting.welcome is None:
                return b""
            self.epoch = self._greeting.welcome.epoch
            self.counts_flushed = self._greeting.welcome.counts_flushed
            replies = [proof, self._greeted(now)]
            data = self._greeting.rest
        replies += self._take_all(data, now)
        if self._state is _State.STREAMING:
            replies.append(self.acknowledge(now))
        return b"".join(replies)

    def _greeted(self, now: float) -> bytes:
        if self._epochs is not None:
            if self.epoch < self._epochs.accepted:
                # The proof has to arrive, so that the master believes that it was replaced.  Its refusal ends this.
                self._state = _State.OUTDATED
                return b""
            self._epochs.accept(self.epoch)
        return self._range(now)

    def _take_all(self, data: bytes | memoryview, now: float) -> list[bytes]:
        replies: list[bytes] = []
        start = expected = self._log.received_offset
        if self._state is _State.STREAMING:
            found = self._frames.log_pieces(data, self.epoch, expected)
            if found is not None:
                self._append(start, found)
                return replies
        pieces: list[memoryview] = []
        try:
            for one in checked_epoch(self._frames.feed(data), self.epoch):
                if one.type is not FrameType.LOG:
                    # Append first what preceded this frame in the stream.
                    self._append(start, pieces)
                    replies.append(self._take(one, now))
                    start = expected = self._log.received_offset
                    continue
                self._check_follows(one, expected)
                if not pieces:
                    start = one.offset
                pieces.append(one.body)
                expected = one.offset + len(one.body)
        finally:
            self._append(start, pieces)
        return replies

    def _check_follows(self, one: Frame, expected: int) -> None:
        if self._state is not _State.STREAMING or not one.body or (expected and one.offset != expected):
            detail = f"the master sends {len(one.body)} bytes from {one.offset}, the slave's log ends at {expected}"
            raise ProtocolError("ha_transfer", detail)

    def _append(self, start: int, pieces: list[memoryview]) -> None:
        """Append all pieces of one read at once."""
        if pieces:
            taken, size = list(pieces), sum(map(len, pieces))
            pieces.clear()
            if start + size > self._next_epoch_at:
                self._begin_epochs(start + size)
            self._log.append(start, taken)
            self.received_bytes += size
            self.master_offset = max(self.master_offset, start + size)

    def _begin_epochs(self, end: int) -> None:
        """Write the epochs of the master's log up to `end` to the disk.  Raises StoreError: then append nothing."""
        assert self._epochs is not None
        self._epochs.replace(self._master_history.cut_at(end))
        self._next_epoch_at = self._master_history.first_after(end)

    def _take(self, one: Frame, now: float) -> bytes:
        match one.type, self._state:
            case FrameType.STATE, _ if self._state is not _State.OUTDATED:
                return self._take_state(one, now)
            case FrameType.EPOCHS, _State.RANGING:
                self._take_epochs(one)
                return b""
            case FrameType.TABLE, _State.STREAMING:
                if one.offset > self._log.received_offset:
                    raise ProtocolError("ha_table", f"a table requires the log up to {one.offset}, which is not here")
                self._apply(decode_table(one.body))
                return b""
            case FrameType.CHECKSUM, _State.COMPARING:
                return self._take_checksum(one, now)
            case FrameType.FETCH_TAIL, _State.SURPLUS:
                return self._send_tail(one)
            case FrameType.TRUNCATE, _State.SURPLUS:
                # Meanwhile another slave may have sent the master what was a surplus when the master reported its end.
                return self._range(now) if one.offset > self._compared_to else self._cut(now)
            case FrameType.FETCH_TABLES, _State.SURPLUS | _State.STREAMING:
                return self._send_tables()
            case FrameType.REFUSAL, _:
                raise ProtocolError("ha_refused", f"the master refuses: {str(one.body, 'utf-8', 'replace')}")
        raise ProtocolError("ha_frame", f"{one.type.name} in the state {self._state.name.lower()}")

    # Search for the common prefix

    def _range(self, now: float) -> bytes:
        self._state, self.wrote_at = _State.RANGING, now
        log = self._session_log
        return self._frame(FrameType.RANGE, log.end_offset, RANGE.struct.pack(log.min_offset, log.flushed_offset))

    def _take_state(self, one: Frame, now: float) -> bytes:
        min_offset, self.master_confirm_offset, self.master_flushed_offset = STATE.unpack(one.body)
        self.master_offset = max(self.master_offset, one.offset)
        if self._state is _State.STREAMING:
            return b""
        if self._state is _State.SURPLUS:
            return self._range(now)  # the master's log changed meanwhile
        if self._state is not _State.RANGING:
            raise ProtocolError("ha_frame", f"STATE in the state {self._state.name.lower()}")
        if self._epochs is not None and not self._master_history.epochs:
            raise ProtocolError("ha_epochs", "the master sends STATE before its epochs")
        log, self._compared_to = self._session_log, one.offset
        if not log.end_offset or log.end_offset < min_offset:
            # This log is empty, or it ends before what the master keeps: then the master refuses with a reason.
            return self._resume(now, is_compared=not log.end_offset)
        low, high = max(min_offset, log.min_offset), min(one.offset, log.end_offset)
        self._search = CommonPrefix(low, self._common_by_epochs(low, high))
        if one.offset <= min_offset:
            # The master is empty.  If it lost everything, it asks for this log.
            self._common_end = 0
            return self._surplus()
        return self._compare_on(now)

    def _take_epochs(self, one: Frame) -> None:
        history = decode_history(one.body)
        if self._epochs is None or history.last is None or history.last.number != self.epoch:
            raise ProtocolError("ha_epochs", f"the master of epoch {self.epoch} sends {history.epochs[-3:]}")
        self._master_history = history

    def _common_by_epochs(self, low: int, high: int) -> int:
        """Return where the logs diverge, going by their epochs; `high`, the shorter end, if these do not tell.

        `low` is the first byte that both keep.
        """
        self._may_cut_all = False
        if self._epochs is None:
            return high
        end = self._session_log.end_offset
        own, master = self._epochs.history.cut_at(end), self._master_history
        common = own.common_end(end, master, self._compared_to)
        if common is None and not low and own.is_whole and master.is_whole:
            common, self._may_cut_all = 0, True
        return high if common is None else max(low, min(common, high))

    def _compare_on(self, now: float) -> bytes:
        wanted = self._search.next_range()
        if wanted is not None:
            self._state = _State.COMPARING
            return self._frame(FrameType.COMPARE, wanted[0], PIECE.struct.pack(wanted[1]))
        return self._compared(now)

    def _take_checksum(self, one: Frame, now: float) -> bytes:
        size, crc = CHECKSUM.unpack(one.body)
        if self._search.next_range() != (one.offset, size):
            raise ProtocolError("ha_compare", f"a checksum of {size} bytes at {one.offset} that was not requested")
        self._search.compared(checksum(self._session_log, one.offset, size) == crc)
        return self._compare_on(now)

    def _compared(self, now: float) -> bytes:
        log, search = self._session_log, self._search
        end = log.end_offset
        if search.end == end:
            return self._resume(now)
        self._common_end = log.record_end(search.end)
        if search.end == self._compared_to == self._common_end > search.low:
            return self._surplus()  # the master's whole log is the beginning of this one
        return self._cut(now)

    def _surplus(self) -> bytes:
        self._state = _State.SURPLUS
        return self._frame(FrameType.SURPLUS, self._session_log.end_offset)

    def _send_tail(self, one: Frame) -> bytes:
        (size,) = PIECE.unpack(one.body)
        piece = self._session_log.piece_at(one.offset, min(size, MAX_SLAVE_BODY_BYTES))
        if piece is None:
            raise ProtocolError("ha_tail", f"the master asks for {size} bytes at {one.offset}, which are not here")
        return self._frame(FrameType.TAIL, one.offset, bytes(piece))

    def _send_tables(self) -> bytes:
        frames = [
            self._frame(FrameType.SLAVE_TABLE, missing_bytes, piece)
            for table in self._own_tables()
            for missing_bytes, piece in pieces(table)
        ]
        return b"".join([*frames, self._frame(FrameType.SLAVE_TABLES_END, 0)])

    def _cut(self, now: float) -> bytes:
        log = self._session_log
        if self._common_end <= self._search.low and not self._may_cut_all:
            raise ProtocolError("ha_diverged", self._nothing_in_common())
        log.cut(self._common_end, "the master's log goes on differently")
        return self._range(now)

    def _nothing_in_common(self) -> str:
        log = self._session_log
        own = f"this slave's log, {log.min_offset} to {log.end_offset}"
        if self._compared_to <= self._search.low:
            return (
                f"the master's store is empty.  {own}, may be the only copy and stays untouched: never empty this"
                " store.  To recover, stop the master, empty the master's store, and start it as SYNC_MASTER with"
                " haTailRecoveryWait above 0; it then takes log and tables from here"
            )
        return f"{own}, and the master's, to {self._compared_to}, hold data and have nothing in common.  {KEEP_BOTH}"

    def _resume(self, now: float, *, is_compared: bool = True) -> bytes:
        self._state = _State.STREAMING
        self.wrote_at = now
        end = self._log.end_offset
        self._reported, self._flushed_reported = end, -1
        resume = self._frame(FrameType.RESUME, end)
        if self._epochs is None:
            return resume
        if is_compared:
            # This log is the beginning of the master's, so it has the same epochs.
            self._begin_epochs(end)
        return self._frame(FrameType.SLAVE_EPOCHS, 0, encode_history(self._epochs.history)) + resume

    # Reports

    def due(self, now: float) -> bytes:
        """Return a heartbeat if one is due."""
        return super().due(now) if self._state is _State.STREAMING else b""

    def acknowledge(self, now: float) -> bytes:
        """Return a report if the slave received or flushed more than the last one said."""
        log = self._session_log
        if self._state is not _State.STREAMING:
            return b""
        if log.end_offset > self._reported or log.flushed_offset > self._flushed_reported:
            return self._report(now)
        return b""

    def _report(self, now: float) -> bytes:
        log = self._session_log
        self.wrote_at = now
        self._reported = log.end_offset
        self._flushed_reported = min(log.flushed_offset, log.end_offset)
        return report(self.epoch, self._reported, self._flushed_reported)

    def _frame(self, kind: FrameType, offset: int, body: bytes = b"") -> bytes:
        return frame(kind, self.epoch, offset, body)
