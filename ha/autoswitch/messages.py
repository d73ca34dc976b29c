"""The four messages of RocketMQ's AutoSwitch protocol: a handshake and a transfer from each end.

docs/replication-protocol.md is written from the layouts here.  All numbers are big-endian.
Source: RocketMQ 5.3.3, `AutoSwitchHAConnection`, `AutoSwitchHAClient`.
"""

import struct
from dataclasses import dataclass
from typing import Final

from ha.epochs.epoch_history import Epoch, EpochHistory
from ha.piece_reader import PieceReader
from ha.session import Field, Layout
from sprocket.common.errors import ProtocolError

# Ordinals of RocketMQ's `HAConnectionState`; no message carries another one.
HANDSHAKE: Final = 1
TRANSFER: Final = 2
# The epoch of a header that tells none, as of a log that was begun without controllers.
NO_EPOCH: Final = -1

SLAVE_HANDSHAKE: Final = Layout(
    "SLAVE_HANDSHAKE",
    Field("state", "i", "1, HANDSHAKE"),
    Field("sync_from_last_file", "h", "1: an empty slave begins with the last segment, see syncFromLastFile"),
    Field("async_learner", "h", "1: the slave never counts as in sync, see asyncLearner"),
    Field("broker_id", "q", "the slave's, as controllers assigned it"),
)
SLAVE_REPORT: Final = Layout(
    "SLAVE_REPORT",
    Field("state", "i", "2, TRANSFER"),
    Field("offset", "q", "end of the slave's log; the first report asks for what follows, later ones acknowledge"),
)
MASTER_HANDSHAKE: Final = Layout(
    "MASTER_HANDSHAKE",
    Field("state", "i", "1, HANDSHAKE"),
    Field("size_bytes", "i", "bytes of the epochs that follow, oldest first"),
    Field("offset", "q", "end of the master's log"),
    Field("epoch", "i", "the last epoch; -1 if there is none"),
)
EPOCH: Final = Layout(
    "EPOCH",
    Field("epoch", "i", "its number"),
    Field("start_offset", "q", "the physical offset where it begins"),
)
MASTER_TRANSFER: Final = Layout(
    "MASTER_TRANSFER",
    Field("state", "i", "2, TRANSFER"),
    Field("size_bytes", "i", "bytes of the log that follow; 0 in a heartbeat"),
    Field("offset", "q", "the first byte's physical offset; -1 in a heartbeat of a RocketMQ master without a log"),
    Field("epoch", "i", "the epoch of these bytes; see below for RocketMQ's exception"),
    Field("epoch_start_offset", "q", "where that epoch begins"),
    Field("confirm_offset", "q", "consumers of the master see the log before it; -1 if it is not known yet"),
)
LAYOUTS: Final = (SLAVE_HANDSHAKE, SLAVE_REPORT, MASTER_HANDSHAKE, EPOCH, MASTER_TRANSFER)

# RocketMQ's master has room for 1,000 epochs.  A history of ours may be longer.
MAX_EPOCHS: Final = 65_536
# RocketMQ's slave waits for ever for a piece that exceeds its buffer of 4 MiB.
MAX_SENT_BYTES: Final = 1024 * 1024
# No master sends a larger piece; RocketMQ's haTransferBatchSize is 32 KiB by default.
MAX_PIECE_BYTES: Final = 64 * 1024 * 1024

_STATE: Final = struct.Struct(">i")
# What the two messages of a master have in common.
_MASTER_HEAD: Final = MASTER_HANDSHAKE.struct
_AFTER_HEAD: Final = struct.Struct(">qq")


@dataclass(frozen=True, slots=True)
class SlaveHandshake:
    """A slave's first message."""

    broker_id: int
    from_last_segment: bool = False
    is_learner: bool = False

    def encode(self) -> bytes:
        """Return the message."""
        return SLAVE_HANDSHAKE.struct.pack(HANDSHAKE, self.from_last_segment, self.is_learner, self.broker_id)


@dataclass(frozen=True, slots=True)
class SlaveReport:
    """The end of a slave's log."""

    offset: int

    def encode(self) -> bytes:
        """Return the message."""
        return SLAVE_REPORT.struct.pack(TRANSFER, self.offset)


@dataclass(frozen=True, slots=True)
class MasterHandshake:
    """End of a master's log, and its epochs."""

    end_offset: int
    history: EpochHistory

    def encode(self) -> bytes:
        """Return the message."""
        epochs, last = self.history.epochs, self.history.last
        number = NO_EPOCH if last is None else last.number
        head = _MASTER_HEAD.pack(HANDSHAKE, len(epochs) * EPOCH.struct.size, self.end_offset, number)
        return head + b"".join(EPOCH.struct.pack(one.number, one.start_offset) for one in epochs)


@dataclass(frozen=True, slots=True)
class MasterTransfer:
    """A piece of a master's log, or its heartbeat when `content` is empty.

    `epoch` is None if the header tells none.
    """

    offset: int
    epoch: Epoch | None
    confirm_offset: int
    content: memoryview


