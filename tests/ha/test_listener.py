"""The port for slaves: which connection loses its place when too many are open."""

import asyncio
import random
from collections.abc import Iterator
from contextlib import contextmanager

from ha.listener import SlaveConnection, SlaveListener
from ha.master_link import LinkRules
from ha.master_session import SessionRules
from ha.protocol import report
from ha.replicas import ReplicaRules, Replicas
from ha.slave_link import SlaveRules
from ha.slave_session import SlaveSession
from ha.tail_recovery import TailRecovery
from tests.clock import ManualClock
from tests.ha.links import SEGMENT
from tests.ha.sessions import EPOCH, SessionMemoryLog, credentials

CONTENT = random.Random(5).randbytes(2500)


class Master:
    """A listener over a log in memory, with its tail recovery."""

    def __init__(self, log: SessionMemoryLog) -> None:
        self.tail = TailRecovery(log)
        self.rules = SessionRules(credentials(), EPOCH, tail=self.tail)
        self.before_log = lambda _: None
        self.listener = SlaveListener(
            LinkRules(segment_bytes=SEGMENT), log, Replicas(ReplicaRules()), ManualClock(), lambda: None, sessions=self
        )


@contextmanager
def master(log: SessionMemoryLog) -> Iterator[Master]:
    it = Master(log)
    try:
        yield it
    finally:
        it.listener.stop()
        assert not it.listener.connections


class End(asyncio.Transport):
    """The transport of one connection; an abort is known to the connection at once."""

    def __init__(self, it: Master) -> None:
        super().__init__()
        self.written = b""
        self.is_aborted = False
        self.connection = SlaveConnection(it.listener)
        self.connection.connection_made(self)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += data

    def taken(self) -> bytes:
        """Return what was written since the last call."""
        written, self.written = self.written, b""
        return written

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...

    def is_closing(self) -> bool:
        return self.is_aborted

    def abort(self) -> None:
        self.is_aborted = True
        self.connection.connection_lost(None)


async def test_strangers_do_not_displace_the_slave_that_sends_the_lost_tail() -> None:
    log = SessionMemoryLog(CONTENT[:700])
    with master(log) as it:
        slave = SlaveSession(SlaveRules(), SessionMemoryLog(CONTENT), credentials(1), lambda _: None, 0.0)
        end = End(it)
        to_master = slave.begin(0.0)
        while not it.tail.is_fetching:
            end.connection.data_received(to_master)
            to_master = slave.received(end.taken(), 0.0)
        strangers = [End(it) for _ in range(130)]
        assert not end.is_aborted and it.tail.is_fetching
        assert [one.is_aborted for one in strangers] == [True] * 67 + [False] * 63
        while it.tail.is_waiting:
            end.connection.data_received(to_master)
            to_master = slave.received(end.taken(), 0.0)
        assert log.content == CONTENT


async def test_no_slave_is_displaced_by_another() -> None:
    with master(SessionMemoryLog(CONTENT)) as it:
        slaves = [End(it) for _ in range(64)]
        for one in slaves:
            one.connection.data_received(report(0))
        assert End(it).is_aborted
        assert not any(one.is_aborted for one in slaves)
