"""Copies of messages: their properties, and which of them one request may hold.

A copy keeps id, keys, tag, user properties, the body as it is stored, flag and number of deliveries.  A delayed
message is copied when it has been delivered, without its delay.  A message of a transaction is copied when it is
committed: readers of real topics see no others.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from hashlib import sha1
from typing import Final

from replicate.protocol.marks import MARK, ORIGIN, Mark, check_of, is_wanted, mark_in, origin_in
from replicate.protocol.origins import stream_name
from sprocket.client.compression import Compression, compress
from sprocket.client.message import ReceivedMessage
from sprocket.common.limits import MAX_BATCH_MESSAGES
from sprocket.remoting.message import properties as names
from sprocket.remoting.message.record import COMPRESSION_MASK, SysFlag
from sprocket.remoting.message.topic_names import RETRY_PREFIX

_KEPT_FLAGS: Final = int(SysFlag.COMPRESSED) | COMPRESSION_MASK
# Properties that the source's broker has added; the target's adds its own.
_OF_SOURCE: Final = frozenset(
    {names.CLUSTER, names.MSG_REGION, names.TRACE_ON, names.MIN_OFFSET, names.MAX_OFFSET, MARK, ORIGIN}
)
_NOT_COPIED: Final = (names.NOT_CARRIED | _OF_SOURCE) - {names.RETRY_TOPIC, names.INNER_MULTI_DISPATCH}
# Messages with one of these are not sent in a batch.
_ALONE: Final = frozenset({names.INNER_MULTI_DISPATCH, names.PRIORITY, names.LITE_TOPIC})
# Bytes of a record beside body, properties and topic, about.
_RECORD_BYTES: Final = 128
_MAX_STREAM: Final = 80
# That of producers.  Source: RocketMQ, `DefaultMQProducer`, `rocketmq.message.compressLevel`.
_LEVEL: Final = 5


@dataclass(frozen=True, slots=True)
class SourceQueue:
    """Queue of the source, as marks name it."""

    cluster: str
    topic: str
    broker_name: str
    queue_id: int

    def stream(self, epoch: int) -> str:
        """Return the name under which the target numbers the queue's messages."""
        text = f"{self.cluster}/{epoch}/{self.queue_id}/{self.broker_name}"
        return text if len(text.encode()) <= _MAX_STREAM else sha1(text.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Copy:
    """One message to send; `offset` is that of the original."""

    offset: int
    body: bytes
    properties: str
    flag: int
    sys_flag: int
    born_ms: int
    stored_ms: int
    check: str
    reconsume_times: int
    is_alone: bool

    @property
    def size_bytes(self) -> int:
        """Bytes that it takes in a batch, at most; characters count as bytes."""
        return len(self.body) + len(self.properties) + _RECORD_BYTES


@dataclass(frozen=True, slots=True)
class Portion:
    """Messages of one request, in order, and what came before, between and after them.

    After the request the queue goes on at `next_offset`.  `echoes` are (offset here, offset in the target's queue) of
    messages that came from that very queue.
    """

    copies: Sequence[Copy]
    next_offset: int
    taken: int
    echoes: Sequence[tuple[int, int]]


def copy_of(message: ReceivedMessage, queue: SourceQueue, mark: Mark | None, epoch: int) -> Copy:
    """Return the copy of a message of `queue`, which has `mark` if it is a copy itself."""
    kept = names.parse_for_copy(message.stored_properties)
    properties = {name: value for name, value in kept.items() if name not in _NOT_COPIED}
    if names.LITE_TOPIC in properties:
        properties.pop(names.INNER_MULTI_DISPATCH, None)  # the target's broker adds it
    key = properties.setdefault(names.UNIQ_KEY, message.offset_message_id)
    path = (*(() if mark is None else mark.path), queue.cluster)
    check = check_of(queue.topic, key)
    properties[MARK] = Mark(path, check, queue.broker_name, queue.queue_id, message.queue_offset).encode()
    origin = None if mark is None else origin_in(mark, message.stored_properties)
    if origin is not None:
        properties[ORIGIN] = origin.encode()
    properties[names.IDEMPOTENCE_ID] = names.sequence_id(queue.stream(epoch), message.queue_offset)
    is_alone = queue.topic.startswith(RETRY_PREFIX) or not message.stored_body or not _ALONE.isdisjoint(properties)
    return Copy(
        message.queue_offset, message.stored_body, names.encode(properties), message.flag,
        message.sys_flag & _KEPT_FLAGS, message.born_timestamp_ms, message.store_timestamp_ms, check,
        message.reconsume_times, is_alone,
    )  # fmt: skip


def _packed(copy: Copy) -> Copy:
    """Return the copy with its body compressed by zlib, which all of RocketMQ's clients read."""
    if not copy.body or copy.sys_flag & SysFlag.COMPRESSED:
        return copy
    body, flags = compress(copy.body, Compression.ZLIB, _LEVEL)
    return replace(copy, body=body, sys_flag=flags)


def portion(
    messages: Iterable[ReceivedMessage], queue: SourceQueue, target: SourceQueue, epoch: int, *,
    forwards: bool, max_bytes: int, max_messages: int = MAX_BATCH_MESSAGES, compresses: bool = False,
) -> Portion:  # fmt: skip
    """Return what one request to the queue `target` takes of `messages`, which are in order: at least one of them.

    A batch has one kind of compression.  With `compresses` the bodies that are not compressed yet become so, unless all
    together would grow.  A message that is not sent in a batch goes alone, in its place.
    """
    copies: list[Copy] = []
    originals: list[Copy] = []
    echoes: list[tuple[int, int]] = []
    size_bytes = taken = next_offset = 0
    for message in messages:
        mark = mark_in(queue.topic, message.stored_properties)
        if is_wanted(mark, queue.cluster, target.cluster, forwards=forwards):
            original = copy_of(message, queue, mark, epoch)
            copy = _packed(original) if compresses else original
            size_bytes += copy.size_bytes
            if copies and (
                size_bytes > max_bytes or len(copies) >= max_messages or not _fit(copies[0], copy)
            ):  # fmt: skip
                break
            copies.append(copy)
            originals.append(original)
        elif mark is not None and _source_of(mark, queue.topic) == target:
            echoes.append((message.queue_offset, mark.offset))
        taken += 1
        next_offset = message.queue_offset + 1
    if len({one.sys_flag for one in originals}) == 1 and _body_bytes(originals) < _body_bytes(copies):
        copies = originals
    return Portion(copies, next_offset, taken, echoes)


def mark_of(queue: SourceQueue, message: ReceivedMessage) -> Mark | None:
    """Return the mark of a copy of a message of `queue`; None for another message."""
    mark = mark_in(queue.topic, message.stored_properties)
    return mark if mark is not None and _source_of(mark, queue.topic) == queue else None


def origin_of(message: ReceivedMessage, queue: SourceQueue) -> tuple[str, int] | None:
    """Return the stream of a message of `queue`, and its number there; None if it does not say so."""
    mark = mark_in(queue.topic, message.stored_properties)
    if mark is None:
        return stream_of(queue), message.queue_offset
    origin = origin_in(mark, message.stored_properties)
    if origin is None:
        return None
    return stream_name(origin.cluster, origin.queue_id, origin.broker_name), origin.offset


def stream_of(queue: SourceQueue) -> str:
    """Return the stream of what applications send to a queue."""
    return stream_name(queue.cluster, queue.queue_id, queue.broker_name)


def _source_of(mark: Mark, topic: str) -> SourceQueue:
    return SourceQueue(mark.source, topic, mark.broker_name, mark.queue_id)


def _body_bytes(copies: Iterable[Copy]) -> int:
    return sum(len(copy.body) for copy in copies)


def _fit(first: Copy, other: Copy) -> bool:
    return not first.is_alone and not other.is_alone and first.sys_flag == other.sys_flag
