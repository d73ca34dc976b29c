"""A message made ready for the wire: checked, given its id, compressed, its properties as text.

Source: RocketMQ 5.3.3, `Validators`, `DefaultMQProducerImpl.sendKernelImpl`, `tryToCompressMessage`,
`MessageBatch`, `MessageDecoder.encodeMessage`.
"""

import re
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from remoting import message_properties as names
from remoting.bodies.client import MessageQueue
from remoting.codes import RequestCode
from sprocket.client.compression import Compression, compress
from sprocket.client.errors import IllegalMessage
from sprocket.client.message import Message
from sprocket.client.reply import Reply
from sprocket.client.unique_id import derived_id
from sprocket.common import limits

RETRY_PREFIX = "%RETRY%"
_LEGAL_NAME = re.compile(r"[%|a-zA-Z0-9_-]+")
# Topics that brokers write themselves.  Source: RocketMQ 5.3.3, `TopicValidator.NOT_ALLOWED_SEND_TOPIC_SET`.
_NOT_ALLOWED_SEND = frozenset(
    {
        "SCHEDULE_TOPIC_XXXX",
        "RMQ_SYS_TRANS_HALF_TOPIC",
        "RMQ_SYS_TRANS_OP_HALF_TOPIC",
        "TRANS_CHECK_MAX_TIME_TOPIC",
        "SELF_TEST_TOPIC",
        "OFFSET_MOVED_EVENT",
    }
)
# Total size, magic, body CRC, flag, body length; then the body, i16 length of properties, properties.
_BATCHED_HEAD = struct.Struct(">iiiii")


