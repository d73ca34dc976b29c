"""History of a log by master epochs, and the end of what two logs have in common.

Each master writes its epoch's start into the history before it appends anything.  Two logs with the same epoch at the
same start were written by the same master, so they agree up to the shorter end of that epoch.
Source: RocketMQ 5.3.3, `EpochFileCache`.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from sprocket.common.errors import ProtocolError

# End of the last epoch: the log goes on.
OPEN_END: Final = (1 << 63) - 1
# Longer histories lose their oldest epochs.  Logs without an epoch in common are compared by checksums.
MAX_EPOCHS: Final = 10_000


@dataclass(frozen=True, slots=True)
class Epoch:
    """A master's epoch, and the physical offset at which its part of the log begins."""

    number: int
    start_offset: int


class EpochHistory:
    """Epochs of one log: numbers grow, and starts do not shrink.  Immutable."""

    def __init__(self, epochs: Iterable[Epoch] = ()) -> None:
        """Raises ProtocolError for epochs out of order or offsets below 0."""
        self.epochs = tuple(epochs)
        before = Epoch(-1, 0)
        for epoch in self.epochs:
            if epoch.number <= before.number or epoch.start_offset < before.start_offset:
                raise ProtocolError("epochs", f"{epoch} follows {before}")
            before = epoch

    def __eq__(self, other: object) -> bool:
        return isinstance(other, EpochHistory) and self.epochs == other.epochs

    def __hash__(self) -> int:
        return hash(self.epochs)

    def __repr__(self) -> str:
        return f"EpochHistory({self.epochs!r})"

    @property
    def last(self) -> Epoch | None:
        """The epoch that goes on; None if there is none."""
        return self.epochs[-1] if self.epochs else None

    def begun(self, epoch: Epoch) -> "EpochHistory":
        """Return the history after `epoch` began.

        An epoch in which nothing was written is left out.  Raises ProtocolError if `epoch` is not the newest.
        """
        if self.last is not None and epoch.number <= self.last.number:
            raise ProtocolError("epochs", f"{epoch} does not follow {self.last}")
        return EpochHistory((*self.cut_at(epoch.start_offset).epochs, epoch))

    def cut_at(self, offset: int) -> "EpochHistory":
        """Return the history of the log that ends at `offset`: without epochs that begin there or later."""
        return EpochHistory(epoch for epoch in self.epochs if epoch.start_offset < offset)

    def without_before(self, offset: int) -> "EpochHistory":
        """Return the history of the log that begins at `offset`: without epochs that end there or before."""
        ends = [epoch.start_offset for epoch in self.epochs[1:]] + [OPEN_END]
        return EpochHistory(epoch for epoch, end in zip(self.epochs, ends, strict=True) if end > offset)

    @property
    def is_whole(self) -> bool:
        """Whether the history says for every byte of the log, from offset 0 on, which master wrote it."""
        return bool(self.epochs) and not self.epochs[0].start_offset

    def first_after(self, offset: int) -> int:
        """Return the start of the first epoch that begins at `offset` or later; `OPEN_END` if there is none."""
        return next((epoch.start_offset for epoch in self.epochs if epoch.start_offset >= offset), OPEN_END)

    def common_end(self, own_end: int, other: "EpochHistory", other_end: int) -> int | None:
        """Return the offset up to which both logs are equal; None if they have no epoch in common.

        `own_end` and `other_end` are the ends of the logs.
        """
        others = {epoch.number: epoch.start_offset for epoch in other.epochs}
        for epoch in reversed(self.epochs):
            if others.get(epoch.number) == epoch.start_offset:
                return min(self._end_of(epoch.number, own_end), other._end_of(epoch.number, other_end))
        return None

    def _end_of(self, number: int, log_end: int) -> int:
        following = (epoch.start_offset for epoch in self.epochs if epoch.number > number)
        return next(following, log_end)
