"""Converter of all kinds of sends to stored messages: retries, delays, transactions, client batches.

Source: RocketMQ 5.3.3, `SendMessageProcessor`, `HookUtils`, `MessageExtEncoder.encode(MessageExtBatch)`.
"""

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from broker.core import BrokerCore
from broker.message_id import UniqueKeys
from broker.plan.refusals import unknown_group_of_retry
from broker.send.client_batch import LENGTH_BYTES, BadBatch, Member, check_growth, members_of
from broker.send.planner import SendHeader, SendPlan
from broker.timer.timer_intake import TIMER_NAMES, TimerIntake
from broker.topic.retry_topics import group_of
from broker.transaction.half_message import prepare
from sprocket.client.send.queue_choice import CHOICES
from sprocket.common.errors import RequestError
from sprocket.common.limits import MAX_BATCH_MESSAGES, MAX_PROPERTIES_BYTES
from sprocket.common.logs.peer_lines import peer_lines
from sprocket.common.refusal_reasons import Reason
from sprocket.remoting.codes import ResponseCode
from sprocket.remoting.command import Request
from sprocket.remoting.message import properties as names
from sprocket.remoting.message.lite_topics import is_legal_lite_topic, lite_queue
from sprocket.remoting.message.properties import find_last, without
from sprocket.remoting.message.record import SysFlag
from sprocket.remoting.message.topic_names import SCHEDULE_TOPIC, TIMER_TOPIC, TRANS_HALF_TOPIC, dlq_topic
from store.compaction.key_offsets import key_in
from store.config.delay_levels import parse_delay_levels
from store.queue.inner_batch import MAX_MESSAGES, message_count
from store.record.record import PendingMessage, TagsCodes

if TYPE_CHECKING:
    from broker.send.kernel_native import SendTurn

logger = logging.getLogger(__name__)

# Clients before V3_4_9 do not know maxReconsumeTimes.
_V3_4_9: Final = 121
_TRANSACTION_MASK: Final = int(SysFlag.TRANSACTION_ROLLBACK)
_PREPARED: Final = int(SysFlag.TRANSACTION_PREPARED)
_INNER_BATCH: Final = int(SysFlag.INNER_BATCH)
# Flags of a batch that is stored as one record.
_KEPT_BATCH: Final = int(SysFlag.INNER_BATCH | SysFlag.NEED_UNWRAP)
# Topics in which messages wait.
_WAITING: Final = frozenset({SCHEDULE_TOPIC, TIMER_TOPIC, TRANS_HALF_TOPIC})
_TAGS: Final = names.encoded_name(names.TAGS)
_LITE: Final = names.encoded_name(names.LITE_TOPIC)
_ID: Final = names.encoded_name(names.IDEMPOTENCE_ID)
_SCHEDULE: Final = names.encoded_name(names.INNER_SCHEDULE)
_SHARDING: Final = names.encoded_name(names.INNER_SHARDING)
_LIGHT_OFFSETS: Final = names.encoded_name(names.INNER_MULTI_QUEUE_OFFSET)


def require_key(properties: bytes) -> None:
    """Raise RequestError for a message to a compacted topic that has no key.

    RocketMQ does not look into batches, and compaction then drops their messages without keys.
    """
    if not key_in(properties):
        raise RequestError(ResponseCode.MESSAGE_ILLEGAL, "Required message key is missing")


class ClientBatch(NamedTuple):
    """Messages of a batch request, or `records` of them by the kernel; `have_ids`: some are idempotent."""

    messages: list[PendingMessage]
    records: "SendTurn | None"
    unique_key: str
    have_ids: bool

    @property
    def message_count(self) -> int:
        """Number of messages; a message may be a batch itself."""
        if self.records is not None:
            return len(self.records)
        return sum(message_count(message.properties) for message in self.messages)