def transfer_head(offset: int, size_bytes: int, epoch: Epoch | None, confirm_offset: int) -> bytes:
    """Return the head of `size_bytes` bytes of the log that begin at `offset`."""
    number, start_offset = (NO_EPOCH, 0) if epoch is None else (epoch.number, epoch.start_offset)
    return MASTER_TRANSFER.struct.pack(TRANSFER, size_bytes, offset, number, start_offset, confirm_offset)


class SlaveMessageReader(PieceReader[SlaveHandshake | SlaveReport]):
    """Reader of what a slave sends.

    `feed` raises ProtocolError for an unknown state, an offset below 0 or a broker id below 1.
    """

    def __init__(self) -> None:
        super().__init__(_STATE.size)

    def _content_bytes(self, head: bytearray) -> int:
        return _slave_size(head, 0) - _STATE.size

    def _cut(self, view: memoryview) -> tuple[list[SlaveHandshake | SlaveReport], int]:
        found: list[SlaveHandshake | SlaveReport] = []
        at, end = 0, len(view)
        while at + _STATE.size <= end and at + (size := _slave_size(view, at)) <= end:
            found.append(_slave_message(view, at))
            at += size
        return found, at


def _slave_size(view: memoryview | bytearray, at: int) -> int:
    (state,) = _STATE.unpack_from(view, at)
    if state == HANDSHAKE:
        return SLAVE_HANDSHAKE.struct.size
    if state == TRANSFER:
        return SLAVE_REPORT.struct.size
    raise ProtocolError(
        "ha_autoswitch",
        f"a slave's message begins with {state}: it does not speak the protocol of controller mode; set"
        " enableControllerMode on all brokers of the group",
    )


def _slave_message(view: memoryview, at: int) -> SlaveHandshake | SlaveReport:
    if view[at + _STATE.size - 1] == TRANSFER:
        _, offset = SLAVE_REPORT.struct.unpack_from(view, at)
        if offset < 0:
            raise ProtocolError("ha_report", f"a slave reports the offset {offset}")
        return SlaveReport(offset)
    _, from_last_segment, is_learner, broker_id = SLAVE_HANDSHAKE.struct.unpack_from(view, at)
    if broker_id < 1:
        raise ProtocolError("ha_autoswitch", f"a slave has the brokerId {broker_id}, which controllers never assign")
    return SlaveHandshake(broker_id, from_last_segment == 1, is_learner == 1)


class MasterMessageReader(PieceReader[MasterHandshake | MasterTransfer]):
    """Reader of what a master sends.

    `feed` raises ProtocolError for an unknown state, a size out of bounds, a bad offset, or epochs out of order.
    """

    def __init__(self) -> None:
        super().__init__(_MASTER_HEAD.size)

    def _content_bytes(self, head: bytearray) -> int:
        return _content_size(head, 0)

    def _cut(self, view: memoryview) -> tuple[list[MasterHandshake | MasterTransfer], int]:
        found: list[MasterHandshake | MasterTransfer] = []
        at, end = 0, len(view)
        while at + _MASTER_HEAD.size <= end:
            stop = at + _MASTER_HEAD.size + _content_size(view, at)
            if stop > end:
                break
            found.append(_master_message(view[at:stop]))
            at = stop
        return found, at


def _content_size(view: memoryview | bytearray, at: int) -> int:
    """Return how many bytes follow the common part of a master's message.  Raises ProtocolError."""
    state, size_bytes, offset, epoch = _MASTER_HEAD.unpack_from(view, at)
    if state == HANDSHAKE:
        limit, is_bad, more = MAX_EPOCHS * EPOCH.struct.size, offset < 0 or size_bytes % EPOCH.struct.size != 0, 0
    elif state == TRANSFER:
        limit, is_bad, more = MAX_PIECE_BYTES, offset < (0 if size_bytes else -1), _AFTER_HEAD.size
    else:
        raise ProtocolError("ha_autoswitch", f"a master's message begins with {state}")
    if is_bad or not 0 <= size_bytes <= limit or epoch < NO_EPOCH:
        detail = f"a master sends {size_bytes} bytes from offset {offset} of the epoch {epoch}, state {state}"
        raise ProtocolError("ha_transfer", detail)
    return int(size_bytes + more)


def _master_message(view: memoryview) -> MasterHandshake | MasterTransfer:
    """Return the message that `view` holds; it holds nothing else."""
    state, _, offset, number = _MASTER_HEAD.unpack_from(view)
    body = view[_MASTER_HEAD.size :]
    if state == HANDSHAKE:
        return MasterHandshake(offset, EpochHistory(Epoch(*one) for one in EPOCH.struct.iter_unpack(body)))
    start_offset, confirm_offset = _AFTER_HEAD.unpack_from(body)
    if start_offset < 0:
        raise ProtocolError("ha_transfer", f"a master says that the epoch {number} begins at {start_offset}")
    epoch = None if number == NO_EPOCH else Epoch(number, start_offset)
    return MasterTransfer(offset, epoch, confirm_offset, body[_AFTER_HEAD.size :].toreadonly())
