"""Usual messages in the bytes of a ReceiveMessageResponse, made without protobuf's objects; pure.

`proxy.convert.outgoing` says what an answer holds, and protobuf encodes it: a message costs several times the work
there.  So this file encodes the fields of the usual message.  It takes no compressed, delayed or transactional message,
none with a priority, and no dead letter.  docs/proxy.md has the figures.
Source of the encoding: protobuf's wire format, and the field numbers of `messaging.proto`.
"""

import hashlib
from functools import lru_cache
from typing import Any, Final

from proxy.convert.outgoing import COMPRESSED, address, resource
from proxy.convert.reserved import BORN_HOST, DLQ_ORIGIN_TOPIC, RESERVED, TRACE_CONTEXT
from sprocket.client.message import ReceivedMessage
from sprocket.grpc_wire import messaging_pb2 as wire
from sprocket.remoting.message import properties as names

# Properties of messages that are not usual.
_UNUSUAL: Final = frozenset(
    {names.DELAY, names.TIMER_DELIVER_MS, names.TIMER_DELAY_SEC, names.TRANSACTION_PREPARED, DLQ_ORIGIN_TOPIC}
    | {names.TIMER_DELAY_MS, names.PRIORITY, names.LITE_TOPIC}
)
# Wire types.
_NUMBER, _BYTES = 0, 2
# Times up to here, ms since the epoch, and other numbers of a usual message.
_TIME_LIMIT: Final = 1 << 45
_NUMBER_LIMIT: Final = 1 << 31
_KNOWN_ADDRESSES: Final = 1024


def _varint(value: int) -> bytes:
    """Return a number that is not negative as protobuf writes it."""
    parts = bytearray()
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    parts.append(value)
    return bytes(parts)


def _tag(message: Any, name: str, wire_type: int) -> bytes:
    """Return what stands before the value of a field."""
    return _varint(message.DESCRIPTOR.fields_by_name[name].number << 3 | wire_type)


# Lengths, and most other numbers, without a loop.
_VARINTS: Final = [_varint(value) for value in range(4096)]
_FEW: Final = len(_VARINTS)

_MESSAGE: Final = _tag(wire.ReceiveMessageResponse, "message", _BYTES)
_TOPIC: Final = _tag(wire.Message, "topic", _BYTES)
_USER_PROPERTY: Final = _tag(wire.Message, "user_properties", _BYTES)
_SYSTEM: Final = _tag(wire.Message, "system_properties", _BYTES)
_BODY: Final = _tag(wire.Message, "body", _BYTES)

_ENTRY: Final = wire.Message.DESCRIPTOR.fields_by_name["user_properties"].message_type
_NAME: Final = _varint(_ENTRY.fields_by_name["key"].number << 3 | _BYTES)
_VALUE: Final = _varint(_ENTRY.fields_by_name["value"].number << 3 | _BYTES)


def _system(name: str, wire_type: int) -> bytes:
    return _tag(wire.SystemProperties, name, wire_type)


_TAG: Final = _system("tag", _BYTES)
_KEY: Final = _system("keys", _BYTES)
_MESSAGE_ID: Final = _system("message_id", _BYTES)
_DIGEST: Final = _system("body_digest", _BYTES)
_BORN: Final = _system("born_timestamp", _BYTES)
_BORN_HOST: Final = _system("born_host", _BYTES)
_STORED: Final = _system("store_timestamp", _BYTES)
_STORE_HOST: Final = _system("store_host", _BYTES)
_HANDLE: Final = _system("receipt_handle", _BYTES)
_QUEUE_ID: Final = _system("queue_id", _NUMBER)
_QUEUE_OFFSET: Final = _system("queue_offset", _NUMBER)
_ATTEMPT: Final = _system("delivery_attempt", _NUMBER)
_GROUP: Final = _system("message_group", _BYTES)
_TRACE: Final = _system("trace_context", _BYTES)

