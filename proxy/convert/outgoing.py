"""Messages from a broker as gRPC clients get them, in protobuf's wire format; pure.

They are encoded without protobuf's objects, which cost several times the work.  The compiled engine encodes the usual
message; docs/proxy.md has the figures.
Source: RocketMQ 5.5.0, `GrpcConverter`.
"""

import hashlib
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final

from proxy.convert.reserved import BORN_HOST, DLQ_ORIGIN_MESSAGE_ID, DLQ_ORIGIN_TOPIC, RESERVED, TRACE_CONTEXT
from sprocket.client.errors import BodyUnreadable
from sprocket.client.message import ReceivedMessage
from sprocket.engine.choice import native
from sprocket.grpc_wire import messaging_pb2 as wire
from sprocket.grpc_wire.encoding import BYTES, NANOS, NUMBER, SECONDS, encoded_time, number, octets, tag, text, varint
from sprocket.remoting.message import properties as names
from sprocket.remoting.message.message_type import MessageType, priority_of, type_of
from sprocket.remoting.message.record import SysFlag

# Returns the part of an answer with a message of a topic, which `encoded_topic` encoded.  The others are its receipt
# handle, None if it was not popped, and the time now, ms since the epoch.
Encode = Callable[[ReceivedMessage, bytes, str | None, int], bytes]

_native: Final = native("sprocket.grpc_wire.message_writer_native")
# The body is compressed.
_COMPRESSED: Final = int(SysFlag.COMPRESSED)
_GZIP_MAGIC: Final = b"\x1f\x8b"
_KNOWN: Final = 1024
_MD5_DIGITS: Final = 32

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
_BORN: Final = _system("born_timestamp", BYTES)
_BORN_HOST: Final = _system("born_host", BYTES)
_STORED: Final = _system("store_timestamp", BYTES)
_STORE_HOST: Final = _system("store_host", BYTES)
_DELIVERY: Final = _system("delivery_timestamp", BYTES)
_HANDLE: Final = _system("receipt_handle", BYTES)
_QUEUE_ID: Final = _system("queue_id", NUMBER)
_QUEUE_OFFSET: Final = _system("queue_offset", NUMBER)
_ATTEMPT: Final = _system("delivery_attempt", NUMBER)
_GROUP: Final = _system("message_group", BYTES)
_TRACE: Final = _system("trace_context", BYTES)
_DEAD_LETTER: Final = _system("dead_letter_queue", BYTES)
_LITE_TOPIC: Final = _system("lite_topic", BYTES)
_PRIORITY: Final = _system("priority", NUMBER)

# All of the digest before the digits of the checksum.
_DIGEST_HEAD: Final = wire.Digest(type=wire.MD5, checksum="0" * _MD5_DIGITS).SerializeToString()[:-_MD5_DIGITS]
_MD5: Final = _system("body_digest", BYTES) + varint(len(_DIGEST_HEAD) + _MD5_DIGITS) + _DIGEST_HEAD
# Encoding of the body and type of the message.
_KINDS: Final = {
    (encoding, kind): wire.SystemProperties(
        body_encoding=encoding, message_type=wire.MessageType.Value(kind)
    ).SerializeToString()
    for encoding in (wire.IDENTITY, wire.GZIP)
    for kind in MessageType
}


def encoder(part: Any, engine: Any = _native) -> Encode:
    """Return the encoder of the parts of an answer that hold a message; `part` is their class.

    `engine` is the compiled module, None for pure Python.
    """
    part_tag = tag(part, "message", BYTES)

    def encode_any(message: ReceivedMessage, topic: bytes, handle: str | None, now_ms: int) -> bytes:
        return octets(part_tag, _encoded(message, topic, handle, now_ms))

    if engine is None:
        return encode_any
    write = engine.MessageWriter(
        _tags(part_tag), _roles(engine), RESERVED, hashlib.md5, (_born_host, _store_host), _COMPRESSED
    ).write

    def encode(message: ReceivedMessage, topic: bytes, handle: str | None, now_ms: int) -> bytes:
        found: bytes | None = write(message, topic, handle)
        return encode_any(message, topic, handle, now_ms) if found is None else found

    return encode


def outgoing(message: ReceivedMessage, topic: str, now_ms: int) -> wire.Message:
    """Return `message` of `topic` without a receipt handle, for commands to a client."""
    found: wire.Message = wire.Message.FromString(_encoded(message, encoded_topic(topic), None, now_ms))
    return found


@lru_cache(_KNOWN)
def encoded_topic(name: str) -> bytes:
    """Return the field with the topic of messages; ``namespace%name`` has two parts.  Source: `NamespaceUtil`."""
    namespace, separator, bare = name.rpartition("%")
    if not separator or not namespace or name.startswith("%"):
        resource = wire.Resource(name=name)
    else:
        resource = wire.Resource(resource_namespace=namespace, name=bare)
    return octets(_TOPIC, resource.SerializeToString())


