"""Both ends of a session in memory, with their logs and the bytes between them."""

import random
from collections.abc import Callable, Sequence

from ha.epochs.epoch_file import EpochFile
from ha.greeting import Credentials
from ha.hello import Identity
from ha.master_link import LinkRules
from ha.master_session import MasterSession, SessionRules
from ha.slave_link import SlaveRules
from ha.slave_session import SlaveSession
from ha.table_queue import TableContent, TableUpdate
from ha.tail_recovery import TailRecovery
from sprocket.common.errors import ProtocolError
from tests.ha.links import SEGMENT, MemoryLog

RECORD = 10
EPOCH = 7_000


class SessionMemoryLog(MemoryLog):
    """A log whose records have `RECORD` bytes each; the test sets its flushed offset."""

    def __init__(self, content: bytes = b"", start: int = 0) -> None:
        super().__init__(content, start)
        self.flushed_offset = self.end_offset
        self.cuts: list[bytes] = []

    @property
    def confirm_offset(self) -> int:
        return self.end_offset

    def record_end(self, offset: int) -> int:
        return offset - (offset - self.start) % RECORD

    def cut(self, offset: int, _reason: str) -> None:
        self.cuts.append(bytes(self.content[offset - self.start :]))
        del self.content[offset - self.start :]
        self.flushed_offset = min(self.flushed_offset, offset)


def credentials(broker_id: int = 0, secret: bytes = b"", *, seed: int = 1, **changes: str) -> Credentials:
    names = {"cluster": "C", "broker_name": "a", "store_id": f"store{broker_id}"} | changes
    identity = Identity(names["cluster"], names["broker_name"], broker_id, names["store_id"])
    return Credentials(identity, random.Random(seed + broker_id).randbytes, secret)


class Ends:
    """A master and a slave, with the bytes under way between them."""

    def __init__(
        self,
        master_log: SessionMemoryLog,
        slave_log: SessionMemoryLog,
        *,
        master: Credentials | None = None,
        slave: Credentials | None = None,
        tail: TailRecovery | None = None,
        epoch: int = EPOCH,
        batch_bytes: int = 64,
        tables: Sequence[TableUpdate] = (),
        master_epochs: EpochFile | None = None,
        slave_epochs: EpochFile | None = None,
    ) -> None:
        self.applied: list[TableContent] = []
        # The slave's `tables` as the master received them.
        self.given: list[TableContent] = []
        self.master_log, self.slave_log = master_log, slave_log
        rules = LinkRules(batch_bytes=batch_bytes, segment_bytes=SEGMENT, from_last_segment=False)
        self.tail = tail or TailRecovery()
        # The newer epochs that the slave told the master.
        self.newer: list[int] = []
        if master_epochs is not None and master_epochs.history.last is not None:
            epoch = master_epochs.history.last.number
        shared = SessionRules(
            master or credentials(), epoch, tail=self.tail, take_tables=self.given.extend,
            epochs=master_epochs, on_newer_epoch=self.newer.append,
        )  # fmt: skip
        self.master = MasterSession(rules, shared, master_log, 0.0)
        self.slave = SlaveSession(
            SlaveRules(),
            slave_log,
            slave or credentials(1),
            self.applied.append,
            0.0,
            own_tables=lambda: tables,
            epochs=slave_epochs,
        )
        self.to_master = self.slave.begin(0.0)

    def talk(self, split: Callable[[bytes], list[bytes]] = lambda data: [data], now: float = 0.0) -> None:
        """Exchange bytes until both are silent.  Raises what either raises; a refusal is the slave's error."""
        while self.turn(split, now):
            pass

    def turn(self, split: Callable[[bytes], list[bytes]] = lambda data: [data], now: float = 0.0) -> bool:
        """Let each write once; return whether the master did."""
        for part in split(self.to_master):
            if self.master.received(part, now):
                assert self.master.acked_offset <= self.slave_log.end_offset
        self.to_master = b""
        to_slave = self.to_slave(now)
        self.to_master = b"".join(self.slave.received(part, now) for part in split(to_slave))
        return bool(to_slave)

    def to_slave(self, now: float = 0.0) -> bytes:
        """Return what the master writes."""
        written = b""
        while buffers := self.master.next_piece(now):
            written += b"".join(bytes(buffer) for buffer in buffers)
        return written


def refusal(ends: Ends) -> str:
    """Return why the slave gives up; the empty text if it does not."""
    try:
        ends.talk()
    except ProtocolError as error:
        return error.detail
    return ends.master.refusal