# All before the 32 digits of the checksum.
_MD5_DIGITS: Final = 32
_DIGEST_HEAD: Final = wire.Digest(type=wire.MD5, checksum="0" * _MD5_DIGITS).SerializeToString()[:-_MD5_DIGITS]
_MD5: Final = _DIGEST + _varint(len(_DIGEST_HEAD) + _MD5_DIGITS) + _DIGEST_HEAD
_NORMAL: Final = wire.SystemProperties(body_encoding=wire.IDENTITY, message_type=wire.NORMAL).SerializeToString()
_FIFO: Final = wire.SystemProperties(body_encoding=wire.IDENTITY, message_type=wire.FIFO).SerializeToString()
_SECONDS: Final = _varint(1 << 3 | _NUMBER)
# The second field of a Timestamp, by milliseconds; absent for 0.
_NANOS: Final = [b"", *(_varint(2 << 3 | _NUMBER) + _varint(ms * 1_000_000) for ms in range(1, 1000))]


def encode_received(message: ReceivedMessage, topic: bytes, handle: str) -> bytes | None:
    """Return the answer's part with `message`; None unless it is a usual message.

    `topic` is from `encoded_topic`; `handle` is the receipt handle.
    """
    properties = message.properties
    if message.sys_flag & COMPRESSED or not _UNUSUAL.isdisjoint(properties):
        return None
    queue_id, offset, attempt = message.queue.queue_id, message.queue_offset, message.reconsume_times + 1
    born_ms, stored_ms, message_id = message.born_timestamp_ms, message.store_timestamp_ms, message.message_id
    said_host = properties.get(BORN_HOST, "").strip()
    if not (
        0 <= born_ms < _TIME_LIMIT and 0 <= stored_ms < _TIME_LIMIT and 0 <= queue_id < _NUMBER_LIMIT
        and offset >= 0 and 0 < attempt < _NUMBER_LIMIT and message_id
    ):  # fmt: skip
        return None
    body = message.stored_body
    digest = hashlib.md5(body, usedforsecurity=False).hexdigest().upper().encode()
    group = properties.get(names.SHARDING_KEY)
    system = b"".join((
        _before_id(properties), _text(_MESSAGE_ID, message_id), _MD5, digest, _NORMAL if group is None else _FIFO,
        _time(_BORN, born_ms),
        _text(_BORN_HOST, said_host) if said_host else _born_host(message.born_host), _time(_STORED, stored_ms),
        _store_host(message.store_host), _text(_HANDLE, handle),
        _QUEUE_ID + _number(queue_id) if queue_id else b"", _QUEUE_OFFSET, _number(offset), _ATTEMPT, _number(attempt),
        b"" if group is None else _text(_GROUP, group),
        _text(_TRACE, properties[TRACE_CONTEXT]) if TRACE_CONTEXT in properties else b"",
    ))  # fmt: skip
    own = b"".join([_entry(name, value) for name, value in properties.items() if name not in RESERVED])
    head = b"".join((topic, own, _SYSTEM, _number(len(system)), system))
    if body:
        head += _BODY + _number(len(body))
    return b"".join((_MESSAGE, _number(len(head) + len(body)), head, body))


def encoded_topic(topic: str) -> bytes:
    """Return the field with the topic of messages."""
    name = resource(topic).SerializeToString()
    return _TOPIC + _number(len(name)) + bytes(name)


def _before_id(properties: dict[str, str]) -> bytes:
    tag, keys = properties.get(names.TAGS), properties.get(names.KEYS)
    if tag is None and keys is None:
        return b""
    parts = [] if tag is None else [_text(_TAG, tag)]
    return b"".join(parts + [_text(_KEY, key) for key in (() if keys is None else keys.split(" "))])


def _entry(name: str, value: str) -> bytes:
    entry = _text(_NAME, name) + _text(_VALUE, value)
    return _USER_PROPERTY + _number(len(entry)) + entry


def _number(value: int) -> bytes:
    return _VARINTS[value] if value < _FEW else _varint(value)


def _text(tag: bytes, text: str) -> bytes:
    value = text.encode()
    return tag + _number(len(value)) + value


@lru_cache(_KNOWN_ADDRESSES)
def _born_host(host: tuple[str, int]) -> bytes:
    return _text(_BORN_HOST, host[0])


@lru_cache(_KNOWN_ADDRESSES)
def _store_host(host: tuple[str, int]) -> bytes:
    return _text(_STORE_HOST, address(*host))


def _time(tag: bytes, milliseconds: int) -> bytes:
    seconds, ms = divmod(milliseconds, 1000)
    value = _second(seconds) + _NANOS[ms]
    return tag + _VARINTS[len(value)] + value


@lru_cache(16)
def _second(seconds: int) -> bytes:
    return _SECONDS + _varint(seconds) if seconds else b""
