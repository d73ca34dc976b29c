"""Answers to SendMessage and AckMessage in their bytes, made without protobuf's objects; pure."""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from proxy.status import OK, joint_status
from sprocket.grpc_wire import messaging_pb2 as wire
from sprocket.grpc_wire.encoding import BYTES, NUMBER, number, octets, tag, text

_OK: Final = bytes(OK.SerializeToString())


class _Tags(NamedTuple):
    """What stands before the status and an entry of an answer, and before the id and the status in an entry."""

    status: bytes
    entry: bytes
    message_id: bytes
    entry_status: bytes


def _tags(answer: Any, entry: Any) -> _Tags:
    return _Tags(
        tag(answer, "status", BYTES), tag(answer, "entries", BYTES),
        tag(entry, "message_id", BYTES), tag(entry, "status", BYTES),
    )  # fmt: skip


_SENDS: Final = _tags(wire.SendMessageResponse, wire.SendResultEntry)
_TRANSACTION_ID: Final = tag(wire.SendResultEntry, "transaction_id", BYTES)
_OFFSET: Final = tag(wire.SendResultEntry, "offset", NUMBER)
_RECALL_HANDLE: Final = tag(wire.SendResultEntry, "recall_handle", BYTES)
_ACKS: Final = _tags(wire.AckMessageResponse, wire.AckMessageResultEntry)
_HANDLE: Final = tag(wire.AckMessageResultEntry, "receipt_handle", BYTES)


class SendResult(NamedTuple):
    """Result of one message: a SendResultEntry."""

    status: wire.Status
    message_id: str = ""
    transaction_id: str = ""
    offset: int = 0
    recall_handle: str = ""


class AckResult(NamedTuple):
    """Result of one acknowledgement: an AckMessageResultEntry."""

    status: wire.Status
    message_id: str
    receipt_handle: str


def encoded_sends(results: Sequence[SendResult]) -> bytes:
    """Return the SendMessageResponse with `results`."""
    return _answer(_SENDS, results, [_send(result) for result in results], "send status is empty")


def encoded_acks(results: Sequence[AckResult]) -> bytes:
    """Return the AckMessageResponse with `results`."""
    return _answer(_ACKS, results, [_ack(result) for result in results], "ack message result is empty")


def _answer(tags: _Tags, results: Sequence[SendResult | AckResult], entries: list[bytes], nothing: str) -> bytes:
    is_ok = bool(results) and all(result.status is OK for result in results)
    joint = OK if is_ok else joint_status({result.status.code for result in results}, nothing)
    return b"".join([_status(tags.status, joint), *[octets(tags.entry, entry) for entry in entries]])


def _send(result: SendResult) -> bytes:
    status, message_id, transaction_id, offset, recall_handle = result
    entry = _status(_SENDS.entry_status, status)
    if message_id:
        entry += text(_SENDS.message_id, message_id)
    if transaction_id:
        entry += text(_TRANSACTION_ID, transaction_id)
    if offset:
        entry += _OFFSET + number(offset)
    return entry + text(_RECALL_HANDLE, recall_handle) if recall_handle else entry


def _ack(result: AckResult) -> bytes:
    status, message_id, handle = result
    entry = text(_ACKS.message_id, message_id) if message_id else b""
    if handle:
        entry += text(_HANDLE, handle)
    return entry + _status(_ACKS.entry_status, status)


def _status(tag: bytes, status: wire.Status) -> bytes:
    return octets(tag, _OK if status is OK else status.SerializeToString())
