"""Send requests: messages that are checked, have an id, are compressed, and have their properties encoded.

Source: RocketMQ 5.3.3, `Validators`, `DefaultMQProducerImpl.sendKernelImpl`, `tryToCompressMessage`,
`MessageBatch`, `MessageDecoder.encodeMessage`.
"""

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sprocket.client import arguments
from sprocket.client.compression import Compression, compress, lacking
from sprocket.client.connection.unique_id import derived_id
from sprocket.client.connection.wire_names import NO_NAMESPACE, WireNames
from sprocket.client.errors import IllegalArgument, IllegalMessage
from sprocket.client.message import Message
from sprocket.client.send.reply import Reply
from sprocket.client.send.send_header import SendHeader
from sprocket.common import limits
from sprocket.engine.choice import native
from sprocket.remoting.bodies.client import MessageQueue
from sprocket.remoting.codes import RequestCode
from sprocket.remoting.headers.send import SHARDING_QUEUES_FIELD
from sprocket.remoting.message import properties as names
from sprocket.remoting.message.message_type import MAX_PRIORITY
from sprocket.remoting.message.topic_names import AUTO_CREATE_TOPIC, RETRY_PREFIX

_native: Final = native("sprocket.client.send.sends_native")
# Code of requests with one message.
PLAIN = int(RequestCode.SEND_MESSAGE_V2)
# Total size, magic, body CRC, flag, body length; then the body, i16 length of properties, properties.
_BATCHED_HEAD = struct.Struct(">iiiii")


@dataclass(frozen=True, kw_only=True)
class SendSettings:
    """Settings of sends under RocketMQ's names.  Source: RocketMQ 5.3.3, `DefaultMQProducer`."""

    create_topic_key: str = AUTO_CREATE_TOPIC
    default_topic_queue_nums: int = 4
    send_msg_timeout_s: float = 3.0
    retry_times_when_send_failed: int = 2
    retry_another_broker_when_not_store_ok: bool = False
    send_latency_enable: bool = True
    max_message_size: int = limits.MAX_MESSAGE_BYTES
    compress_msg_body_over_howmuch: int = 4096
    compress_type: Compression = Compression.ZLIB
    compress_level: int = 5
    max_outstanding: int = 10_000  # backPressureForAsyncSendNum
    max_outstanding_bytes: int = 32 * 1024 * 1024
    auto_batch: bool = False  # gather messages that are sent at about the same time into batches
    batch_max_delay_ms: int = 10  # holdMs
    batch_max_bytes: int = 32 * 1024  # holdSize
    total_batch_max_bytes: int = 32 * 1024 * 1024  # totalHoldSize
    idempotent: bool = False  # a Sprocket broker stores each message id once, see docs/client.md

    def __post_init__(self) -> None:
        """Raises IllegalArgument."""
        arguments.check(self, _CHECKS)
        arguments.whole("compress_level", self.compress_level, *_COMPRESS_LEVELS[self.compress_type])
        if self.idempotent and self.auto_batch:
            raise IllegalArgument("idempotent and auto_batch exclude each other; set one of them")
        reason = lacking(self.compress_type)
        if reason is not None:
            raise IllegalArgument(f"compress_type {reason}")


# A frame must have room for a header beside the largest body.
_MAX_BODY_BYTES = limits.MAX_FRAME_BYTES - 256 * 1024
_COMPRESS_LEVELS = {Compression.ZLIB: (0, 9), Compression.LZ4: (0, 16), Compression.ZSTD: (1, 22)}
# Limits of batches are those of RocketMQ's `ProduceAccumulator`.
_CHECKS = {
    "create_topic_key": lambda _, value: arguments.check_topic(value),
    "default_topic_queue_nums": arguments.at_least(1, 65_535),
    "send_msg_timeout_s": arguments.timeout,
    "retry_times_when_send_failed": arguments.at_least(0),
    "retry_another_broker_when_not_store_ok": arguments.switch,
    "send_latency_enable": arguments.switch,
    "max_message_size": arguments.at_least(1, _MAX_BODY_BYTES),
    "compress_msg_body_over_howmuch": arguments.at_least(0),
    "compress_type": arguments.of_kind(Compression),
    "max_outstanding": arguments.at_least(1),
    "max_outstanding_bytes": arguments.at_least(1),
    "auto_batch": arguments.switch,
    "idempotent": arguments.switch,
    "batch_max_delay_ms": arguments.at_least(1, 30_000),
    "batch_max_bytes": arguments.at_least(1, 2 * 1024 * 1024),
    "total_batch_max_bytes": arguments.at_least(1),
}


