"""Messages of applications: to send, received, and the result of a send."""

import ipaddress
from collections.abc import Coroutine, Iterable, Mapping
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any, Protocol

from sprocket.client import arguments
from sprocket.client.compression import decompress
from sprocket.client.errors import IllegalMessage
from sprocket.client.send_result import queue_name
from sprocket.client.settlement import Settleable, Settlement
from sprocket.remoting.bodies.client import MessageQueue
from sprocket.remoting.codec.java_text import java_text
from sprocket.remoting.message import properties as names
from sprocket.remoting.message.message_type import MAX_PRIORITY, priority_of
from sprocket.remoting.message.record import SysFlag

_COMPRESSED = int(SysFlag.COMPRESSED)
_TAGS = names.encoded_name(names.TAGS)
# Attributes of a received message that only the client uses.
_INTERNAL = frozenset({"source", "stored_body", "stored_properties", "taken_at"})

__all__ = ["Message", "MessageQueue", "ReceivedMessage"]


class Message:
    """One message to send.

    An operator can find the message by its `keys`.  `properties` and the number `flag` belong to the application.
    With `wait_store_ok` False a broker responds before the message is flushed or replicated.

    A message has one tag in `tags`.  A str in `keys` is one key; a key holds no blank.

    At most one of three sets the time of delivery: `delay_level` 1 to 18, one of the broker's `messageDelayLevel`;
    `delay`, a timedelta or seconds from its arrival at the broker; `deliver_at`, a datetime with a time zone or ms
    since the epoch.

    `priority`, 0 or more, is for topics of type PRIORITY: pops get messages of higher priority first.  It chooses the
    queue, so such a message has no delay, no sharding key and no queue of its own.

    `lite_topic` is for topics of type LITE: the message goes to this lite topic of `topic`, which need not exist.  It
    chooses the queue as a priority does, and such a message has no priority.

    `unique_key`, if given, determines the message id (UNIQ_KEY).  All sends of one key to one topic have one id, even
    after a restart, so that a `Deduplicator` treats them as one message.

    Raises IllegalMessage for an argument of the wrong type or out of range.
    """

    __slots__ = (
        "body",
        "delay_level",
        "delay_ms",
        "deliver_at_ms",
        "flag",
        "keys",
        "lite_topic",
        "priority",
        "properties",
        "tags",
        "topic",
        "unique_key",
        "wait_store_ok",
    )

    def __init__(
        self,
        topic: str,
        body: bytes,
        *,
        tags: str = "",
        keys: Iterable[str] | str = (),
        properties: Mapping[str, str] | None = None,
        delay_level: int = 0,
        delay: timedelta | float | None = None,
        deliver_at: datetime | int | None = None,
        priority: int | None = None,
        lite_topic: str = "",
        unique_key: str = "",
        flag: int = 0,
        wait_store_ok: bool = True,
    ) -> None:
        arguments.check_topic(topic)
        self.topic = topic
        # The usual values pass without a call: this runs for every message.
        self.body = body if type(body) is bytes else arguments.body(body)
        self.tags = tags if tags == "" else arguments.tag(tags)
        self.keys = "" if keys == () else arguments.keys(keys)
        self.properties = None if properties is None else arguments.properties(properties)
        self.delay_level = 0
        self.delay_ms: int | None = None
        self.deliver_at_ms: int | None = None
        if delay_level != 0 or delay is not None or deliver_at is not None:
            self._delay(delay_level, delay, deliver_at)
        self.priority = priority
        if priority is not None:
            arguments.whole("priority", priority, 0, MAX_PRIORITY, IllegalMessage)
            if self.is_delayed:
                raise IllegalMessage("a message with a priority has no delay; leave one of them out")
        self.lite_topic = lite_topic
        if lite_topic != "":
            arguments.lite_topic("lite_topic", lite_topic, IllegalMessage)
            if self.is_delayed or priority is not None:
                raise IllegalMessage("a message for a lite topic has neither delay nor priority; leave them out")
        self.unique_key = unique_key if unique_key == "" else arguments.unique_key(unique_key)
        self.flag = flag if flag == 0 else arguments.whole("flag", flag, -(1 << 31), (1 << 31) - 1, IllegalMessage)
        self.wait_store_ok = wait_store_ok
        if wait_store_ok is not True:
            arguments.switch("wait_store_ok", wait_store_ok, IllegalMessage)

    def _delay(self, level: int, delay: timedelta | float | None, deliver_at: datetime | int | None) -> None:
        self.delay_level = arguments.delay_level(level, error=IllegalMessage)
        if delay is not None:
            self.delay_ms = arguments.delay_ms("delay", delay)
        if deliver_at is not None:
            self.deliver_at_ms = arguments.moment_ms("deliver_at", deliver_at, IllegalMessage)
        if (level != 0) + (delay is not None) + (deliver_at is not None) > 1:
            raise IllegalMessage("a message has one of delay_level, delay and deliver_at; leave the others out")

    @property
    def is_delayed(self) -> bool:
        """Whether the message is delivered later."""
        return self.delay_level > 0 or self.delay_ms is not None or self.deliver_at_ms is not None

    def __repr__(self) -> str:
        return f"Message(topic={self.topic!r}, tags={self.tags!r}, keys={self.keys!r}, body={len(self.body)} bytes)"


