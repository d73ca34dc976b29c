"""The master's end of a connection to a RocketMQ slave in controller mode: a `MasterLink` that tells epochs.

The slave says who it is.  The master answers with its epochs, and the slave truncates its log where the two histories
part.  Then the slave reports its end, and the log follows from there, each piece within one epoch.
Source: RocketMQ 5.3.3, `AutoSwitchHAConnection`.

Differences from there:

- A piece has the epoch of its bytes.  RocketMQ gives the last piece of an epoch the next epoch's number.
- A heartbeat has the epoch of the last byte that was sent.  An epoch in which nothing was written is not told: a
  slave would note it, and would find no consistent point if the next master begins at the same offset.
- A repeated handshake is not answered again.  RocketMQ's slave repeats it when a read brings half an answer, and
  refuses a second answer.
"""

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

from ha.autoswitch.messages import (
    MAX_SENT_BYTES,
    MasterHandshake,
    SlaveHandshake,
    SlaveMessageReader,
    transfer_head,
)
from ha.epochs.epoch_history import OPEN_END, Epoch, EpochHistory
from ha.hello import Identity
from ha.master_link import LinkRules, Log, MasterLink
from sprocket.common.errors import ProtocolError


class ConfirmedLog(Log, Protocol):
    """The part of a store's log that is read for a slave in controller mode."""

    @property
    def confirm_offset(self) -> int: ...


@dataclass(frozen=True)
class AutoSwitchRules:
    """Identity of this master, and the epochs of its log."""

    own: Callable[[], Identity]
    history: Callable[[], EpochHistory]


class AutoSwitchMaster(MasterLink):
    """One slave.  Times are monotonic, in seconds."""

    def __init__(
        self,
        link_rules: LinkRules,
        rules: AutoSwitchRules,
        log: ConfirmedLog,
        now: float,
        known_offset: Callable[[], int] | None = None,
    ) -> None:
        super().__init__(_bounded(link_rules), log, now, known_offset)
        self._confirmed_log = log
        self._autoswitch = rules
        self._messages = SlaveMessageReader()
        self._replies: list[bytes] = []
        # The epoch of `next_offset` and its end, as of `_history`.
        self._history = EpochHistory()
        self._epoch: Epoch | None = None
        self._epoch_end = 0

    # Input

    def configure(self, rules: LinkRules) -> None:
        """Apply changed intervals and sizes; where an empty slave begins does not change."""
        super().configure(_bounded(rules))

    def received(self, data: bytes, now: float) -> bool:
        """Take `data` and return whether the slave acknowledged more than before.

        Raises ProtocolError for what no slave of this log can report; close the connection then.
        """
        self._read_at = now
        before = self.acked_offset
        for message in self._messages.feed(data):
            if isinstance(message, SlaveHandshake):
                self._greet(message)
            elif self.identity is None:
                raise ProtocolError("ha_autoswitch", "a slave reports before its handshake")
            else:
                self._reported(message.offset)
        return self.acked_offset > before

    def _greet(self, message: SlaveHandshake) -> None:
        if self.requested_offset is not None:
            raise ProtocolError("ha_autoswitch", "a slave sends a handshake after its first report")
        own = self._autoswitch.own()
        if message.broker_id == own.broker_id:
            raise ProtocolError("ha_autoswitch", f"the slave has the master's own brokerId {own.broker_id}")
        if self.identity is None:
            self._rules = replace(self._rules, from_last_segment=message.from_last_segment)
            self.identity = replace(own, broker_id=message.broker_id, store_id="")
            self.is_learner = message.is_learner
            self._replies.append(MasterHandshake(self._log.end_offset, self._autoswitch.history()).encode())

    # Output

    def next_piece(self, now: float) -> list[bytes | memoryview]:
        """Return what to write now: the handshake, a head and a piece of the log, a heartbeat, or nothing."""
        if self._replies:
            replies, self._replies = self._replies, []
            self._wrote_at = now
            return list(replies)
        return super().next_piece(now)

    def _allowance(self, now: float) -> int:
        """Return how many bytes may be sent now: no piece crosses the end of an epoch."""
        history = self._autoswitch.history()
        if history is not self._history or self.next_offset >= self._epoch_end:
            self._history = history
            self._epoch, self._epoch_end = _epoch_of(history, self.next_offset)
        return min(super()._allowance(now), self._epoch_end - self.next_offset)

    def _head(self, offset: int, piece: memoryview) -> bytes:
        return transfer_head(offset, len(piece), self._epoch, self._confirmed_log.confirm_offset)

    def _heartbeat(self) -> bytes:
        epoch, _ = _epoch_of(self._autoswitch.history(), self.next_offset - 1)
        return transfer_head(self.next_offset, 0, epoch, self._confirmed_log.confirm_offset)


def _bounded(rules: LinkRules) -> LinkRules:
    return replace(rules, batch_bytes=min(rules.batch_bytes, MAX_SENT_BYTES))


def _epoch_of(history: EpochHistory, offset: int) -> tuple[Epoch | None, int]:
    """Return the epoch of the byte at `offset`, None before the first one, and where the next one begins."""
    at = bisect_right(history.epochs, offset, key=_start_of)
    end = history.epochs[at].start_offset if at < len(history.epochs) else OPEN_END
    return (history.epochs[at - 1] if at else None), end


def _start_of(epoch: Epoch) -> int:
    return epoch.start_offset
