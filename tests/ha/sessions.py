"""Both ends of a session in memory, their logs, and what goes between them."""

import random
from collections.abc import Callable, Sequence

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
    """A log whose records have `RECORD` bytes each; what is flushed is said by the test."""

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
    """A master and a slave, and what each has written that the other has not read."""

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
    ) -> None:
        self.applied: list[TableContent] = []
        # What the master took of the slave's `tables`.
        self.given: list[TableContent] = []
        self.master_log, self.slave_log = master_log, slave_log
        rules = LinkRules(batch_bytes=batch_bytes, segment_bytes=SEGMENT, from_last_segment=False)
        self.tail = tail or TailRecovery()
        shared = SessionRules(master or credentials(), epoch, tail=self.tail, take_tables=self.given.extend)
        self.master = MasterSession(rules, shared, master_log, 0.0)
        self.slave = SlaveSession(
            SlaveRules(), slave_log, slave or credentials(1), self.applied.append, 0.0, own_tables=lambda: tables
        )
        self.to_master = self.slave.begin(0.0)

    def talk(self, split: Callable[[bytes], list[bytes]] = lambda data: [data], now: float = 0.0) -> None:
        """Until neither has anything to say.  Raises what either raises; a refusal is one of the slave's."""
        while self.turn(split, now):
            pass

    def turn(self, split: Callable[[bytes], list[bytes]] = lambda data: [data], now: float = 0.0) -> bool:
        """Have each say something once; whether the master did."""
        for part in split(self.to_master):
            if self.master.received(part, now):
                assert self.master.acked_offset <= self.slave_log.end_offset
        self.to_master = b""
        to_slave = self.to_slave(now)
        self.to_master = b"".join(self.slave.received(part, now) for part in split(to_slave))
        return bool(to_slave)

    def to_slave(self, now: float = 0.0) -> bytes:
        """What the master has to say."""
        written = b""
        while buffers := self.master.next_piece(now):
            written += b"".join(bytes(buffer) for buffer in buffers)
        return written


def refusal(ends: Ends) -> str:
    """Why the slave gives up; the empty text if it does not."""
    try:
        ends.talk()
    except ProtocolError as error:
        return error.detail
    return ends.master.refusal
