"""Commands of the controllers' log and their outcomes, with their bytes.

A command holds the request of a broker or an operator, and everything that its decision needs and that is not part of
the replicated state: which brokers the leader takes for alive, and the leader's settings.  So every controller that
applies the log decides alike.  RocketMQ decides on the leader and logs the events (`EventMessage`); a decision there
may be made on a state that is no longer current.

Every command is about one group, `name`.  Bytes: one byte with the version, then MessagePack.
"""

from typing import Final, TypeVar

import msgspec

from controller.state.group import Group
from sprocket.common import limits
from sprocket.common.errors import RequestError, StoreError
from sprocket.remoting.codes import ResponseCode

VERSION: Final = 1


class UnreadableState(StoreError, ValueError):
    """Bytes of the log or of a snapshot that this version cannot read.  The controller must stop."""


class LiveReplica(msgspec.Struct, frozen=True, array_like=True):
    """Member of a group that the leader takes for alive, with its last heartbeat.

    A lower `priority` is elected first.
    """

    broker_id: int
    address: str
    epoch: int
    max_offset: int
    priority: int


class AlterSyncStateSet(msgspec.Struct, frozen=True, array_like=True, kw_only=True, tag=1):
    """The master `master_id` reports who is in sync."""

    name: str
    master_id: int | None
    master_epoch: int
    sync_state_set: tuple[int, ...]
    sync_state_set_epoch: int
    live: tuple[int, ...]


class ElectMaster(msgspec.Struct, frozen=True, array_like=True, kw_only=True, tag=2):
    """Elect a master, on demand of the broker `broker_id`, of an operator (`is_designated`) or of the controller.

    In an exact election `live` are the replicas that answered after the end of the master's lease, with the ends of
    their logs as they said then.  It counts only for the group as it was before: `master_epoch` and
    `sync_state_set_epoch`.  `has_resigned`: the master is alive and does not lead any more.
    """

    name: str
    cluster: str
    broker_id: int | None
    is_designated: bool
    allows_unclean: bool
    live: tuple[LiveReplica, ...]
    # Missing in the entries of versions without leases.
    is_exact: bool = False
    master_epoch: int = 0
    sync_state_set_epoch: int = 0
    has_resigned: bool = False


class ApplyBrokerId(msgspec.Struct, frozen=True, array_like=True, kw_only=True, tag=3):
    """Assign `broker_id` to the broker that wrote `check_code` into its own file."""

    name: str
    cluster: str
    broker_id: int
    check_code: str


class RegisterBroker(msgspec.Struct, frozen=True, array_like=True, kw_only=True, tag=4):
    """A broker that has an id says where it is."""

    name: str
    cluster: str
    broker_id: int
    address: str
    live: tuple[LiveReplica, ...]


class CleanBrokerData(msgspec.Struct, frozen=True, array_like=True, kw_only=True, tag=5):
    """Forget members of a group, or the whole group if `broker_ids` is empty."""

    name: str
    cluster: str
    broker_ids: tuple[int, ...]
    includes_living: bool
    live: tuple[int, ...]


class Read(msgspec.Struct, frozen=True, array_like=True, kw_only=True, tag=6):
    """Changes nothing: a read that goes through the log (processReadEvent)."""

    name: str


class AcceptTerms(msgspec.Struct, frozen=True, array_like=True, kw_only=True, tag=7):
    """The master says in how many replicas an acknowledged message is; from now on it may get leases of `lease_ms`."""

    name: str
    master_id: int
    master_epoch: int
    required_acks: int
    lease_ms: int


class AdoptGroup(msgspec.Struct, frozen=True, array_like=True, kw_only=True, tag=8):
    """Take over a group from other controllers, with its brokers' ids and its master."""

    name: str
    cluster: str
    next_broker_id: int
    brokers: tuple[tuple[int, str], ...]
    master_id: int
    master_epoch: int
    sync_state_set_epoch: int


Command = (
    AlterSyncStateSet | ElectMaster | ApplyBrokerId | RegisterBroker | CleanBrokerData | Read | AcceptTerms | AdoptGroup
)


class Outcome(msgspec.Struct, frozen=True, array_like=True):
    """Outcome of a command: the response's code and remark, and the group after it where the response shows it."""

    code: int = ResponseCode.SUCCESS
    remark: str | None = None
    group: Group | None = None


_encode: Final = msgspec.msgpack.Encoder().encode
_command_decoder: Final[msgspec.msgpack.Decoder[Command]] = msgspec.msgpack.Decoder(Command)
_outcome_decoder: Final = msgspec.msgpack.Decoder(Outcome)
_groups_decoder: Final = msgspec.msgpack.Decoder(tuple[Group, ...])
T = TypeVar("T")


def encode_command(command: Command) -> bytes:
    """Return the bytes of `command` for the log.  Raises RequestError for one that is too large."""
    encoded = bytes((VERSION,)) + _encode(command)
    if len(encoded) > limits.MAX_CONTROLLER_COMMAND_BYTES:
        limit = limits.MAX_CONTROLLER_COMMAND_BYTES
        remark = f"the request has {len(encoded)} bytes in the log, the limit is {limit}; name fewer brokers"
        raise RequestError(ResponseCode.CONTROLLER_INVALID_REQUEST, remark)
    return encoded


def decode_command(data: bytes) -> Command:
    """Return the command of an entry of the log.  Raises UnreadableState."""
    return _decoded(data, _command_decoder, "command")


def encode_outcome(outcome: Outcome) -> bytes:
    """Return the bytes of `outcome`, as `apply` returns it."""
    return bytes((VERSION,)) + _encode(outcome)


def decode_outcome(data: bytes) -> Outcome:
    """Return the outcome of an applied command.  Raises UnreadableState."""
    return _decoded(data, _outcome_decoder, "outcome")


def encode_groups(groups: tuple[Group, ...]) -> bytes:
    """Return the bytes of a snapshot."""
    return bytes((VERSION,)) + _encode(groups)


def decode_groups(data: bytes) -> tuple[Group, ...]:
    """Return the groups of a snapshot.  Raises UnreadableState."""
    return _decoded(data, _groups_decoder, "snapshot")


def _decoded(data: bytes, decoder: "msgspec.msgpack.Decoder[T]", kind: str) -> T:
    if data[:1] != bytes((VERSION,)):
        found = data[0] if data else "none"
        raise UnreadableState(f"{kind} of version {found}; this controller reads version {VERSION}: upgrade it")
    try:
        return decoder.decode(memoryview(data)[1:])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UnreadableState(f"{kind} that is none: {error}; restore this controller's directory") from None
