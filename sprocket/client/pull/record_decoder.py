"""Decoder of messages from the body of a PULL response: consecutive records.

Source: RocketMQ 5.3.3, `MessageDecoder.decodesBatch`, `clientDecode`, `decodeMessage` (inner batches).
The layout is declared in `sprocket.remoting.message.record`.
"""

import struct
from collections.abc import Iterator
from typing import Any

from sprocket.client.errors import BodyUnreadable
from sprocket.client.message import MessageQueue, ReceivedMessage
from sprocket.common.errors import ProtocolError
from sprocket.engine.choice import native
from sprocket.remoting.codec.java_text import java_text
from sprocket.remoting.message.record import FIXED_IPV4_RAW, HEAD, MAGIC_V1, MAGIC_V2, STORE_TIMESTAMP, TAIL, SysFlag

_FIXED = FIXED_IPV4_RAW
_FIXED_BYTES = FIXED_IPV4_RAW.size
# Plain numbers: an operation on an IntFlag costs a microsecond, and there are several per message.
_V6_FLAGS = int(SysFlag.BORN_HOST_V6 | SysFlag.STORE_HOST_V6)
_INNER_FLAGS = int(SysFlag.INNER_BATCH | SysFlag.NEED_UNWRAP)
_COMPRESSED = int(SysFlag.COMPRESSED)
_records = native("sprocket.client.pull.record_decoder_native")
if _records is not None and _records.LAYOUT != {
    "fixed_bytes": _FIXED_BYTES, "v6_flags": _V6_FLAGS, "inner_flags": _INNER_FLAGS
}:  # fmt: skip
    raise ImportError("the compiled engine has another layout of records than sprocket.remoting: run `make engine`")
# The compiled loop over usual records, if it is in use.
decode_run = None if _records is None else _records.RecordDecoder(ReceivedMessage).run
# The compiled loop takes offsets whose sum fits 64 bits.
_MAX_DELTA = 1 << 61
# A message inside a batch: total size, magic, body CRC, flag, body length.
_INNER_HEAD = struct.Struct(">iiiii")


def decode_records(
    data: bytes, queue: MessageQueue, offset_delta: int = 0, from_offset: int = 0
) -> list[ReceivedMessage]:
    """Return all messages of `data`, which lie in `queue`; `offset_delta` is added to their queue offsets.

    A batch in one record arrives whole; its messages before `from_offset` are left out.
    Raises ProtocolError for bytes that are not whole records.
    """
    messages: list[ReceivedMessage] = []
    position, end = 0, len(data)
    try:
        while position < end:
            if decode_run is not None and type(data) is bytes and abs(offset_delta) < _MAX_DELTA:
                position = decode_run(data, position, queue, queue.topic, offset_delta, messages)
                if position >= end:
                    break
            message = _decode_one(data, position, end, queue, offset_delta)
            position += message.size_bytes
            if message.sys_flag & _INNER_FLAGS == _INNER_FLAGS:
                messages.extend(_inner_messages(message, from_offset))
            else:
                messages.append(message)
    except (struct.error, IndexError) as error:
        raise ProtocolError("record", f"at byte {position} of {end}: {error}") from None
    return messages


