"""The master's end of a session with a Sprocket slave: a `MasterLink` that speaks in frames.

It greets, reports the end of its log, and answers the slave's search for the common prefix of their logs.  Then it
sends the log from where the slave asks.  Changed tables go between the pieces of the log, see `ha.table_queue`.  A
report counts only for this connection and this epoch.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from ha.epochs.epoch_file import EpochFile
from ha.epochs.epoch_history import EpochHistory
from ha.greeting import Credentials, MasterGreeting
from ha.master_link import LinkRules, Log, MasterLink
from ha.session import (
    CHECKSUM,
    PIECE,
    RANGE,
    REPORT,
    STATE,
    Frame,
    FrameReader,
    FrameType,
    checked_epoch,
    decode_history,
    encode_history,
    frame,
    log_head,
)
from ha.slave_tables import TableAssembly
from ha.table_queue import TableContent, TableQueue, TableUpdate
from ha.tail_recovery import TailRecovery
from sprocket.common.errors import ProtocolError
from store.record.checksum import crc32


class SessionLog(Log, Protocol):
    """The part of a store's log that is read in a session."""

    @property
    def confirm_offset(self) -> int: ...

    @property
    def flushed_offset(self) -> int: ...


@dataclass(frozen=True)
class SessionRules:
    """Rules that all sessions of one start of a master share.

    `epoch` is unique among the starts of all masters of the group, so a report to another one never counts here.  In
    controller mode it is the last one of `epochs`, and `on_newer_epoch` is called with a newer one that a slave knows.
    With `counts_flushed` only what a slave has flushed is acknowledged, and the slave is told to flush at once.  With
    `from_last_segment` an empty slave begins there, as one without a session does; otherwise it gets all that is kept.
    """

    credentials: Credentials
    epoch: int
    counts_flushed: bool = False
    tail: TailRecovery = field(default_factory=TailRecovery)
    from_last_segment: bool = False
    # Installs a slave's tables in place of the master's own, which are lost.
    take_tables: Callable[[Sequence[TableContent]], None] = lambda _: None
    epochs: EpochFile | None = None
    on_newer_epoch: Callable[[int], None] = lambda _: None


