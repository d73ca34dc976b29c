"""Messages as gRPC clients get them, made with protobuf's objects: what `proxy.convert.outgoing` must say too."""

import hashlib
from typing import Final

from proxy.convert.reserved import BORN_HOST, DLQ_ORIGIN_MESSAGE_ID, DLQ_ORIGIN_TOPIC, RESERVED, TRACE_CONTEXT
from sprocket.client.errors import BodyUnreadable
from sprocket.client.message import ReceivedMessage
from sprocket.grpc_wire import messaging_pb2 as wire
from sprocket.grpc_wire.times import timestamp
from sprocket.remoting.message import properties as names
from sprocket.remoting.message.message_type import priority_of, type_of
from sprocket.remoting.message.record import SysFlag

# The body is compressed.
COMPRESSED: Final = int(SysFlag.COMPRESSED)
_GZIP_MAGIC: Final = b"\x1f\x8b"


def resource(name: str) -> wire.Resource:
    """Return a topic or group; ``namespace%name`` has two parts.  Source: `NamespaceUtil`."""
    namespace, separator, bare = name.rpartition("%")
    if not separator or not namespace or name.startswith("%"):
        return wire.Resource(name=name)
    return wire.Resource(resource_namespace=namespace, name=bare)


def outgoing(message: ReceivedMessage, topic: str, handle: str | None, now_ms: int) -> wire.Message:
    """Return `message` of `topic`; `handle` is its receipt handle, if it was popped.

    A body that a gRPC client compressed stays as it is.  What other clients compressed is inflated, because gRPC
    clients know gzip alone; if that fails, it is delivered as it is.
    """
    properties = message.properties
    body, encoding = _body(message)
    system = wire.SystemProperties(
        message_id=message.message_id,
        body_digest=wire.Digest(type=wire.MD5, checksum=hashlib.md5(body, usedforsecurity=False).hexdigest().upper()),
        body_encoding=encoding,
        message_type=wire.MessageType.Value(type_of(properties.get)),
        born_timestamp=timestamp(message.born_timestamp_ms),
        born_host=properties.get(BORN_HOST, "").strip() or message.born_host[0],
        store_timestamp=timestamp(message.store_timestamp_ms),
        store_host=address(*message.store_host),
        queue_id=message.queue.queue_id,
        queue_offset=message.queue_offset,
        delivery_attempt=message.reconsume_times + 1,
    )
    if names.TAGS in properties:
        system.tag = properties[names.TAGS]
    if names.KEYS in properties:
        system.keys.extend(properties[names.KEYS].split(" "))
    if names.SHARDING_KEY in properties:
        system.message_group = properties[names.SHARDING_KEY]
    priority = priority_of(properties.get(names.PRIORITY))
    if priority is not None:
        system.priority = priority
    if names.LITE_TOPIC in properties:
        system.lite_topic = properties[names.LITE_TOPIC]
    if handle is not None:
        system.receipt_handle = handle
    if TRACE_CONTEXT in properties:
        system.trace_context = properties[TRACE_CONTEXT]
    _add_delivery_time(system, properties, now_ms)
    if DLQ_ORIGIN_TOPIC in properties and DLQ_ORIGIN_MESSAGE_ID in properties:
        origin = wire.DeadLetterQueue(topic=properties[DLQ_ORIGIN_TOPIC], message_id=properties[DLQ_ORIGIN_MESSAGE_ID])
        system.dead_letter_queue.CopyFrom(origin)
    own = {name: value for name, value in properties.items() if name not in RESERVED}
    return wire.Message(topic=resource(topic), user_properties=own, system_properties=system, body=body)


def _body(message: ReceivedMessage) -> "tuple[bytes, wire.Encoding]":
    if not message.sys_flag & COMPRESSED:
        return message.body, wire.IDENTITY
    raw = message.stored_body
    if raw.startswith(_GZIP_MAGIC):
        return raw, wire.GZIP
    try:
        return message.body, wire.IDENTITY
    except BodyUnreadable:
        return raw, wire.GZIP


def _add_delivery_time(system: wire.SystemProperties, properties: dict[str, str], now_ms: int) -> None:
    """Add the time of delivery of a delayed message.  Text that is no number, which any client may send, is no time."""
    delay_s, deliver_ms = properties.get(names.TIMER_DELAY_SEC), properties.get(names.TIMER_DELIVER_MS)
    if delay_s is not None and delay_s.isdecimal() and len(delay_s) < 10:
        system.delivery_timestamp.CopyFrom(timestamp(now_ms + int(delay_s) * 1000))
    elif delay_s is None and deliver_ms is not None and deliver_ms.isdecimal() and len(deliver_ms) < 15:
        system.delivery_timestamp.CopyFrom(timestamp(int(deliver_ms)))


def address(host: str, port: int) -> str:
    """Return ``host:port``."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