class SendRequest:
    """One request to send: everything but the queue, which is chosen for each attempt."""

    __slots__ = (
        "body",
        "code",
        "flag",
        "max_reconsume_times",
        "message_id",
        "properties",
        "reconsume_times",
        "sys_flag",
        "topic",
    )

    def __init__(self, topic: str, body: bytes, properties: str, message_id: str, flag: int = 0) -> None:
        self.topic = topic
        self.body = body
        self.properties = properties
        self.message_id = message_id
        self.flag = flag
        self.sys_flag = 0
        self.code = PLAIN
        self.reconsume_times = 0
        self.max_reconsume_times: int | None = None

    def ext_fields(
        self,
        group: str,
        settings: SendSettings,
        queue: MessageQueue,
        now_ms: int,
        wire_names: WireNames = NO_NAMESPACE,
    ) -> dict[str, str]:
        """Return the fields of `SendMessageRequestHeaderV2` for one attempt, born at `now_ms`."""
        fields = {
            "a": wire_names.whole(group),
            "b": wire_names.whole(self.topic),
            "c": settings.create_topic_key,
            "d": str(settings.default_topic_queue_nums),
            "e": str(queue.queue_id),
            "f": str(self.sys_flag),
            "g": str(now_ms),
            "h": str(self.flag),
            "i": self.properties,
            "j": str(self.reconsume_times),
            "k": "false",
            "m": "true" if self.code == RequestCode.SEND_BATCH_MESSAGE else "false",
            "n": queue.broker_name,
        }
        if self.max_reconsume_times is not None:
            fields["l"] = str(self.max_reconsume_times)
        return fields


def header_to(
    queue: MessageQueue,
    group: str,
    settings: SendSettings,
    code: int = PLAIN,
    sharding_queues: int | None = None,
    wire_names: WireNames = NO_NAMESPACE,
) -> SendHeader:
    """Return the encoder of the requests of one code to `queue`, for a producer of `group`.

    `sharding_queues` is the number of queues that the messages' keys chose from.
    """
    request = SendRequest(queue.topic, b"", "", "")
    request.code = code
    fields = request.ext_fields(group, settings, queue, 0, wire_names)
    return SendHeader(code, fields | sharded(sharding_queues))


def sharded(queues: int | None) -> dict[str, str]:
    """Return the field that says from how many queues a sharding key chose; none without a key."""
    return {} if queues is None else {SHARDING_QUEUES_FIELD: str(queues)}


class IdempotentRequest(SendRequest):
    """Request of an idempotent producer.  One `queue_key` goes to one queue."""

    __slots__ = ("queue_key",)

    def __init__(self, request: SendRequest, queue_key: str) -> None:
        super().__init__(request.topic, request.body, request.properties, request.message_id, request.flag)
        self.sys_flag = request.sys_flag
        self.code = request.code
        self.queue_key = queue_key


CompiledRequest = Callable[[Message, Callable[[], str]], SendRequest | None]


def compiled_requests(settings: SendSettings, engine: Any = _native) -> CompiledRequest | None:
    """Return the compiled twin of `single_request`; it returns None for an unusual message.  None with pure Python."""
    preparer = request_preparer(settings, engine)
    request: CompiledRequest | None = None if preparer is None else preparer.request
    return request


def request_preparer(settings: SendSettings, engine: Any = _native) -> Any:
    """Return the compiled maker of the requests of usual messages; None with pure Python."""
    if engine is None or settings.idempotent:
        return None
    max_body_bytes = min(settings.max_message_size + 1, settings.compress_msg_body_over_howmuch)
    return engine.Preparer(Message, SendRequest, PLAIN, max_body_bytes)


def single_request(message: Message, settings: SendSettings, new_id: Callable[[], str]) -> SendRequest:
    """Return the send request of `message`, whose topic is already checked.  Raises IllegalMessage."""
    # Attributes may have been set since the message was made.
    body = message.body if type(message.body) is bytes else arguments.body(message.body)
    if not (body or message.keys):
        # With a key, it deletes that key of a compacted topic; brokers refuse it for other topics.
        raise IllegalMessage("the body is empty; a message carries at least one byte")
    if len(body) > settings.max_message_size:
        raise IllegalMessage(f"the body has {len(body)} bytes, at most {settings.max_message_size} (maxMessageSize)")
    message_id = derived_id(message.topic, message.unique_key) if message.unique_key else new_id()
    request = SendRequest(message.topic, body, properties_text(message, message_id), message_id, message.flag)
    if isinstance(message, Reply):
        request.code = int(RequestCode.SEND_REPLY_MESSAGE_V2)
        request.properties += names.encode(message.protocol_properties)
    if len(body) >= settings.compress_msg_body_over_howmuch:
        request.body, request.sys_flag = compress(body, settings.compress_type, settings.compress_level)
    if settings.idempotent and not isinstance(message, Reply):
        request.properties += names.encode({names.IDEMPOTENCE_ID: message_id})
        return IdempotentRequest(request, message.unique_key)
    return request