class MessageSource(Protocol):
    """Queue of a received message, as its consumer holds it."""

    @property
    def queue(self) -> MessageQueue: ...

    @property
    def consumer(self) -> Settlement | None:
        """The consumer that acknowledges and rejects its messages."""

    @property
    def is_dropped(self) -> bool:
        """Whether another member may have the queue by now."""

    @property
    def is_waiting(self) -> bool:
        """Whether its pull waits for room."""

    def take(self, message: "ReceivedMessage", now: float, /) -> None:
        """Record that the application got `message` at `now`, monotonic s."""

    def skip(self, message: "ReceivedMessage", /) -> None:
        """Record that the application does not get `message`, because `is_dropped` is True."""

    def is_pending(self, message: "ReceivedMessage", /) -> bool:
        """Return whether `message` still waits for its acknowledgement."""

    def extend(self, message: "ReceivedMessage", counts_from: float, /) -> None:
        """Treat `message` as if the application had got it at `counts_from`, monotonic s."""

    def acknowledge(self, message: "ReceivedMessage", /) -> bool: ...


class ReceivedMessage(Settleable):
    """One message from a broker.

    A message that a consumer gave is acknowledged with `ack`, rejected with `nack`, or both in `async with process()`.

    Body and properties are decoded on first use; `body` raises BodyUnreadable if its compressed form is damaged.
    `topic` is the topic that it was first sent to, even after a redelivery; `queue` is the queue that it lies in.
    """

    __slots__ = (
        "_body",
        "_born_host",
        "_properties",
        "_raw_properties",
        "_store_host",
        "born_timestamp_ms",
        "flag",
        "physical_offset",
        "queue",
        "queue_offset",
        "reconsume_times",
        "size_bytes",
        "source",
        "store_timestamp_ms",
        "sys_flag",
        "taken_at",
        "topic",
    )

    def __init__(
        self,
        *,
        topic: str,
        queue: MessageQueue,
        queue_offset: int,
        physical_offset: int,
        body: bytes,
        raw_properties: bytes,
        flag: int,
        sys_flag: int,
        born_timestamp_ms: int,
        born_host: bytes,
        store_timestamp_ms: int,
        store_host: bytes,
        reconsume_times: int,
        size_bytes: int,
    ) -> None:
        self.topic = topic
        self.queue = queue
        self.queue_offset = queue_offset
        self.physical_offset = physical_offset
        self.flag = flag
        self.sys_flag = sys_flag
        self.born_timestamp_ms = born_timestamp_ms
        self.store_timestamp_ms = store_timestamp_ms
        self.reconsume_times = reconsume_times
        self.size_bytes = size_bytes
        self.source: MessageSource | None = None  # where its acknowledgement is counted
        self.taken_at = 0.0  # monotonic s; when the application got it
        self._body = body
        self._raw_properties = raw_properties
        self._properties: dict[str, str] | None = None
        self._born_host = born_host
        self._store_host = store_host

    def __dir__(self) -> list[str]:
        """Return the names for applications: not those by which the client keeps account."""
        return [name for name in super().__dir__() if name not in _INTERNAL]

    def _settlement(self) -> Settlement | None:
        return None if self.source is None else self.source.consumer

    def _consumer(self) -> Settlement:
        source = self.source
        consumer = None if source is None else source.consumer
        return super()._consumer() if consumer is None else consumer

    def ack(self) -> Coroutine[Any, Any, None]:
        """Count the message as consumed.  Raises as `ack` of its consumer."""
        # No coroutine of its own around that of the consumer: this runs for every message.
        source = self.source
        consumer = None if source is None else source.consumer
        return super().ack() if consumer is None else consumer.ack(self)

    @property
    def body(self) -> bytes:
        """The body as it was sent; inflated on first use."""
        if self.sys_flag & _COMPRESSED:
            self._body = decompress(self._body, self.sys_flag)
            self.sys_flag &= ~_COMPRESSED
        return self._body

    @property
    def stored_body(self) -> bytes:
        """The body as the broker has it: compressed if `sys_flag` says so, unless `body` has inflated it."""
        return self._body

    @property
    def stored_properties(self) -> bytes:
        """The properties as the broker has them, see `sprocket.remoting.message.properties`."""
        return self._raw_properties

    @property
    def properties(self) -> dict[str, str]:
        """All properties, the protocol's own among them; of several with the same name, the last.

        A batch's properties are among those of each of its messages: they may have the batch's UNIQ_KEY.
        """
        if self._properties is None:
            self._properties = names.parse(java_text(self._raw_properties))
        return self._properties

    @property
    def tags(self) -> str:
        """The tag, empty for none."""
        if self._properties is None:
            # Finding one property costs a part of parsing all.
            return java_text(names.find_last(self._raw_properties, _TAGS) or b"")
        return self._properties.get(names.TAGS, "")

    @property
    def keys(self) -> list[str]:
        """The keys, one by one."""
        return self.properties.get(names.KEYS, "").split()

    @property
    def sharding_key(self) -> str:
        """The `sharding_key` of its send, empty for none."""
        return self.properties.get(names.SHARDING_KEY, "")

    @property
    def priority(self) -> int | None:
        """The `priority` of its send, None for none."""
        return priority_of(self.properties.get(names.PRIORITY))

    @property
    def lite_topic(self) -> str:
        """The `lite_topic` of its send, empty for none."""
        return self.properties.get(names.LITE_TOPIC, "")

    @property
    def message_id(self) -> str:
        """The id that the producer gave (UNIQ_KEY); of a message without one, the offset message id.

        In a batch, each message has an id of its own, as in the response to its send.  Java's client has the batch's.
        """
        own = names.own_unique_key(self._raw_properties)
        return own or self.properties.get(names.UNIQ_KEY) or self.offset_message_id

    @property
    def offset_message_id(self) -> str:
        """Address of the broker and physical offset, in hexadecimal (`MessageDecoder.createMessageId`)."""
        return (self._store_host + self.physical_offset.to_bytes(8, "big")).hex().upper()

    @property
    def born_host(self) -> tuple[str, int]:
        """Address and port of the producer, as the broker saw it."""
        return _host(self._born_host)

    @property
    def store_host(self) -> tuple[str, int]:
        """Address and port of the broker."""
        return _host(self._store_host)

    def __repr__(self) -> str:
        return f"ReceivedMessage({self.message_id}, {queue_name(self.queue)}, queue_offset={self.queue_offset})"


@lru_cache(1024)
def _host(raw: bytes) -> tuple[str, int]:
    address, port = raw[:-4], int.from_bytes(raw[-4:], "big")
    if len(address) == 4:
        return ".".join(map(str, address)), port
    return ":".join(address[i : i + 2].hex() for i in range(0, 16, 2)), port


def packed_host(text: str) -> bytes:
    """Return ``address:port`` in the form of records; an unspecified address if it cannot be parsed."""
    address, _, port = text.rpartition(":")
    try:
        return ipaddress.ip_address(address.strip("[]").partition("%")[0]).packed + int(port).to_bytes(4, "big")
    except (ValueError, OverflowError):
        return bytes(8)