def _encoded(message: ReceivedMessage, topic: bytes, handle: str | None, now_ms: int) -> bytes:
    """Return a wire.Message.

    A body that a gRPC client compressed stays as it is.  What other clients compressed is inflated, because gRPC
    clients know gzip alone; if that fails, it is delivered as it is.
    """
    properties = message.properties
    body, encoding = _body(message)
    digest = hashlib.md5(body, usedforsecurity=False).hexdigest().upper().encode()
    queue_id, said_host = message.queue.queue_id, properties.get(BORN_HOST, "").strip()
    system = b"".join((
        _before_id(properties), text(_MESSAGE_ID, message.message_id), _MD5, digest,
        _KINDS[encoding, type_of(properties.get)],
        octets(_BORN, encoded_time(message.born_timestamp_ms)),
        text(_BORN_HOST, said_host) if said_host else _born_host(message.born_host),
        octets(_STORED, encoded_time(message.store_timestamp_ms)), _store_host(message.store_host),
        b"" if handle is None else text(_HANDLE, handle),
        _QUEUE_ID + number(queue_id) if queue_id else b"",
        _QUEUE_OFFSET, number(message.queue_offset), _ATTEMPT, number(message.reconsume_times + 1),
        _optional(_GROUP, properties.get(names.SHARDING_KEY)), _optional(_TRACE, properties.get(TRACE_CONTEXT)),
        _unusual(properties, now_ms),
    ))  # fmt: skip
    own = [_entry(name, value) for name, value in properties.items() if name not in RESERVED]
    parts = [topic, *own, _SYSTEM, number(len(system)), system]
    if body:
        parts += [_BODY, number(len(body)), body]
    return b"".join(parts)


def _body(message: ReceivedMessage) -> "tuple[bytes, wire.Encoding]":
    if not message.sys_flag & _COMPRESSED:
        return message.body, wire.IDENTITY
    raw = message.stored_body
    if raw.startswith(_GZIP_MAGIC):
        return raw, wire.GZIP
    try:
        return message.body, wire.IDENTITY
    except BodyUnreadable:
        return raw, wire.GZIP


def _before_id(properties: dict[str, str]) -> bytes:
    keys = properties.get(names.KEYS)
    parts = [_optional(_TAG, properties.get(names.TAGS))]
    return b"".join(parts + [text(_KEY, key) for key in (() if keys is None else keys.split(" "))])


def _optional(tag: bytes, value: str | None) -> bytes:
    return b"" if value is None else text(tag, value)


def _entry(name: str, value: str) -> bytes:
    return octets(_USER_PROPERTY, text(_NAME, name) + text(_VALUE, value))


# Properties of messages that are not usual: their types, and what `_unusual` encodes.
_UNUSUAL: Final = frozenset(
    {names.DELAY, names.TIMER_DELIVER_MS, names.TIMER_DELAY_SEC, names.TRANSACTION_PREPARED, DLQ_ORIGIN_TOPIC}
    | {names.TIMER_DELAY_MS, names.PRIORITY, names.LITE_TOPIC}
)


def _unusual(properties: dict[str, str], now_ms: int) -> bytes:
    """Return the fields of delayed messages, dead letters, and messages with a lite topic or a priority."""
    if _UNUSUAL.isdisjoint(properties):
        return b""
    fields = _delivery_time(properties, now_ms)
    if DLQ_ORIGIN_TOPIC in properties and DLQ_ORIGIN_MESSAGE_ID in properties:
        origin = wire.DeadLetterQueue(topic=properties[DLQ_ORIGIN_TOPIC], message_id=properties[DLQ_ORIGIN_MESSAGE_ID])
        fields += octets(_DEAD_LETTER, origin.SerializeToString())
    fields += _optional(_LITE_TOPIC, properties.get(names.LITE_TOPIC))
    priority = priority_of(properties.get(names.PRIORITY))
    return fields if priority is None else fields + _PRIORITY + number(priority)


def _delivery_time(properties: dict[str, str], now_ms: int) -> bytes:
    """Return the time of delivery of a delayed message.  Text that is no number, which clients may send, is no time."""
    delay_s, deliver_ms = properties.get(names.TIMER_DELAY_SEC), properties.get(names.TIMER_DELIVER_MS)
    if delay_s is not None and delay_s.isdecimal() and len(delay_s) < 10:
        return octets(_DELIVERY, encoded_time(now_ms + int(delay_s) * 1000))
    if delay_s is None and deliver_ms is not None and deliver_ms.isdecimal() and len(deliver_ms) < 15:
        return octets(_DELIVERY, encoded_time(int(deliver_ms)))
    return b""


@lru_cache(_KNOWN)
def _born_host(host: tuple[str, int]) -> bytes:
    return text(_BORN_HOST, host[0])


@lru_cache(_KNOWN)
def _store_host(host: tuple[str, int]) -> bytes:
    address, port = host
    return text(_STORE_HOST, f"[{address}]:{port}" if ":" in address else f"{address}:{port}")


# What the compiled engine needs


def _tags(part_tag: bytes) -> dict[str, bytes]:
    """Return what stands before the fields of the usual message, by the names of the compiled engine."""
    return {
        "part": part_tag, "user_property": _USER_PROPERTY, "name": _NAME, "value": _VALUE, "system": _SYSTEM,
        "body": _BODY, "tag": _TAG, "key": _KEY, "message_id": _MESSAGE_ID, "md5": _MD5,
        "normal": _KINDS[wire.IDENTITY, MessageType.NORMAL], "fifo": _KINDS[wire.IDENTITY, MessageType.FIFO],
        "born": _BORN, "born_host": _BORN_HOST, "stored": _STORED, "handle": _HANDLE, "queue_id": _QUEUE_ID,
        "queue_offset": _QUEUE_OFFSET, "attempt": _ATTEMPT, "group": _GROUP, "trace": _TRACE, "seconds": SECONDS,
        "nanos": NANOS,
    }  # fmt: skip


def _roles(engine: Any) -> dict[str, int]:
    """Return what the properties with these names are to the compiled engine."""
    special = {
        names.UNIQ_KEY: engine.MESSAGE_ID, names.TAGS: engine.TAG, names.KEYS: engine.KEYS,
        BORN_HOST: engine.BORN_HOST, TRACE_CONTEXT: engine.TRACE, names.SHARDING_KEY: engine.GROUP,
    }  # fmt: skip
    return {**dict.fromkeys(_UNUSUAL, engine.UNUSUAL), **special}