class MasterSession(MasterLink):
    """The session of one slave.  Times are monotonic, in seconds."""

    def __init__(self, link_rules: LinkRules, rules: SessionRules, log: SessionLog, now: float) -> None:
        super().__init__(replace(link_rules, from_last_segment=rules.from_last_segment), log, now)
        self._session_log = log
        self._epoch = rules.epoch
        self._greeting: MasterGreeting | None = MasterGreeting(
            rules.credentials,
            rules.epoch,
            counts_flushed=rules.counts_flushed,
            in_controller_mode=rules.epochs is not None,
        )
        self._epochs = rules.epochs
        self._on_newer_epoch = rules.on_newer_epoch
        self._slave_history: EpochHistory | None = None  # as the slave's last SLAVE_EPOCHS says
        self._frames = FrameReader(from_slave=True)
        self._tail = rules.tail
        self._take_tables = rules.take_tables
        self._slave_tables: TableAssembly | None = None  # the slave's tables, once requested
        self._resumes_at: int | None = None  # the slave resumes here once its tables have arrived
        self._replies: list[bytes] = []
        self._waits_for_tail = False
        self._slave_begin = 0  # first byte that the slave keeps
        self.tables = TableQueue()
        self.flushed_offset = 0  # 0 before the first report
        self.refusal = ""  # once set, the connection ends after it is written

    # Input

    def received(self, data: bytes, now: float) -> bool:
        """Take `data` and return whether the slave received or flushed more than before.

        Raises ProtocolError for what no slave of this log and epoch can send; close the connection then.
        """
        self._read_at = now
        if self.refusal:
            return False
        if self._greeting is not None:
            data = self._greet(self._greeting, data)
        if self._greeting is not None or not data:
            return False
        acked, flushed = self.acked_offset, self.flushed_offset
        found = self._frames.reported(data, self._epoch)
        if found is not None:
            self._acknowledge(*found)
        else:
            for one in checked_epoch(self._frames.feed(data), self._epoch):
                if not self.refusal:
                    self._take(one)
        return self.acked_offset != acked or self.flushed_offset != flushed

    def _greet(self, greeting: MasterGreeting, data: bytes) -> bytes:
        """Feed the greeting; return the frames that came after it, once it is done."""
        answer = greeting.received(data)
        if answer:
            self._replies.append(answer)
        if greeting.refusal:
            # A slave that has its WELCOME reads frames.  Before that, WELCOME itself carries the reason.
            self.refuse(greeting.refusal, in_frame=not answer)
        if greeting.newer_epoch >= 0:
            self._on_newer_epoch(greeting.newer_epoch)
        if not greeting.is_done:
            return b""
        self.identity, self._greeting = greeting.slave, None
        self.is_learner = greeting.standing.is_learner
        if greeting.standing.from_last_segment:
            self._rules = replace(self._rules, from_last_segment=True)
        return greeting.rest

    def _take(self, one: Frame) -> None:
        match one.type:
            case FrameType.REPORT:
                self._acknowledge(one.offset, *REPORT.unpack(one.body))
            case FrameType.RANGE:
                self._slave_begin, _ = RANGE.unpack(one.body)
                self._say_epochs()
                self._say_state()
            case FrameType.COMPARE:
                self._compare(one)
            case FrameType.SLAVE_EPOCHS:
                self._slave_history = decode_history(one.body)
            case FrameType.RESUME:
                self._resume(one.offset)
            case FrameType.SURPLUS:
                self._take_surplus(one.offset)
            case FrameType.TAIL:
                self._tail.take(self, one.offset, one.body)
                self._fetch()
            case FrameType.SLAVE_TABLE | FrameType.SLAVE_TABLES_END:
                self._take_slave_table(one)
            case _:  # pragma: no cover - the reader knows what a slave may send
                raise ProtocolError("ha_frame", one.type.name)

    def _acknowledge(self, offset: int, flushed: int) -> None:
        if self._resumes_at is not None:
            return  # the slave believes that it resumed, but its tables come first
        if self.requested_offset is None:
            raise ProtocolError("ha_report", "a slave reports before it said where its log ends")
        if offset > self.next_offset or not 0 <= flushed <= offset:
            detail = f"a slave reports {offset}, flushed {flushed}, was sent up to {self.next_offset}"
            raise ProtocolError("ha_report", detail)
        self.acked_offset = max(self.acked_offset, offset)
        self.flushed_offset = max(self.flushed_offset or 0, flushed)
        if self._tail.is_waiting:
            self._tail.compared(self, self.acked_offset, self._slave_id)

    @property
    def _slave_id(self) -> int | None:
        return None if self.identity is None else self.identity.broker_id

    # Where the slave is

    def _say_state(self) -> None:
        log = self._session_log
        body = STATE.struct.pack(log.min_offset, log.confirm_offset, log.flushed_offset)
        self._replies.append(frame(FrameType.STATE, self._epoch, log.end_offset, body))

    def _say_epochs(self) -> None:
        if self._epochs is None:
            return
        history = self._epochs.history
        if history.last is None or history.last.number != self._epoch:
            self.refuse(f"the epoch {self._epoch} of this master is over: connect again")
            return
        self._replies.append(frame(FrameType.EPOCHS, self._epoch, 0, encode_history(history)))

    def _reason_against(self, offset: int) -> str:
        """Return why a slave must not go on at `offset`, going by the epochs of both logs; empty if it may."""
        if self._epochs is None or not offset:
            return ""
        own, slave = self._epochs.history, self._slave_history
        if slave is None:
            return "a slave resumes before it sent its epochs"
        if own.first_after(0) >= offset or own.common_end(self._log.end_offset, slave, offset) == offset:
            return ""
        return f"a slave resumes at {offset}, where its epochs {slave.epochs[-3:]} are not those of this log"

    def _compare(self, one: Frame) -> None:
        (size,) = PIECE.unpack(one.body)
        crc = checksum(self._log, one.offset, size)
        if crc is None:
            raise ProtocolError("ha_compare", f"a slave asks for {size} bytes at {one.offset}, which are not here")
        self._replies.append(frame(FrameType.CHECKSUM, self._epoch, one.offset, CHECKSUM.struct.pack(size, crc)))

    def _resume(self, offset: int) -> None:
        if self.requested_offset is not None:
            raise ProtocolError("ha_resume", "a slave sends RESUME twice")
        if self._tail.needs_tables:
            # The slave that sent the log disconnected before its tables were complete, or is still sending them.
            self._resumes_at = offset
            self._fetch_tables()
            return
        if reason := self._reason_against(offset):
            self.refuse(reason)
            return
        try:
            self._begin(offset)
        except ProtocolError as error:
            self.refuse(error.detail)
        else:
            self._tail.compared(self, self.acked_offset, self._slave_id)

    def refuse(self, reason: str, *, in_frame: bool = True) -> None:
        """Send the reason, and let the connection end."""
        if in_frame:
            self._replies.append(frame(FrameType.REFUSAL, self._epoch, 0, reason.encode()))
        self.refusal = reason

    # The tail that the master lost

    def _take_surplus(self, slave_end: int) -> None:
        if self._tail.begin(self, self._slave_begin, slave_end):
            self._fetch()
        elif self._tail.is_waiting:
            self._waits_for_tail = True  # another slave is sending it
        else:
            self._replies.append(frame(FrameType.TRUNCATE, self._epoch, self._log.end_offset))

    def _fetch(self) -> None:
        wanted = self._tail.wanted(self)
        if wanted is not None:
            self._replies.append(frame(FrameType.FETCH_TAIL, self._epoch, wanted[0], PIECE.struct.pack(wanted[1])))
        elif self._tail.needs_tables:
            self._fetch_tables()
        else:
            self._say_state()  # start over: this slave has no surplus now

    def _fetch_tables(self) -> None:
        if self._tail.may_send_tables(self):
            self._slave_tables = TableAssembly()
            self._replies.append(frame(FrameType.FETCH_TABLES, self._epoch, 0))
        else:
            self.refuse("another slave is sending this master its log and tables: try again later")

    def _take_slave_table(self, one: Frame) -> None:
        if self._slave_tables is None:
            raise ProtocolError("ha_table", "a slave sends a table that was not requested")
        if one.type is FrameType.SLAVE_TABLE:
            self._slave_tables.add(one.offset, one.body)
            return
        tables, self._slave_tables = self._slave_tables.finish(), None
        self._take_tables(tables)
        self._tail.tables_installed()
        resumes_at, self._resumes_at = self._resumes_at, None
        if resumes_at is None:
            self._say_state()
        else:
            self._resume(resumes_at)

    # Output

    def next_piece(self, now: float) -> list[bytes | memoryview]:
        """Return what to write now: replies, due tables, the log, a heartbeat, or nothing."""
        if self._waits_for_tail and not self._tail.is_waiting:
            self._waits_for_tail = False
            self._say_state()
        if self._replies:
            replies, self._replies = self._replies, []
            self._wrote_at = now
            return list(replies)
        if self.requested_offset is not None and (due := self.tables.take(self.next_offset)):
            self._wrote_at = now
            return [self._table_frame(update) for update in due]
        return super().next_piece(now)

    @property
    def is_drained(self) -> bool:
        if self._replies or self.refusal or self._waits_for_tail or not self.tables.is_empty:
            return False
        return self.next_offset == self._log.end_offset

    def _table_frame(self, update: TableUpdate) -> bytes:
        return frame(FrameType.TABLE, self._epoch, update.position, update.encode())

    def _head(self, offset: int, piece: memoryview) -> bytes:
        return log_head(self._epoch, offset, piece)

    def _heartbeat(self) -> bytes:
        self._say_state()
        return self._replies.pop()


def checksum(log: Log, offset: int, size_bytes: int) -> int | None:
    """Return the CRC-32 of `size_bytes` bytes of a log; None if not all of them are there."""
    crc = 0
    while size_bytes > 0:
        piece = log.piece_at(offset, size_bytes) if offset >= log.min_offset else None
        if piece is None:
            return None
        crc = crc32(piece, crc)
        offset += len(piece)
        size_bytes -= len(piece)
    return crc
