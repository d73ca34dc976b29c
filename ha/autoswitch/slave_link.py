"""The slave's end of the connection to a RocketMQ master in controller mode: a `SlaveLink` that compares epochs.

The slave sends its identity and receives the master's epochs.  It saves a copy of what its log has after the last
common epoch, and truncates the log there.  Then it reports the log's end, and replication begins.  Each epoch is
written to the slave's own history before the first byte of that epoch is written to its log.
Source: RocketMQ 5.3.3, `AutoSwitchHAClient`.

Differences from there:

- The end of the log is compared with the master's, as on a plain connection.  Equal epochs prove nothing if the master
  lost records in a power loss and goes on in the same epoch.
- A slave whose log has no epoch in common with the master's changes nothing.
- RocketMQ's master gives the last piece of an epoch the next epoch's number.  So the epochs of the handshake decide,
  and an epoch of a header counts from its start on.
- The first report follows the handshake at once.  RocketMQ's slave sends it with its next heartbeat.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from ha.autoswitch.messages import MasterHandshake, MasterMessageReader, MasterTransfer, SlaveHandshake, SlaveReport
from ha.epochs.epoch_history import Epoch, EpochHistory
from ha.slave_link import KEEP_BOTH, ReplicaLog, SlaveLink, SlaveRules
from sprocket.common.errors import ProtocolError


class EpochReplicaLog(ReplicaLog, Protocol):
    """The part of a slave's store that this protocol needs."""

    def record_end(self, offset: int, /) -> int:
        """Return the end of the last record that ends at `offset` or before; the log's first byte if there is none."""

    def cut(self, offset: int, reason: str, /) -> None:
        """Truncate the log at `offset`, after copying aside what follows.  Raises StoreError."""

    def confirmed(self, offset: int, /) -> None:
        """Let consumers see the log before `offset`, and what they saw before."""


class OwnEpochs(Protocol):
    """The epochs of the slave's log, on its disk."""

    @property
    def history(self) -> EpochHistory:
        """Epochs of the log."""

    def replace(self, history: EpochHistory, /) -> None:
        """Take over `history`; return once it is on the disk.  Raises StoreError."""


@dataclass(frozen=True)
class AutoSwitchReplica:
    """What a slave in controller mode tells its master, and the epochs of its log."""

    handshake: Callable[[], SlaveHandshake]
    epochs: OwnEpochs