def _decode_one(data: bytes, at: int, end: int, queue: MessageQueue, offset_delta: int) -> ReceivedMessage:
    if int.from_bytes(data[at + 36 : at + 40], "big") & _V6_FLAGS:
        fixed: tuple[Any, ...] = _fixed_with_ipv6(data, at)  # struct returns untyped values
        body_at = at + fixed[-1]
    else:
        fixed = (*_FIXED.unpack_from(data, at), _FIXED_BYTES)
        body_at = at + _FIXED_BYTES
    size, magic, _, _, flag, queue_offset, physical_offset, sys_flag, born_ms, born_host = fixed[:10]
    store_ms, store_host, reconsume_times, _, body_bytes = fixed[10:15]
    if magic == MAGIC_V1:
        topic_at = body_at + body_bytes + 1
    elif magic == MAGIC_V2:
        topic_at = body_at + body_bytes + 2
    else:
        raise ProtocolError("record", f"magic number {magic} at byte {at}")
    stop = at + size
    if body_bytes < 0 or stop > end or topic_at + 2 > stop:
        raise ProtocolError("record", f"size {size} with body of {body_bytes} bytes at byte {at} of {end}")
    topic_bytes = data[topic_at - 1] if magic == MAGIC_V1 else int.from_bytes(data[topic_at - 2 : topic_at], "big")
    properties_at = topic_at + topic_bytes + 2
    if properties_at + int.from_bytes(data[properties_at - 2 : properties_at], "big") > stop or properties_at > stop:
        raise ProtocolError("record", f"fields exceed the size of the record at byte {at}")
    topic = queue.topic
    if topic_bytes:
        stored = java_text(data[topic_at : topic_at + topic_bytes])
        topic = topic if stored == topic else stored
    return ReceivedMessage(
        topic=topic,
        queue=queue,
        queue_offset=queue_offset + offset_delta,
        physical_offset=physical_offset,
        body=data[body_at : body_at + body_bytes],
        raw_properties=data[properties_at:stop],
        flag=flag,
        sys_flag=sys_flag,
        born_timestamp_ms=born_ms,
        born_host=born_host,
        store_timestamp_ms=store_ms,
        store_host=store_host,
        reconsume_times=reconsume_times,
        size_bytes=size,
    )


def _fixed_with_ipv6(data: bytes, at: int) -> tuple[Any, ...]:
    """Return the fields of `_FIXED` and where the body begins, for a record with a host of 16 bytes."""
    head = HEAD.unpack_from(data, at)
    sys_flag = head[7]
    born_at = at + HEAD.size
    store_time_at = born_at + (20 if sys_flag & SysFlag.BORN_HOST_V6 else 8)
    store_at = store_time_at + STORE_TIMESTAMP.size
    tail_at = store_at + (20 if sys_flag & SysFlag.STORE_HOST_V6 else 8)
    (store_ms,) = STORE_TIMESTAMP.unpack_from(data, store_time_at)
    tail = TAIL.unpack_from(data, tail_at)
    hosts = data[born_at:store_time_at], store_ms, data[store_at:tail_at]
    return (*head, *hosts, *tail, tail_at + TAIL.size - at)


def _inner_messages(outer: ReceivedMessage, from_offset: int) -> list[ReceivedMessage]:
    """Return a batch's messages from `from_offset` on; the batch itself if its body is unreadable."""
    try:
        return [inner for inner in _unwrap(outer) if inner.queue_offset >= from_offset]
    except BodyUnreadable:
        return [outer]


def _unwrap(outer: ReceivedMessage) -> Iterator[ReceivedMessage]:
    """Return the messages inside a batch that a broker stored as one record."""
    data = outer.body
    position = 0
    index = 0
    while position < len(data):
        size, _, _, flag, body_bytes = _INNER_HEAD.unpack_from(data, position)
        body_at = position + _INNER_HEAD.size
        properties_at = body_at + body_bytes + 2
        if size < _INNER_HEAD.size + 2 or body_bytes < 0 or not properties_at <= position + size <= len(data):
            raise ProtocolError("record", f"message {index} of an inner batch leaves it")
        yield ReceivedMessage(
            topic=outer.topic,
            queue=outer.queue,
            queue_offset=outer.queue_offset + index,
            physical_offset=outer.physical_offset,
            body=data[body_at : body_at + body_bytes],
            raw_properties=data[properties_at : position + size],
            flag=flag,
            sys_flag=outer.sys_flag & ~_COMPRESSED,
            born_timestamp_ms=outer.born_timestamp_ms,
            born_host=outer._born_host,
            store_timestamp_ms=outer.store_timestamp_ms,
            store_host=outer._store_host,
            reconsume_times=outer.reconsume_times,
            size_bytes=size,
        )
        position += size
        index += 1