@dataclass(frozen=True, kw_only=True)
class SendSettings:
    """How messages are sent, under RocketMQ's names.  Source: RocketMQ 5.3.3, `DefaultMQProducer`."""

    create_topic_key: str = "TBW102"
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
    auto_batch: bool = False  # gather what is sent at about the same time into batches
    batch_max_delay_ms: int = 10  # holdMs
    batch_max_bytes: int = 32 * 1024  # holdSize
    total_batch_max_bytes: int = 32 * 1024 * 1024  # totalHoldSize

    def __post_init__(self) -> None:
        """Raises ValueError for limits that RocketMQ's `ProduceAccumulator` refuses."""
        if not 1 <= self.batch_max_delay_ms <= 30_000:
            raise ValueError(f"batch_max_delay_ms is {self.batch_max_delay_ms}, but is from 1 to 30000")
        if not 1 <= self.batch_max_bytes <= 2 * 1024 * 1024:
            raise ValueError(f"batch_max_bytes is {self.batch_max_bytes}, but is from 1 to 2097152")
        if self.total_batch_max_bytes <= 0:
            raise ValueError(f"total_batch_max_bytes is {self.total_batch_max_bytes}, but is more than 0")


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
        self.code = int(RequestCode.SEND_MESSAGE_V2)
        self.reconsume_times = 0
        self.max_reconsume_times: int | None = None

    def ext_fields(self, group: str, settings: SendSettings, queue: MessageQueue, now_ms: int) -> dict[str, str]:
        """The fields of `SendMessageRequestHeaderV2` for one attempt, born at `now_ms`."""
        fields = {
            "a": group,
            "b": self.topic,
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


def check_topic(topic: str) -> None:
    """Raises IllegalMessage for a topic that messages cannot be sent to."""
    if not topic.strip():
        raise IllegalMessage("the topic is blank")
    if len(topic) > limits.MAX_TOPIC_CHARS:
        raise IllegalMessage(f"topic {topic!r} has {len(topic)} characters, at most {limits.MAX_TOPIC_CHARS}")
    if not _LEGAL_NAME.fullmatch(topic):
        raise IllegalMessage(f"topic {topic!r} has a character that is not allowed: only % | a-z A-Z 0-9 _ -")
    if topic in _NOT_ALLOWED_SEND:
        raise IllegalMessage(f"topic {topic} belongs to the brokers; messages cannot be sent to it")


def check_group(group: str) -> None:
    """Raises IllegalMessage for a name that no group may have."""
    if not group.strip():
        raise IllegalMessage("the group is blank")
    if len(group) > limits.MAX_GROUP_CHARS:
        raise IllegalMessage(f"group {group!r} has {len(group)} characters, at most {limits.MAX_GROUP_CHARS}")
    if not _LEGAL_NAME.fullmatch(group):
        raise IllegalMessage(f"group {group!r} has a character that is not allowed: only % | a-z A-Z 0-9 _ -")


def single_request(message: Message, settings: SendSettings, new_id: Callable[[], str]) -> SendRequest:
    """`message` ready for the wire; its topic is taken as checked.  Raises IllegalMessage."""
    body = message.body
    if not body:
        raise IllegalMessage("the body is empty; a message carries at least one byte")
    if len(body) > settings.max_message_size:
        raise IllegalMessage(f"the body has {len(body)} bytes, at most {settings.max_message_size} (maxMessageSize)")
    message_id = derived_id(message.topic, message.unique_key) if message.unique_key else new_id()
    request = SendRequest(message.topic, body, _properties_text(message, message_id), message_id, message.flag)
    if isinstance(message, Reply):
        request.code = int(RequestCode.SEND_REPLY_MESSAGE_V2)
        request.properties += names.encode(message.protocol_properties)
    if len(body) >= settings.compress_msg_body_over_howmuch:
        request.body, request.sys_flag = compress(body, settings.compress_type, settings.compress_level)
    return request


def batch_request(messages: Sequence[Message], settings: SendSettings, new_id: Callable[[], str]) -> SendRequest:
    """`messages` as one request.  Raises IllegalMessage when they may not be one batch.

    All must have one topic, which is no retry topic, one `wait_store_ok`, and no delay.
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
        pieces.append(_batched(message, _properties_text(message, message_id)))
    body = b"".join(pieces)
    if len(body) > settings.max_message_size:
        raise IllegalMessage(
            f"the batch has {len(body)} bytes, at most {settings.max_message_size} (maxMessageSize); send fewer at once"
        )
    properties = names.encode({names.UNIQ_KEY: new_id(), names.WAIT: "true" if first.wait_store_ok else "false"})
    request = SendRequest(first.topic, body, properties, ",".join(ids))
    request.code = int(RequestCode.SEND_BATCH_MESSAGE)
    return request


def _check_batched(message: Message, first: Message) -> None:
    if message.topic != first.topic:
        raise IllegalMessage(f"one batch has one topic, not both {first.topic} and {message.topic}")
    if message.topic.startswith(RETRY_PREFIX):
        raise IllegalMessage("messages to a retry topic cannot be sent in a batch")
    if message.is_delayed:
        raise IllegalMessage("a delayed message cannot be sent in a batch")
    if isinstance(message, Reply):
        raise IllegalMessage("a reply cannot be sent in a batch")
    if message.wait_store_ok != first.wait_store_ok:
        raise IllegalMessage("all messages of a batch have the same wait_store_ok")
    if not message.body:
        raise IllegalMessage("the body is empty; a message carries at least one byte")


def _batched(message: Message, properties: str) -> bytes:
    encoded = properties.encode()
    size = _BATCHED_HEAD.size + len(message.body) + 2 + len(encoded)
    head = _BATCHED_HEAD.pack(size, 0, 0, message.flag, len(message.body))
    return b"".join((head, message.body, len(encoded).to_bytes(2, "big"), encoded))


def _properties_text(message: Message, message_id: str) -> str:
    wait = "true" if message.wait_store_ok else "false"
    text = f"UNIQ_KEY\x01{message_id}\x02WAIT\x01{wait}\x02"
    if message.tags:
        text += f"TAGS\x01{_checked(message.tags)}\x02"
    if message.keys:
        text += f"KEYS\x01{_checked(message.keys)}\x02"
    if message.is_delayed:
        text += _delay_text(message)
    if message.properties:
        for name, value in message.properties.items():
            if name in names.RESERVED or not name.strip() or not value.strip():
                raise IllegalMessage(f"property {name!r}={value!r}: the name is reserved, or one of the two is blank")
            text += f"{_checked(name)}\x01{_checked(value)}\x02"
    if len(text) > limits.MAX_PROPERTIES_BYTES // 4 and len(text.encode()) > limits.MAX_PROPERTIES_BYTES:
        raise IllegalMessage(f"the properties have {len(text.encode())} bytes, at most {limits.MAX_PROPERTIES_BYTES}")
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
    if value < 0:
        raise IllegalMessage(f"{name}={value}: a delay or a time to deliver at is not negative")
    return f"{name}\x01{value}\x02"


def _checked(text: str) -> str:
    if names.separators_in(text):
        raise IllegalMessage(f"{text!r} holds a character 0x01 or 0x02, which separate properties")
    return text
