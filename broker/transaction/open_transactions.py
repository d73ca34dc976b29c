"""Table of the half messages that are open, from op messages and what was done since.

RocketMQ keeps no such table: there an end that arrives twice, or after a copy was written, takes effect twice.
"""

from collections import deque
from collections.abc import Sequence
from itertools import islice

from broker.transaction.half_message import Identity


class OpenTransactions:
    """Everything before `half_offset` is done; after it only what is in `done`.

    A restarted broker must read op messages from `op_offset` on.
    """

    def __init__(self, half_offset: int, op_offset: int) -> None:
        self.half_offset = half_offset
        # Those after `half_offset` that are done.
        self.done: set[int] = set()
        # Identity of each open copy, by its queue offset.
        self._copies: dict[int, Identity] = {}
        self._newest: dict[Identity, int] = {}
        # (queue offset of an op message, highest half offset that it lists)
        self._ops: deque[tuple[int, int]] = deque()
        self._next_op = op_offset

    @property
    def op_offset(self) -> int:
        ops = self._ops
        while ops and ops[0][1] < self.half_offset:
            ops.popleft()
        return ops[0][0] if ops else self._next_op

    def is_open(self, offset: int) -> bool:
        """Return whether the half message at `offset`, which must exist, is open."""
        return offset >= self.half_offset and offset not in self.done

    def open_offsets(self, end: int, limit: int) -> list[int]:
        """Return the queue offsets below `end` of the first `limit` half messages that are open."""
        return list(islice((at for at in range(self.half_offset, end) if at not in self.done), limit))

    def newest_copy(self, identity: Identity) -> int | None:
        """Return where the newest copy of a transaction is open; None if none is."""
        return self._newest.get(identity)

    def has_copy(self, identity: Identity) -> bool:
        """Return whether a transaction is open at a copy."""
        return identity in self._newest

    def end_all(self, offsets: Sequence[int]) -> None:
        """Mark the half messages at `offsets` as done."""
        if self._copies or min(offsets, default=0) < self.half_offset:
            for offset in offsets:
                self.end(offset)
            return
        self.done.update(offsets)
        self._skip_done()

    def _skip_done(self) -> None:
        done, offset = self.done, self.half_offset
        while offset in done:
            done.remove(offset)
            offset += 1
        self.half_offset = offset

    def end(self, offset: int) -> None:
        """Mark the half message at `offset` as done."""
        identity = self._copies.pop(offset, None)
        if identity is not None and self._newest.get(identity) == offset:
            del self._newest[identity]
        if offset >= self.half_offset:
            self.done.add(offset)
            self._skip_done()

    def copied(self, offset: int, identity: Identity) -> None:
        """Note a copy at `offset`, which now represents the transaction."""
        self._copies[offset] = identity
        self._newest[identity] = offset

    def noted(self, op_offset: int, highest: int) -> None:
        """Note an op message at `op_offset` that lists half messages up to `highest`."""
        self._ops.append((op_offset, highest))
        self._next_op = op_offset + 1

    def skip_to(self, offset: int) -> None:
        """Forget everything before `offset`, which no longer exists."""
        for gone in [copy for copy in self._copies if copy < offset]:
            self.end(gone)
        self.done = {done for done in self.done if done >= offset}
        self.half_offset = max(self.half_offset, offset)
        self._skip_done()
