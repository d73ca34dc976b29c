"""Both ends of RocketMQ's protocol of controller mode, with logs and epochs in memory."""

import random
from collections.abc import Callable

from ha.autoswitch.master_link import AutoSwitchMaster, AutoSwitchRules
from ha.autoswitch.messages import SlaveHandshake
from ha.autoswitch.slave_link import AutoSwitchReplica, AutoSwitchSlave
from ha.epochs.epoch_history import Epoch, EpochHistory
from ha.hello import Identity
from ha.master_link import LinkRules
from ha.slave_link import SlaveRules
from tests.ha.links import SEGMENT
from tests.ha.sessions import SessionMemoryLog

OWN = Identity("C", "a", 1, "store1")


def history(*epochs: tuple[int, int]) -> EpochHistory:
    return EpochHistory(Epoch(*one) for one in epochs)


class EpochMemoryLog(SessionMemoryLog):
    """A log with its epochs.  Checks that an epoch is noted before any of its bytes."""

    def __init__(self, content: bytes = b"", *epochs: tuple[int, int], start: int = 0) -> None:
        super().__init__(content, start)
        self.history = history(*epochs)
        self.confirms: list[int] = []
        self.confirm_to: int | None = None

    @property
    def confirm_offset(self) -> int:
        return self.end_offset if self.confirm_to is None else self.confirm_to

    def confirmed(self, offset: int) -> None:
        self.confirms.append(offset)

    def replace(self, history: EpochHistory) -> None:
        new = set(history.epochs) - set(self.history.epochs)
        assert not self.history.epochs or all(one.start_offset >= self.end_offset for one in new), "after its bytes"
        self.history = history


class Pair:
    """A master and a slave, with the bytes under way between them."""

    def __init__(
        self,
        master_log: EpochMemoryLog,
        slave_log: EpochMemoryLog,
        *,
        handshake: SlaveHandshake = SlaveHandshake(2),  # noqa: B008 - frozen
        batch_bytes: int = 64,
    ) -> None:
        self.master_log, self.slave_log = master_log, slave_log
        rules = LinkRules(batch_bytes=batch_bytes, segment_bytes=SEGMENT)
        self.master = AutoSwitchMaster(rules, AutoSwitchRules(lambda: OWN, lambda: master_log.history), master_log, 0.0)
        replica = AutoSwitchReplica(lambda: handshake, slave_log)
        self.slave = AutoSwitchSlave(SlaveRules(segment_bytes=SEGMENT), slave_log, replica, 0.0)
        self.to_master = self.slave.begin(0.0)

    def talk(self, split: Callable[[bytes], list[bytes]] = lambda data: [data], now: float = 0.0) -> None:
        """Exchange bytes until both are silent.  Raises what either raises."""
        while True:
            for part in split(self.to_master):
                self.master.received(part, now)
            self.to_master = b""
            to_slave = b""
            while buffers := self.master.next_piece(now):
                to_slave += b"".join(bytes(buffer) for buffer in buffers)
            if not to_slave:
                return
            self.to_master = b"".join(self.slave.received(part, now) for part in split(to_slave))


def splitter(seed: int) -> Callable[[bytes], list[bytes]]:
    """Return a function that cuts bytes into reads."""
    choose = random.Random(seed)

    def split(data: bytes) -> list[bytes]:
        parts = []
        while data:
            size = choose.randrange(1, 200)
            parts.append(data[:size])
            data = data[size:]
        return parts

    return split