class AutoSwitchSlave(SlaveLink):
    """One connection to the master.  Times are monotonic, in seconds."""

    def __init__(self, rules: SlaveRules, log: EpochReplicaLog, replica: AutoSwitchReplica, now: float) -> None:
        super().__init__(rules, log, now)
        self._epoch_log = log
        self._epochs = replica.epochs
        self._handshake = replica.handshake
        self._messages = MasterMessageReader()
        # The master's epochs, once its handshake has arrived.
        self._masters: EpochHistory | None = None

    def begin(self, now: float) -> bytes:
        """Return the first message to write, the handshake."""
        self.wrote_at = now
        self._log.restart()
        return self._handshake().encode()

    def received(self, data: bytes | memoryview, now: float) -> bytes:
        """Take `data` and return what to write, perhaps nothing.

        Raises ProtocolError for what no master of this log can send, and StoreError from the log or the epochs; close
        the connection then.  Nothing after the bad piece is taken.
        """
        self.read_at = now
        messages = self._messages.feed(data)
        if self._masters is None:
            if not messages:
                return b""
            first, *messages = messages
            if not isinstance(first, MasterHandshake):
                raise ProtocolError("ha_autoswitch", "the master sends its log before its handshake")
            self._agree(first)
            if not messages:
                return self._report(now)
        self._take(messages)
        return self.acknowledge(now)

    # The consistent point

    def _agree(self, master: MasterHandshake) -> None:
        """Find what both logs have, truncate the rest, and choose what is compared byte by byte."""
        log, end = self._epoch_log, self._log.end_offset
        own, other = self._epochs.history.cut_at(end), master.history.cut_at(master.end_offset)
        if end and own.epochs:
            common = own.common_end(end, other, master.end_offset)
            if common is None or (common < end and common <= log.min_offset):
                raise ProtocolError("ha_diverged", self._nothing_in_common(own, master))
            if common < end:
                log.cut(log.record_end(common), "the master's epochs go on differently")
                end = log.end_offset
        if end > master.end_offset:
            detail = f"this slave's log ends at {end}, after the master's at {master.end_offset}.  {KEEP_BOTH}"
            raise ProtocolError("ha_diverged", detail)
        # Nothing was written in these, and the master may have an older epoch in their place.
        self._epochs.replace(self._epochs.history.cut_at(end))
        log.confirmed(0)
        self._masters = master.history
        self.master_offset = max(self.master_offset, master.end_offset)
        self._compare_from(end)
        if end and master.history.epochs:
            self._same_to = max(self._same_to, self._first_sent(master.history, end))

    @staticmethod
    def _first_sent(masters: EpochHistory, end: int) -> int:
        """Return where a RocketMQ master can begin to send, its first epoch.  Raises ProtocolError if after `end`."""
        first = masters.epochs[0].start_offset
        if first > end:
            detail = (
                f"the master's epochs begin at {first}, and it sends nothing before; this slave's log ends at {end}:"
                " move the slave's store aside, copy the master's in its place while the master is stopped, and start"
                " both"
            )
            raise ProtocolError("ha_epoch", detail)
        return first

    def _nothing_in_common(self, own: EpochHistory, master: MasterHandshake) -> str:
        log = self._log
        return (
            f"this slave's log, {log.min_offset} to {log.end_offset} with {len(own.epochs)} epochs, and the master's,"
            f" to {master.end_offset} with {len(master.history.epochs)} epochs, have no epoch in common; this slave"
            f" keeps its own log untouched.  {KEEP_BOTH}"
        )

    # The log

    def _take(self, messages: Sequence[MasterHandshake | MasterTransfer]) -> None:
        """Append what one read brought, with one call."""
        pieces: list[memoryview] = []
        start = self._log.received_offset
        expected = self._same_to if self._same_to < self._same_end else start
        confirm_offset = -1
        try:
            for message in messages:
                if isinstance(message, MasterHandshake):
                    raise ProtocolError("ha_autoswitch", "the master sends its handshake twice")
                content, offset = message.content, message.offset
                if expected and offset != expected:
                    detail = f"the master sends from {offset}, the slave's log ends at {expected}"
                    raise ProtocolError("ha_transfer", detail)
                self._note(message.epoch)
                if self._same_to < self._same_end:
                    content = self._compare(content)
                elif not pieces:
                    start = max(offset, 0)
                if content:
                    pieces.append(content)
                if message.content:
                    expected = offset + len(message.content)
                confirm_offset = message.confirm_offset
        finally:
            self._append(start, pieces, confirm_offset)
        self.master_offset = max(self.master_offset, expected)

    def _append(self, start: int, pieces: list[memoryview], confirm_offset: int) -> None:
        size = sum(map(len, pieces))
        if self._same_to >= self._same_end:
            self._begin_epochs(start + size)
        if size:
            self._log.append(start, pieces)
            self.received_bytes += size
            self.master_offset = max(self.master_offset, start + size)
        if confirm_offset >= 0:
            self._epoch_log.confirmed(confirm_offset)

    def _note(self, epoch: Epoch | None) -> None:
        """Take the epoch of a header into the master's history."""
        masters = self._masters
        assert masters is not None
        if epoch is None or epoch == masters.last:
            return
        if masters.last is None or epoch.number > masters.last.number:
            self._masters = masters.begun(epoch)
        elif epoch not in masters.epochs:
            detail = f"the master now says that its epoch {epoch.number} begins at {epoch.start_offset}"
            raise ProtocolError("ha_epoch", detail)

    def _begin_epochs(self, end: int) -> None:
        """Add the master's epochs that begin before `end` to the own history: the log will end there."""
        assert self._masters is not None
        history, last = self._epochs.history, self._masters.last
        if last is None or (history.last is not None and history.last.number >= last.number):
            return
        for epoch in self._masters.epochs:
            if (history.last is None or epoch.number > history.last.number) and epoch.start_offset < end:
                history = history.begun(epoch)
        if history is not self._epochs.history:
            self._epochs.replace(history)

    # Reports

    def due(self, now: float) -> bytes:
        """Return a heartbeat if one is due."""
        return b"" if self._masters is None else super().due(now)

    def acknowledge(self, now: float) -> bytes:
        """Return a report if the log reaches further than the last one said."""
        return b"" if self._masters is None else super().acknowledge(now)

    def _report(self, now: float) -> bytes:
        self.wrote_at = now
        self._reported = self._confirmed
        return SlaveReport(self._reported).encode()
