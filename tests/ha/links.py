"""A master's and a slave's log in memory, and the two ends of a connection between them."""

from collections.abc import Callable, Sequence

from ha.master_link import LinkRules, MasterLink
from ha.slave_link import SlaveLink, SlaveRules

SEGMENT = 1000


class MemoryLog:
    """A log of segments of `SEGMENT` bytes; for a slave it also accepts pieces."""

    def __init__(self, content: bytes = b"", start: int = 0) -> None:
        self.start = start
        self.content = bytearray(content)

    @property
    def min_offset(self) -> int:
        return self.start

    @property
    def end_offset(self) -> int:
        return self.start + len(self.content)

    received_offset = end_offset

    def piece_at(self, offset: int, max_bytes: int) -> memoryview | None:
        assert max_bytes > 0
        stop = min(offset + max_bytes, self.end_offset, offset - offset % SEGMENT + SEGMENT)
        if not self.start <= offset < stop:
            return None
        return memoryview(bytes(self.content[offset - self.start : stop - self.start]))

    def restart(self) -> int:
        return self.end_offset

    def append(self, from_offset: int, pieces: Sequence[memoryview]) -> None:
        if not self.content:
            self.start = from_offset
        assert from_offset == self.end_offset
        for piece in pieces:
            self.content += piece


def master_of(log: MemoryLog, now: float = 0.0, **changes: float) -> MasterLink:
    rules = {"batch_bytes": 64, "segment_bytes": SEGMENT} | changes
    return MasterLink(LinkRules(**rules), log, now)  # type: ignore[arg-type] # numbers of both kinds


def slave_of(log: MemoryLog, now: float = 0.0) -> SlaveLink:
    return SlaveLink(SlaveRules(), log, now)


def exchange(master: MasterLink, slave: SlaveLink, now: float, split: Callable[[bytes], list[bytes]]) -> None:
    """Exchange bytes until both are silent; `split` cuts them into reads."""
    to_master = slave.begin(now) if master.requested_offset is None else b""
    while True:
        for part in split(to_master):
            master.received(part, now)
        to_slave = b"".join(bytes(part) for part in master.next_piece(now))
        if not to_slave:
            return
        to_master = b"".join(slave.received(part, now) for part in split(to_slave))
