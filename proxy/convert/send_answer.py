"""Answers to SendMessage in their bytes, made without protobuf's objects; pure."""

from typing import Final, NamedTuple

from proxy.status import OK, joint_status
from sprocket.grpc_wire import messaging_pb2 as wire
from sprocket.grpc_wire.encoding import BYTES, NUMBER, number, octets, tag, text

_STATUS: Final = tag(wire.SendMessageResponse, "status", BYTES)
_ENTRY: Final = tag(wire.SendMessageResponse, "entries", BYTES)
_ENTRY_STATUS: Final = tag(wire.SendResultEntry, "status", BYTES)
_MESSAGE_ID: Final = tag(wire.SendResultEntry, "message_id", BYTES)
_TRANSACTION_ID: Final = tag(wire.SendResultEntry, "transaction_id", BYTES)
_OFFSET: Final = tag(wire.SendResultEntry, "offset", NUMBER)
_RECALL_HANDLE: Final = tag(wire.SendResultEntry, "recall_handle", BYTES)
_OK: Final = bytes(OK.SerializeToString())
_SENT: Final = octets(_STATUS, _OK)
_ENTRY_SENT: Final = octets(_ENTRY_STATUS, _OK)


class SendResult(NamedTuple):
    """Result of one message: a SendResultEntry."""

    status: wire.Status
    message_id: str = ""
    transaction_id: str = ""
    offset: int = 0
    recall_handle: str = ""


def encoded_answer(results: list[SendResult]) -> bytes:
    """Return the SendMessageResponse with `results`."""
    if all(result.status is OK for result in results) and results:
        parts = [_SENT]
    else:
        joint = joint_status({result.status.code for result in results}, "send status is empty")
        parts = [octets(_STATUS, joint.SerializeToString())]
    parts += [octets(_ENTRY, _encoded(result)) for result in results]
    return b"".join(parts)


def _encoded(result: SendResult) -> bytes:
    status, message_id, transaction_id, offset, recall_handle = result
    entry = _ENTRY_SENT if status is OK else octets(_ENTRY_STATUS, status.SerializeToString())
    if message_id:
        entry += text(_MESSAGE_ID, message_id)
    if transaction_id:
        entry += text(_TRANSACTION_ID, transaction_id)
    if offset:
        entry += _OFFSET + number(offset)
    return entry + text(_RECALL_HANDLE, recall_handle) if recall_handle else entry