# Returns the records of a batch, given its plan, header, born host, body and common properties, or None (`SendFrames`).
TakeBatch: TypeAlias = Callable[[SendPlan, SendHeader, bytes, bytes, bytes], "SendTurn | None"]


class MessageIntake:
    """Converter of one request to the messages to store.  Raises RequestError for a message that is refused."""

    def __init__(self, core: BrokerCore, tags_codes: TagsCodes, unique_keys: UniqueKeys, timer: TimerIntake) -> None:
        self._config = core.config
        self._topics = core.topics
        self._groups = core.groups
        self._locks = core.locks
        self.tags_codes = tags_codes
        self._unique_keys = unique_keys
        self.timer = timer

    @property
    def illegal_remark(self) -> str:
        """Remark for a message that exceeds a limit; RocketMQ's text."""
        return (
            "the message is illegal, maybe msg body or properties length not matched. msg body length limit "
            f"{self._config.store.max_message_size}B, msg properties length limit 32KB."
        )

    def _illegal(self, why: str, reason: Reason = Reason.MESSAGE_ILLEGAL) -> RequestError:
        return RequestError(ResponseCode.MESSAGE_ILLEGAL, f"{self.illegal_remark} {why}", reason)

    def _enter_lite_topic(self, topic: str, properties: dict[str, str]) -> None:
        """Let the message enter the light queue of its lite topic, whatever the type of `topic` is.

        RocketMQ also takes a message that enters none, because light queues are off, or because of its name.
        """
        lite = properties.get(names.LITE_TOPIC)
        if not lite:
            return
        store = self._config.store
        if not (store.enable_lmq and store.enable_multi_dispatch):
            raise self._illegal(
                f"This broker has no lite topics: set enableLmq and enableMultiDispatch to true, or send without "
                f"{names.LITE_TOPIC}."
            )
        if not is_legal_lite_topic(lite):
            raise self._illegal(f"{names.LITE_TOPIC} allows up to 240 letters, digits, hyphens and underscores.")
        properties[names.INNER_MULTI_DISPATCH] = lite_queue(topic, lite)

    def _properties(self, header: SendHeader) -> dict[str, str]:
        """Return the request's properties and those that the broker adds."""
        broker = self._config.broker
        properties = names.parse(header.properties)
        properties.pop(names.POP_CK, None)
        # Only the store and the schedules of a broker may set these, because recovery trusts them.
        properties.pop(names.INNER_MULTI_QUEUE_OFFSET, None)
        properties.pop(names.INNER_SCHEDULE, None)
        properties[names.MSG_REGION] = broker.region_id
        properties[names.TRACE_ON] = "true" if broker.trace_on else "false"
        properties[names.CLUSTER] = broker.broker_cluster_name
        return properties

    # One message

    def message(self, request: Request[Any], plan: SendPlan, born_host: bytes) -> tuple[PendingMessage, bytes]:
        """Return the message of a request that is no batch, and its unique key."""
        header: SendHeader = request.header
        properties = self._properties(header)
        if names.EXPECTED_OFFSET in properties:
            raise self._illegal(f"{names.EXPECTED_OFFSET} is for batches: send the message as a batch.")
        self._enter_lite_topic(plan.topic, properties)
        key = properties.setdefault(names.UNIQ_KEY, "") or self._unique_keys.next()
        properties[names.UNIQ_KEY] = key
        topic, queue_id, sys_flag = plan.topic, plan.queue_id, header.sys_flag | plan.sys_flag
        reconsume_times = header.reconsume_times or 0
        if plan.is_retry and self._is_dead(request, group_of(topic)):
            topic, queue_id = self._dead_letter_topic(topic), 0
            properties[names.DELAY] = "-1"
            for name in (names.PRIORITY, names.IDEMPOTENCE_ID):
                properties.pop(name, None)
        else:
            queue_id = plan.queue_by(properties)
        delay_level = self._delay_level(properties)
        is_prepared = self._is_prepared(properties, sys_flag, reconsume_times > 0 and delay_level > 0)
        hashing = properties.pop(names.INNER_SHARDING, "").partition(" ")[0]
        self._check_inner_batch(request, properties, sys_flag, plan.keeps_batches and topic == plan.topic)
        if is_prepared:
            if delay_level > 0 or sys_flag & _INNER_BATCH or any(name in properties for name in TIMER_NAMES):
                raise self._illegal("A transaction message has no delay and is no batch.")
            sys_flag &= ~_TRANSACTION_MASK
            topic, queue_id = prepare(properties, topic, queue_id, header.producer_group)
        elif delay_level > 0:
            topic, queue_id = self._schedule(properties, topic, queue_id, delay_level)
        else:
            topic, queue_id = self.timer.place(topic, queue_id, properties)
        if hashing in CHOICES and topic in _WAITING:
            properties[names.INNER_SHARDING] = f"{hashing} {plan.key_queues}"
        encoded = self._encoded(properties)
        if not (request.body or plan.needs_key):
            raise self._illegal("The message has no body.")
        if len(request.body) > self._config.store.max_message_size:
            raise RequestError(ResponseCode.MESSAGE_ILLEGAL, self.illegal_remark, Reason.MESSAGE_TOO_LARGE)
        pending = PendingMessage(
            topic, queue_id, request.body, encoded, self.tags_codes.of("", encoded, 0),
            header.flag, sys_flag, header.born_timestamp, born_host, reconsume_times,
        )  # fmt: skip
        return pending, key.encode()

    def _check_inner_batch(
        self, request: Request[Any], properties: dict[str, str], sys_flag: int, keeps_batches: bool
    ) -> None:
        """Refuse a message that claims to be an inner batch and is none or may be none (`HookUtils.checkInnerBatch`).

        Stricter than the reference, which does not check the body.
        """
        number = properties.get(names.INNER_NUM)
        if not sys_flag & _INNER_BATCH:
            # A message that was alone in a BatchCQ queue and is sent again states 1.
            if number not in (None, "1"):
                raise self._illegal(f"{names.INNER_NUM} is {number[:20]!r}, but the message is no inner batch.")
            properties.pop(names.INNER_NUM, None)
            properties.pop(names.INNER_BASE, None)
        elif not keeps_batches or self._delay_level(properties) > 0:
            raise self._illegal("An inner batch needs a topic of queue type BatchCQ, and no delay.")
        elif number != str(self._count(request.body)):
            raise self._illegal(f"{names.INNER_NUM} is not the number of messages in the inner batch.")

    def _encoded(self, properties: dict[str, str]) -> bytes:
        encoded = names.encode(properties).encode("utf-8", "replace")
        if len(encoded) > MAX_PROPERTIES_BYTES:
            raise RequestError(ResponseCode.MESSAGE_ILLEGAL, self.illegal_remark, Reason.MESSAGE_TOO_LARGE)
        return encoded

    def _delay_level(self, properties: dict[str, str]) -> int:
        text = properties.get(names.DELAY, "0")
        try:
            return int(text)
        except ValueError:
            raise self._illegal(f"DELAY is {text[:20]!r}: allowed is a level of 1 or more.") from None

    def _is_prepared(self, properties: dict[str, str], sys_flag: int, is_retried: bool) -> bool:
        """Whether the message is a half message.  Raises RequestError if this broker refuses transactions."""
        if properties.get(names.TRANSACTION_PREPARED, "").lower() != "true" or is_retried:
            if sys_flag & _PREPARED:
                raise self._illegal("sysFlag marks the message as part of a transaction, TRAN_MSG does not.")
            return False
        if self._config.broker.reject_transaction_message:
            remark = f"the broker[{self._config.broker.broker_ip1}] sending transaction message is forbidden"
            raise RequestError(ResponseCode.NO_PERMISSION, remark, Reason.TURNED_OFF)
        return True

    def _schedule(self, properties: dict[str, str], topic: str, queue_id: int, delay_level: int) -> tuple[str, int]:
        """Return topic and queue of the delay level; the properties keep the message's real topic and queue."""
        for name in TIMER_NAMES:
            properties.pop(name, None)
        level = min(delay_level, len(parse_delay_levels(self._config.store.message_delay_level)))
        properties[names.DELAY] = str(level)
        properties[names.REAL_TOPIC] = topic
        properties[names.REAL_QUEUE_ID] = str(queue_id)
        return SCHEDULE_TOPIC, level - 1

    # A consumer's retry, sent by itself because CONSUMER_SEND_MSG_BACK failed

    def _is_dead(self, request: Request[Any], group: str) -> bool:
        header: SendHeader = request.header
        config = self._groups.find(group)
        if config is None:
            raise unknown_group_of_retry(group).error(request.channel.peer)
        most = config.retry_max_times
        if request.version >= _V3_4_9 and header.max_reconsume_times is not None:
            most = header.max_reconsume_times
        if (header.reconsume_times or 0) > most:
            return True
        # A group that holds queue locks consumes in order, so it has already retried in place.
        return not self._locks.all_expired(group)

    def _dead_letter_topic(self, retry_topic: str) -> str:
        topic = dlq_topic(group_of(retry_topic))
        self._topics.get_or_create(topic, 1)
        peer_lines.info(logger, "", "event=dead_letter topic=%s", topic)
        return topic

    # A batch of a client

    def batch(
        self, request: Request[Any], plan: SendPlan, born_host: bytes, take: TakeBatch | None = None
    ) -> ClientBatch:
        """Return the messages of a batch request, at least one; the kernel may `take` them."""
        header: SendHeader = request.header
        properties = self._properties(header)
        if properties.get(names.LITE_TOPIC):
            raise self._lite_batch()
        if plan.is_retry:
            remark = f"batch request does not support retry group {plan.topic}"
            raise RequestError(ResponseCode.MESSAGE_ILLEGAL, remark)
        if names.IDEMPOTENCE_ID in properties:
            raise self._illegal(f"A batch has no {names.IDEMPOTENCE_ID}: give each of its messages its own.")
        properties.pop(names.EXPECTED_OFFSET, None)  # a condition of the request, which is not stored
        properties.pop(names.INNER_SHARDING, None)
        sys_flag = header.sys_flag | plan.sys_flag
        if sys_flag & (_TRANSACTION_MASK | _INNER_BATCH) or self._delay_level(properties) > 0:
            raise self._illegal("A batch cannot have a delay or be part of a transaction.")
        if len(request.body) > self._config.store.max_message_size:
            raise RequestError(ResponseCode.MESSAGE_ILLEGAL, self.illegal_remark, Reason.MESSAGE_TOO_LARGE)
        content, max_message_bytes = request.body, self._config.store.max_message_size
        if plan.keeps_batches and names.UNIQ_KEY in properties:
            members = self._members(content, MAX_MESSAGES, check_sizes=True)
            self._check_types(request, plan, members)
            kept = self._inner_batch(request, plan, born_host, properties, len(members))
            return ClientBatch([kept], None, properties[names.UNIQ_KEY], False)
        common, key = self._encoded(properties), properties.get(names.UNIQ_KEY, "")
        # Types are checked here, message by message.
        has_types = plan.limits is not None and bool(plan.limits.policy.message_types)
        records = None if take is None or has_types else take(plan, header, born_host, content, common)
        members = self._members(content, MAX_BATCH_MESSAGES) if records is None else []
        try:
            check_growth(content, len(members if records is None else records), plan.topic, common, max_message_bytes)
        except BadBatch as error:
            raise self._illegal(str(error)) from None
        if records is not None:
            return ClientBatch([], records, key, False)
        self._check_types(request, plan, members)
        messages, have_ids = self._split(request, plan, born_host, members, common)
        return ClientBatch(messages, None, key, have_ids)

    def _check_types(self, request: Request[Any], plan: SendPlan, members: list[Member]) -> None:
        """Raise RequestError unless the namespace allows the type of each message of a batch."""
        if plan.limits is not None:
            spans = ((properties_at, end) for _, _, properties_at, end in members)
            plan.limits.check_types(request.header.properties, request.body, spans)

    def _lite_batch(self) -> RequestError:
        # RocketMQ stores such a message in no lite topic.
        return self._illegal(f"A batch has no lite topics: send each message with {names.LITE_TOPIC} alone.")

    def _split(
        self,
        request: Request[Any],
        plan: SendPlan,
        born_host: bytes,
        members: list[Member],
        common: bytes,
    ) -> tuple[list[PendingMessage], bool]:
        """Return the messages of a batch, and whether any has an id.

        Each message has its own properties, followed by those of the batch.
        """
        header: SendHeader = request.header
        content, view, code_of_tag = request.body, memoryview(request.body), self.tags_codes.of_tag
        topic, queue_id, sys_flag = plan.topic, plan.queue_id, header.sys_flag | plan.sys_flag
        born_timestamp, reconsume_times = header.born_timestamp, header.reconsume_times or 0
        separated, light_queues, have_ids = names.VALUE_END_BYTES + common, 0, False
        may_be_lite = _LITE in content
        messages: list[PendingMessage] = []
        for flag, body_at, properties_at, end in members:
            own = content[properties_at:end]
            if b"INNER_" in own:
                for name in (_LIGHT_OFFSETS, _SCHEDULE, _SHARDING):
                    own = without(own, name)
                have_ids = have_ids or names.find_last(own, _ID) is not None
            if may_be_lite and find_last(own, _LITE) is not None:
                raise self._lite_batch()
            encoded = own + (separated if own and own[-1] != names.VALUE_END_OCTET else common)
            if len(encoded) > MAX_PROPERTIES_BYTES:
                raise RequestError(ResponseCode.MESSAGE_ILLEGAL, self.illegal_remark, Reason.MESSAGE_TOO_LARGE)
            if b"INNER_MULTI_DISPATCH" in encoded:
                light_queues += 1 + encoded.count(b",")
                if light_queues > MAX_BATCH_MESSAGES:
                    raise self._illegal(f"The batch enters more than {MAX_BATCH_MESSAGES} light queues.")
            if plan.needs_key:
                require_key(encoded)
            tags_code = code_of_tag(find_last(encoded, _TAGS) or b"")
            messages.append(
                PendingMessage(
                    topic, queue_id, view[body_at : properties_at - LENGTH_BYTES], encoded, tags_code,
                    flag, sys_flag, born_timestamp, born_host, reconsume_times,
                )
            )  # fmt: skip
        return messages, have_ids

    def _inner_batch(
        self,
        request: Request[Any],
        plan: SendPlan,
        born_host: bytes,
        properties: dict[str, str],
        count: int,
    ) -> PendingMessage:
        """Return the batch of `count` messages as one record, which consumers unwrap."""
        header: SendHeader = request.header
        properties[names.INNER_NUM] = str(count)
        encoded = self._encoded(properties)
        return PendingMessage(
            plan.topic, plan.queue_id, request.body, encoded, self.tags_codes.of("", encoded, 0), header.flag,
            header.sys_flag | plan.sys_flag | _KEPT_BATCH, header.born_timestamp, born_host,
            header.reconsume_times or 0,
        )  # fmt: skip

    def _count(self, content: bytes) -> int:
        """Return how many messages an inner batch holds (`MessageDecoder.countInnerMsgNum`)."""
        return len(self._members(content, MAX_MESSAGES, check_sizes=True))

    def _members(self, content: bytes, max_members: int, *, check_sizes: bool = False) -> list[Member]:
        try:
            return members_of(content, max_members, check_sizes=check_sizes)
        except BadBatch as error:
            raise self._illegal(str(error)) from None