def batch_request(
    messages: Sequence[Message], settings: SendSettings, new_id: Callable[[], str], at_offset: int | None = None
) -> SendRequest:
    """Return `messages` as one request.  Raises IllegalMessage when they may not be one batch.

    All must have one topic, which is no retry topic, one `wait_store_ok`, and no delay.  With `at_offset` the first one
    must get that queue offset.
    """
    if not messages:
        raise IllegalMessage("a batch holds at least one message")
    first = messages[0]
    ids = []
    pieces = []
    for message in messages:
        _check_batched(message, first)
        message_id = derived_id(message.topic, message.unique_key) if message.unique_key else new_id()
        ids.append(message_id)
        text = properties_text(message, message_id)
        if settings.idempotent:
            text += names.encode({names.IDEMPOTENCE_ID: message_id})
        pieces.append(batched(message.body, text, message.flag))
    body = b"".join(pieces)
    if len(body) > settings.max_message_size:
        raise IllegalMessage(
            f"the batch has {len(body)} bytes, at most {settings.max_message_size} (maxMessageSize); send fewer at once"
        )
    properties = names.encode({names.UNIQ_KEY: new_id(), names.WAIT: "true" if first.wait_store_ok else "false"})
    if at_offset is not None:
        properties += names.encode({names.EXPECTED_OFFSET: str(at_offset)})
    request = SendRequest(first.topic, body, properties, ",".join(ids))
    request.code = int(RequestCode.SEND_BATCH_MESSAGE)
    return IdempotentRequest(request, first.unique_key) if settings.idempotent else request


def check_batchable(message: Message) -> None:
    """Raise IllegalMessage for a message that no kind of connection sends in a batch."""
    if message.is_delayed:
        raise IllegalMessage("a delayed message cannot be sent in a batch")
    if message.priority is not None:
        raise IllegalMessage("a message with a priority cannot be sent in a batch")
    if message.lite_topic:
        raise IllegalMessage("a message for a lite topic cannot be sent in a batch")


def _check_batched(message: Message, first: Message) -> None:
    if message.topic != first.topic:
        raise IllegalMessage(f"one batch has one topic, not both {first.topic} and {message.topic}")
    if message.topic.startswith(RETRY_PREFIX):
        raise IllegalMessage("messages to a retry topic cannot be sent in a batch")
    check_batchable(message)
    if isinstance(message, Reply):
        raise IllegalMessage("a reply cannot be sent in a batch")
    if message.wait_store_ok != first.wait_store_ok:
        raise IllegalMessage("all messages of a batch have the same wait_store_ok")
    if not (arguments.body(message.body) or message.keys):  # as `single_request`
        raise IllegalMessage("the body is empty; a message carries at least one byte")
    arguments.whole("flag", message.flag, -(1 << 31), (1 << 31) - 1, IllegalMessage)


def batched(body: bytes, properties: str, flag: int) -> bytes:
    """Return one message as it lies in the body of a batch; `properties` are encoded."""
    encoded = properties.encode()
    size = _BATCHED_HEAD.size + len(body) + 2 + len(encoded)
    head = _BATCHED_HEAD.pack(size, 0, 0, flag, len(body))
    return b"".join((head, body, len(encoded).to_bytes(2, "big"), encoded))


def properties_text(message: Message, message_id: str) -> str:
    """Return the encoded properties of a message as it is sent.  Raises IllegalMessage."""
    wait = "true" if message.wait_store_ok else "false"
    text = f"UNIQ_KEY\x01{message_id}\x02WAIT\x01{wait}\x02"
    if message.tags:
        text += f"TAGS\x01{_checked(message.tags)}\x02"
    if message.keys:
        text += f"KEYS\x01{_checked(message.keys)}\x02"
    if message.is_delayed:
        text += _delay_text(message)
    if message.priority is not None:
        arguments.whole("priority", message.priority, 0, MAX_PRIORITY, IllegalMessage)
        text += f"{names.PRIORITY}\x01{message.priority}\x02"
    if message.lite_topic:
        arguments.lite_topic("lite_topic", message.lite_topic, IllegalMessage)
        text += f"{names.LITE_TOPIC}\x01{message.lite_topic}\x02"
    if message.properties:
        for name, value in message.properties.items():
            arguments.check_property(name, value)
            text += f"{name}\x01{value}\x02"
    size = len(text) if text.isascii() else len(arguments.text("a property", text, error=IllegalMessage).encode())
    if size > limits.MAX_PROPERTIES_BYTES:
        raise IllegalMessage(f"the properties have {size} bytes, at most {limits.MAX_PROPERTIES_BYTES}")
    return text


def _delay_text(message: Message) -> str:
    if message.delay_ms is not None and message.deliver_at_ms is None and not message.delay_level:
        name, value = names.TIMER_DELAY_MS, message.delay_ms
    elif message.deliver_at_ms is not None and message.delay_ms is None and not message.delay_level:
        name, value = names.TIMER_DELIVER_MS, message.deliver_at_ms
    elif message.delay_ms is None and message.deliver_at_ms is None:
        name, value = names.DELAY, message.delay_level
    else:
        raise IllegalMessage("a message has one of delay_level, delay and deliver_at")
    arguments.whole(name, value, 0, error=IllegalMessage)
    return f"{name}\x01{value}\x02"


def _checked(text: str) -> str:
    if type(text) is not str or names.separators_in(text):
        raise IllegalMessage(f"{text!r} is no str, or holds a character 0x01 or 0x02, which separate properties")
    return text
