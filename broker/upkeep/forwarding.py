"""Transfer of late messages to the brokers that have their queues now.

They are of static topics whose queues have moved, or have a sharding key and are of topics that have grown.  They wait
in rmq_sys_FORWARD_TOPIC, see `broker.topic.moved_queues`.  The offset of a system group says how far each of
its queues is done.  A message is sent until a leader has stored it, so a broker that dies may send it twice.  Not in
RocketMQ.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Final, NamedTuple

from msgspec.structs import replace

from broker.core import BrokerCore
from broker.failover.escaped_message import STORED, EscapedMessage
from broker.out.other_brokers import OtherBrokers
from broker.periodic import pause
from broker.service import Service
from broker.topic.logical_queue import leaders_of, led_queue_ids
from broker.topic.moved_queues import FORWARD_QUEUES, logical_id
from broker.transaction.recovery import read_record
from sprocket.client.connection.topic_route import TopicRoute, topic_route
from sprocket.client.send.queue_choice import CHOICES
from sprocket.common.errors import SprocketError, StoreError
from sprocket.common.figures import Declared, Figure
from sprocket.common.logs.peer_lines import peer_lines
from sprocket.remoting.bodies.client import MessageQueue
from sprocket.remoting.codec.java_text import java_text
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.headers.send import SendMessageRequestHeaderV2
from sprocket.remoting.message import properties as names
from sprocket.remoting.message.topic_names import FORWARD_GROUP, FORWARD_TOPIC
from store.delivery import OwnLog, deliver_fitting
from store.flush.confirmation import Arrival
from store.record.record import PendingMessage, Record, TagsCodes

logger = logging.getLogger(__name__)

_RETRY_S: Final = 1.0
_MAX_QUEUE_DIGITS: Final = 10
_SHARDING: Final = names.encoded_name(names.INNER_SHARDING)
_SHARDING_KEY: Final = names.encoded_name(names.SHARDING_KEY)
_REAL_TOPIC: Final = names.encoded_name(names.REAL_TOPIC)
_REAL_QUEUE_ID: Final = names.encoded_name(names.REAL_QUEUE_ID)
# The leader would take the message for a half message or a delayed one, or its own earlier one.
_LEFT_OUT: Final = (
    names.REAL_TOPIC,
    names.REAL_QUEUE_ID,
    names.TRANSACTION_PREPARED,
    names.TIMER_DELAY_MS,
    names.TIMER_DELAY_SEC,
    names.TIMER_DELIVER_MS,
    names.TIMER_OUT_MS,
    names.IDEMPOTENCE_ID,
    names.INNER_SHARDING,
)


class _Late(NamedTuple):
    """A message to be sent again, and how its key chooses the queue; None for one without a key."""

    message: EscapedMessage
    choose: Callable[[TopicRoute, str], MessageQueue] | None
    key: str


class Forwarding(Service):
    """Sender of late messages, one task for each queue that has some.  Lives in the event loop's thread."""

    def __init__(self, core: BrokerCore, brokers: OtherBrokers) -> None:
        self._core = core
        self._brokers = brokers
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._tags_codes = TagsCodes(core.config.store.message_delay_level)
        core.mappings.on_put.append(self._mapped)

    def figures(self) -> list[Declared]:
        """Return how many messages wait."""
        return [
            Figure(
                "lateMessagesWaiting",
                "messages for logical queues that have moved, and for topics that have grown, which wait to be sent",
                self._waiting,
            )
        ]

    def _waiting(self) -> int:
        end = self._core.store.max_offset
        return sum(max(end(FORWARD_TOPIC, number) - self._next(number), 0) for number in range(FORWARD_QUEUES))

    def activate(self) -> None:
        """Begin to send what waits."""
        self._core.store.on_arrival_of.setdefault(FORWARD_TOPIC, []).append(self._arrived)
        for topic in self._core.mappings.by_name:
            self._mapped(topic)
        for queue_id in range(FORWARD_QUEUES):
            self._begin(queue_id)

    def deactivate(self) -> None:
        """Stop sending; what is not sent waits."""
        listeners = self._core.store.on_arrival_of.get(FORWARD_TOPIC, [])
        if self._arrived in listeners:
            listeners.remove(self._arrived)
        for task in self._tasks.values():
            task.cancel()
        self._tasks.clear()

    def _mapped(self, topic: str) -> None:
        """Create the topic of late messages once queues have moved from here."""
        detail = self._core.mappings.get(topic)
        if detail is not None and len(detail.hosted_queues) > len(led_queue_ids(detail)):
            self._core.topics.get_or_create(FORWARD_TOPIC, FORWARD_QUEUES)

    def _arrived(self, arrivals: list[Arrival]) -> None:
        self._core.topics.get_or_create(FORWARD_TOPIC, FORWARD_QUEUES)
        for queue, _, _ in arrivals:
            self._begin(queue.queue_id)

    def _begin(self, queue_id: int) -> None:
        if queue_id in self._tasks or self._core.store.max_offset(FORWARD_TOPIC, queue_id) <= self._next(queue_id):
            return
        task = asyncio.get_running_loop().create_task(self._send_all(queue_id))
        self._tasks[queue_id] = task
        task.add_done_callback(lambda task: self._ended(queue_id, task))

    def _ended(self, queue_id: int, task: "asyncio.Task[None]") -> None:
        if self._tasks.get(queue_id) is not task:
            return
        del self._tasks[queue_id]
        if not task.cancelled():
            task.result()
            self._begin(queue_id)  # for what arrived while the task ended

    def _next(self, queue_id: int) -> int:
        return max(
            self._core.offsets.query(FORWARD_GROUP, FORWARD_TOPIC, queue_id),
            self._core.store.min_offset(FORWARD_TOPIC, queue_id),
        )

    async def _send_all(self, queue_id: int) -> None:
        store = self._core.store
        while (offset := self._next(queue_id)) < store.max_offset(FORWARD_TOPIC, queue_id):
            try:
                await self._send(queue_id, offset)
            except SprocketError as error:
                peer_lines.warning(
                    logger, "", "event=late_message_waits queue=%d offset=%d reason=%r", queue_id, offset, str(error)
                )
                await pause(_RETRY_S)
                continue
            self._core.offsets.commit(FORWARD_GROUP, FORWARD_TOPIC, queue_id, offset + 1)

    async def _send(self, queue_id: int, offset: int) -> None:
        """Send one message to the broker that leads its logical queue.  Raises SprocketError to try again."""
        try:
            record = read_record(self._core.store, FORWARD_TOPIC, queue_id, offset)
        except StoreError as error:
            record = str(error)
        late = self._late(record) if isinstance(record, Record) else record
        if isinstance(late, str):
            peer_lines.error(
                logger, "", "event=late_message_dropped queue=%d offset=%d reason=%r", queue_id, offset, late
            )
            return
        message = late.message
        leader, header = await self._target(late)
        response = await self._brokers.ask(leader, RequestCode.SEND_MESSAGE_V2, header, message.body)
        if response.code == ResponseCode.MESSAGE_ILLEGAL:
            peer_lines.error(
                logger, "", "event=late_message_refused topic=%s broker=%s reason=%r", message.topic, leader,
                response.remark,
            )  # fmt: skip
            if late.choose is not None:
                self._keep(message.message)
        elif response.code not in STORED:
            raise SprocketError(f"topic {message.topic}: {leader} answers {response.code} {response.remark}")

    def _keep(self, message: PendingMessage) -> None:
        """Store a message with a key in the queue of its send, because what was accepted is not lost.

        Limits of its namespace may have changed since, and without a delay it is of another type.  Raises StoreError.
        """
        properties = names.without(bytes(message.properties), _SHARDING)
        tags_code = self._tags_codes.of("", properties, 0)
        kept = replace(message, properties=properties, tags_code=tags_code)
        deliver_fitting(OwnLog(self._core.store), [kept], lambda: None, _dropped)

    async def _target(self, late: "_Late") -> tuple[str, SendMessageRequestHeaderV2]:
        """Return the broker for a message, and the header of the send.  Raises SprocketError to try again."""
        message, choose, key = late
        data = await self._brokers.route(message.topic)
        if choose is None:
            leader = leaders_of((data.topic_queue_mapping_by_broker or {}).values()).get(str(message.queue_id))
            if leader is None:
                raise SprocketError(f"no broker leads {message.topic}-{message.queue_id}")
            return leader, message.header(message.queue_id, FORWARD_GROUP, leader)
        try:
            route = topic_route(message.topic, data)
        except ValueError as error:
            raise SprocketError(f"the route of topic {message.topic} cannot be read: {error}") from None
        if not route.publish:
            raise SprocketError(f"no broker takes messages of topic {message.topic}")
        queue = choose(route, key)
        broker_name = route.broker_of(queue)
        header = message.header(queue.queue_id, FORWARD_GROUP, broker_name)
        header.sharding_queues = len(route.publish)
        return broker_name, header

    def _late(self, record: Record) -> "_Late | str":
        """Return the message, for its logical queue unless it has a key, or why it cannot be sent."""
        encoded = bytes(record.properties)
        topic, number = names.find_last(encoded, _REAL_TOPIC), names.find_last(encoded, _REAL_QUEUE_ID)
        if topic is None or number is None or not number.isdigit() or len(number) > _MAX_QUEUE_DIGITS:
            return "no real topic and queue"
        name, queue_id = java_text(topic), int(number)
        sharding = names.find_last(encoded, _SHARDING) or b""
        choose = CHOICES.get(java_text(sharding.partition(b" ")[0]))
        if choose is None:
            detail = self._core.mappings.get(name)
            logical = None if detail is None else logical_id(detail, queue_id)
            if logical is None:
                return f"topic {name} is not static any more"
            queue_id = logical
        elif self._core.topics.get(name) is None:
            return f"topic {name} is deleted"
        pending = PendingMessage(
            name, queue_id, record.body, encoded, 0, record.flag, record.sys_flag, record.born_timestamp,
            record.born_host, record.reconsume_times,
        )  # fmt: skip
        message = EscapedMessage(pending)
        for left_out in _LEFT_OUT:
            message.properties.pop(left_out, None)
        return _Late(message, choose, java_text(names.find_last(encoded, _SHARDING_KEY) or b""))


def _dropped(message: PendingMessage, reason: str) -> None:
    peer_lines.error(logger, "", "event=late_message_dropped topic=%s reason=%r", message.topic, reason)
