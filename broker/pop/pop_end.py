"""End of the pops of one read: their checkpoints are written, then they are answered and their offsets committed.

Source: RocketMQ 5.3.3, `PopMessageProcessor.processRequest`, `appendCheckPoint`.
"""

from collections.abc import Callable, Sequence
from typing import Final, Protocol

from broker.core import BrokerCore
from broker.pop.pop_offsets import PopOffsets, Taken
from broker.pop.queue_pop import QueuePop
from broker.pop.revive.revive_log import ReviveLog
from sprocket.common.errors import StoreError
from sprocket.common.failpoints import failpoint
from sprocket.remoting.codes import ResponseCode
from store.record.record import PendingMessage

_BEFORE_CHECKPOINT: Final = failpoint("pop.before_checkpoint")
_CHECKPOINT_WRITTEN: Final = failpoint("pop.checkpoint_written")
_COMMITTED: Final = failpoint("pop.committed")


class FoundPops(Protocol):
    """Pops of one read that found messages."""

    @property
    def taken(self) -> Sequence[Taken]:
        """What the checkpoints cover, in the order in which it was taken."""

    def answer(self, *, was_later: bool) -> None:
        """Send the responses, at once or after the read."""

    def refuse(self, error: Exception, *, was_later: bool) -> None:
        """Refuse each pop."""


class PopEnd:
    """Writer of the checkpoints for which pops wait.  Lives in the event loop's thread."""

    def __init__(self, core: BrokerCore, queues: QueuePop, offsets: PopOffsets, log: ReviveLog) -> None:
        self._config = core.config
        self._waits = core.waits
        self._store = core.store
        self._queues = queues
        self._offsets = offsets
        self._log = log

    def write(self, pops: FoundPops, append: Callable[[], int]) -> None:
        """Let `append` write the checkpoints, and answer when they are as safe as flush mode and role demand.

        `append` returns where they end in the log.
        """
        _BEFORE_CHECKPOINT()
        try:
            end = append()
        except Exception as error:  # any error: release the popped messages for other members
            self._release(pops, error)
            return
        _CHECKPOINT_WRITTEN()
        if not self._waits.is_needed:
            self._written(pops, was_later=False)
            return
        # Commit also if the append becomes safe after the client's timeout.
        self._store.when_confirmed(end, lambda error: self._commit(pops) if error is None else None)
        if self._config.broker.append_ck_async:
            pops.answer(was_later=False)
            return

        def stored(error: StoreError | None, code: ResponseCode) -> None:
            # With any code the checkpoints are stored.
            if error is None:
                pops.answer(was_later=True)
            else:
                pops.refuse(error, was_later=True)

        self._waits.wait(end, stored)

    def send(self, pops: FoundPops, checkpoints: list[PendingMessage]) -> None:
        """Store the checkpoints at another master, because this broker is a slave."""
        _BEFORE_CHECKPOINT()
        try:
            self._log.send(checkpoints, lambda: self._written(pops, was_later=True))
        except Exception as error:
            self._release(pops, error)

    def take_back(self, taken: Sequence[Taken]) -> None:
        """Make messages available again that were not delivered."""
        for one in reversed(taken):
            self._queues.undo(one)

    def _written(self, pops: FoundPops, *, was_later: bool) -> None:
        self._commit(pops)
        pops.answer(was_later=was_later)

    def _commit(self, pops: FoundPops) -> None:
        for taken in pops.taken:
            self._offsets.safe(taken)
        _COMMITTED()

    def _release(self, pops: FoundPops, error: Exception) -> None:
        self.take_back(pops.taken)
        pops.refuse(error, was_later=False)
