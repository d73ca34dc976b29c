"""Snapshots of the state, as pysyncobj's serializer: taken for the compaction of the log, sent and installed in parts.

pysyncobj's own serializer writes and reads pickles in files, in the thread of the ticks.  Here a snapshot is bytes in
memory; the storage writes them beside the event loop, and only then the log forgets the entries that they cover.
"""

from collections.abc import Callable
from typing import Any, Final

import msgspec
from pysyncobj.config import SERIALIZER_STATE

from ha.raft.journal import Entry
from ha.raft.messages import MAX_SNAPSHOT_BYTES, PIECE_BYTES, SnapshotPart
from ha.raft.storage import SnapshotFile
from sprocket.common.errors import ProtocolError, StoreError

# Parts that a member may have been sent and not have answered.
_WINDOW: Final = 4


class _Sending:
    """A snapshot on its way to one member."""

    def __init__(self, content: bytes, last: tuple[int, int]) -> None:
        self.content = content
        self.last = last
        self.offset = 0
        self.unanswered = 0


class Snapshots:
    """Snapshot that this member holds, those on the way, and pysyncobj's methods on them.

    `take` returns the state; `restore` replaces it and raises `ValueError` for bytes that are no state.
    `term` returns this member's term.
    """

    def __init__(
        self,
        held: SnapshotFile | None,
        take: Callable[[], bytes],
        restore: Callable[[bytes], None],
        term: Callable[[], int],
    ) -> None:
        self._take = take
        self._restore = restore
        self._term = term
        self.held = held
        self._held_bytes = b"" if held is None else msgspec.msgpack.encode(held)
        self._unwritten: SnapshotFile | None = None
        self._is_compacting = False
        self._is_written = False
        self._compacts_to = 0
        self._sending: dict[Any, _Sending] = {}
        self._received = bytearray()
        self._receiving = (0, 0, 0)
        # An error after which the member must stop: pysyncobj swallows what `deserialize` raises.
        self.failure: StoreError | None = None

    # pysyncobj's serializer

    def serialize(self, data: tuple[Any, Entry, Entry, Any], id: int) -> None:
        """Take a snapshot whose last entries are in `data`; then the log begins at index `id`."""
        state = self._take()
        if len(state) > MAX_SNAPSHOT_BYTES // 2:
            self.failure = StoreError(f"the state has {len(state)} bytes, more than {MAX_SNAPSHOT_BYTES // 2}")
            return
        self._hold(SnapshotFile(data[2], data[1], state))
        self._is_compacting, self._is_written, self._compacts_to = True, False, id

    def checkSerializing(self) -> tuple[int, int | None]:  # noqa: N802
        """Return pysyncobj's code for whether a snapshot is on its way to the disk; success once."""
        if not self._is_compacting:
            return SERIALIZER_STATE.NOT_SERIALIZING, None
        if not self._is_written:
            return SERIALIZER_STATE.SERIALIZING, self._compacts_to
        self._is_compacting = False
        return SERIALIZER_STATE.SUCCESS, self._compacts_to

    def deserialize(self) -> tuple[None, Entry, Entry, tuple[()]]:
        """Restore the state from the snapshot and return its last entries.  Raises `ValueError`."""
        assert self.held is not None
        try:
            self._restore(self.held.state)
        except (ValueError, msgspec.DecodeError) as error:
            self.failure = StoreError(f"the snapshot of entry {self.held.last_index} cannot be restored: {error}")
            raise
        return None, self.held.last, self.held.previous, ()

    def getTransmissionData(self, node: Any) -> SnapshotPart | None:  # noqa: N802
        """Return the next part for `node`; None while it has too many to answer."""
        sending = self._sending.get(node)
        if sending is None:
            if self.held is None:
                return None
            sending = self._sending[node] = _Sending(self._held_bytes, (self.held.last[1], self.held.last[2]))
        if sending.unanswered >= _WINDOW:
            return None
        content = sending.content[sending.offset : sending.offset + PIECE_BYTES]
        part = SnapshotPart(self._term(), *sending.last, sending.offset, len(sending.content), content)
        sending.offset += len(content)
        sending.unanswered += 1
        if part.is_last:
            del self._sending[node]
        return part

    def setTransmissionData(self, part: SnapshotPart) -> bool:  # noqa: N802
        """Take a received part.  Return whether the snapshot is complete, and is to be installed."""
        if not part.size_bytes:
            return False
        identity = (part.last_index, part.last_term, part.size_bytes)
        if part.offset == 0:
            self._received, self._receiving = bytearray(), identity
        if identity != self._receiving or part.offset != len(self._received):
            # A part was lost with a connection.  The leader begins again when it learns where this log ends.
            self._received, self._receiving = bytearray(), (0, 0, 0)
            return False
        self._received += part.content
        if not part.is_last:
            return False
        content, self._received = bytes(self._received), bytearray()
        self._receiving = (0, 0, 0)
        try:
            received = msgspec.msgpack.decode(content, type=SnapshotFile)
        except msgspec.DecodeError as error:
            raise ProtocolError("raft_snapshot", str(error)) from None
        if received.last[1:] != identity[:2] or received.previous[1] + 1 != received.last[1]:
            raise ProtocolError("raft_snapshot", f"a snapshot of {received.last[1:]} instead of {identity[:2]}")
        self._hold(received)
        return True

    def cancelTransmisstion(self, node: Any) -> None:  # noqa: N802
        """Stop sending to `node`, which is not connected."""
        self._sending.pop(node, None)

    # For the member

    def answered(self, node: Any) -> bool:
        """Note that `node` answered a part.  Return whether another part may be sent."""
        sending = self._sending.get(node)
        if sending is None:
            return False
        sending.unanswered = max(0, sending.unanswered - 1)
        return True

    def take_unwritten(self) -> SnapshotFile | None:
        """Return the snapshot that the disk lacks; None if it has it."""
        return self._unwritten

    def written(self) -> None:
        """Note that the disk has the snapshot."""
        self._unwritten = None
        self._is_written = True

    def _hold(self, snapshot: SnapshotFile) -> None:
        self.held = self._unwritten = snapshot
        self._held_bytes = msgspec.msgpack.encode(snapshot)
        self._is_compacting = False
