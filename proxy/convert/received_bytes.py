"""Usual messages in the bytes of a ReceiveMessageResponse, made without protobuf's objects; pure.

`proxy.convert.outgoing` says what an answer holds, and protobuf encodes it: a message costs several times the work
there.  So this file encodes the fields of the usual message.  It takes no compressed, delayed or transactional message,
none with a priority, and no dead letter.  docs/proxy.md has the figures.
"""

import hashlib
from functools import lru_cache
from typing import Final

from proxy.convert.outgoing import COMPRESSED, address, resource
from proxy.convert.reserved import BORN_HOST, DLQ_ORIGIN_TOPIC, RESERVED, TRACE_CONTEXT
from sprocket.client.message import ReceivedMessage
from sprocket.grpc_wire import messaging_pb2 as wire
from sprocket.grpc_wire.encoding import BYTES, NUMBER, VARINTS, number, octets, tag, text, varint
from sprocket.remoting.message import properties as names

# Properties of messages that are not usual.
_UNUSUAL: Final = frozenset(
    {names.DELAY, names.TIMER_DELIVER_MS, names.TIMER_DELAY_SEC, names.TRANSACTION_PREPARED, DLQ_ORIGIN_TOPIC}
    | {names.TIMER_DELAY_MS, names.PRIORITY, names.LITE_TOPIC}
)
# Times up to here, ms since the epoch, and other numbers of a usual message.
_TIME_LIMIT: Final = 1 << 45
_NUMBER_LIMIT: Final = 1 << 31
_KNOWN_ADDRESSES: Final = 1024


_MESSAGE: Final = tag(wire.ReceiveMessageResponse, "message", BYTES)
_TOPIC: Final = tag(wire.Message, "topic", BYTES)
_USER_PROPERTY: Final = tag(wire.Message, "user_properties", BYTES)
_SYSTEM: Final = tag(wire.Message, "system_properties", BYTES)
_BODY: Final = tag(wire.Message, "body", BYTES)

_ENTRY: Final = wire.Message.DESCRIPTOR.fields_by_name["user_properties"].message_type
_NAME: Final = varint(_ENTRY.fields_by_name["key"].number << 3 | BYTES)
_VALUE: Final = varint(_ENTRY.fields_by_name["value"].number << 3 | BYTES)


def _system(name: str, wire_type: int) -> bytes:
    return tag(wire.SystemProperties, name, wire_type)


_TAG: Final = _system("tag", BYTES)
_KEY: Final = _system("keys", BYTES)
_MESSAGE_ID: Final = _system("message_id", BYTES)
_DIGEST: Final = _system("body_digest", BYTES)
_BORN: Final = _system("born_timestamp", BYTES)
_BORN_HOST: Final = _system("born_host", BYTES)
_STORED: Final = _system("store_timestamp", BYTES)
_STORE_HOST: Final = _system("store_host", BYTES)
_HANDLE: Final = _system("receipt_handle", BYTES)
_QUEUE_ID: Final = _system("queue_id", NUMBER)
_QUEUE_OFFSET: Final = _system("queue_offset", NUMBER)
_ATTEMPT: Final = _system("delivery_attempt", NUMBER)
_GROUP: Final = _system("message_group", BYTES)
_TRACE: Final = _system("trace_context", BYTES)

# All before the 32 digits of the checksum.
_MD5_DIGITS: Final = 32
_DIGEST_HEAD: Final = wire.Digest(type=wire.MD5, checksum="0" * _MD5_DIGITS).SerializeToString()[:-_MD5_DIGITS]
_MD5: Final = _DIGEST + varint(len(_DIGEST_HEAD) + _MD5_DIGITS) + _DIGEST_HEAD
_NORMAL: Final = wire.SystemProperties(body_encoding=wire.IDENTITY, message_type=wire.NORMAL).SerializeToString()
_FIFO: Final = wire.SystemProperties(body_encoding=wire.IDENTITY, message_type=wire.FIFO).SerializeToString()
_SECONDS: Final = varint(1 << 3 | NUMBER)
# The second field of a Timestamp, by milliseconds; absent for 0.
_NANOS: Final = [b"", *(varint(2 << 3 | NUMBER) + varint(ms * 1_000_000) for ms in range(1, 1000))]


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
        _before_id(properties), text(_MESSAGE_ID, message_id), _MD5, digest, _NORMAL if group is None else _FIFO,
        _time(_BORN, born_ms),
        text(_BORN_HOST, said_host) if said_host else _born_host(message.born_host), _time(_STORED, stored_ms),
        _store_host(message.store_host), text(_HANDLE, handle),
        _QUEUE_ID + number(queue_id) if queue_id else b"", _QUEUE_OFFSET, number(offset), _ATTEMPT, number(attempt),
        b"" if group is None else text(_GROUP, group),
        text(_TRACE, properties[TRACE_CONTEXT]) if TRACE_CONTEXT in properties else b"",
    ))  # fmt: skip
    own = b"".join([_entry(name, value) for name, value in properties.items() if name not in RESERVED])
    head = b"".join((topic, own, _SYSTEM, number(len(system)), system))
    if body:
        head += _BODY + number(len(body))
    return b"".join((_MESSAGE, number(len(head) + len(body)), head, body))


def encoded_topic(topic: str) -> bytes:
    """Return the field with the topic of messages."""
    return octets(_TOPIC, resource(topic).SerializeToString())


def _before_id(properties: dict[str, str]) -> bytes:
    tag, keys = properties.get(names.TAGS), properties.get(names.KEYS)
    if tag is None and keys is None:
        return b""
    parts = [] if tag is None else [text(_TAG, tag)]
    return b"".join(parts + [text(_KEY, key) for key in (() if keys is None else keys.split(" "))])


def _entry(name: str, value: str) -> bytes:
    return octets(_USER_PROPERTY, text(_NAME, name) + text(_VALUE, value))


@lru_cache(_KNOWN_ADDRESSES)
def _born_host(host: tuple[str, int]) -> bytes:
    return text(_BORN_HOST, host[0])


@lru_cache(_KNOWN_ADDRESSES)
def _store_host(host: tuple[str, int]) -> bytes:
    return text(_STORE_HOST, address(*host))


def _time(tag: bytes, milliseconds: int) -> bytes:
    seconds, ms = divmod(milliseconds, 1000)
    value = _second(seconds) + _NANOS[ms]
    return tag + VARINTS[len(value)] + value


@lru_cache(16)
def _second(seconds: int) -> bytes:
    return _SECONDS + varint(seconds) if seconds else b""
