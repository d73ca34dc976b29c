"""Redrive: send the messages of a dead-letter topic to their original topics, or to the group's retry topic.

A message keeps its id, keys, tag and properties.  It gets the property REDRIVEN_FROM, its offset message id in the
dead-letter topic, which keeps its copy.

The progress of a redrive is the offsets of two groups in the dead-letter topic.  All messages before the offset of
``<group>_REDRIVE`` are sent.  No message from the offset of ``<group>_REDRIVE_SEEN`` on has been tried.  Messages
between them, which a filter left out or a stopped run did not send, are looked up by id in their target topic and not
sent twice.  The lookup needs the target's index, and does not find expired messages.
Only one redrive of a group runs at a time: it locks the queues.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, field
from typing import Final

from sprocket.client import arguments
from sprocket.client.admin.admin_client import AdminClient, AdminError
from sprocket.client.admin.group_admin import GroupAdmin
from sprocket.client.admin.message_lookup import MessageLookup
from sprocket.client.connection.identity import random_number
from sprocket.client.connection.topic_route import TopicRoute, topic_route
from sprocket.client.message import ReceivedMessage
from sprocket.client.send.queue_choice import RoundRobin, by_sharding_key
from sprocket.common.errors import ClientError
from sprocket.remoting.bodies.client import MessageQueue
from sprocket.remoting.bodies.group import SubscriptionGroupConfig
from sprocket.remoting.bodies.route import MASTER_ID
from sprocket.remoting.codec.fastjson import dumps
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.headers.send import SendMessageRequestHeaderV2, SendMessageResponseHeader
from sprocket.remoting.message import properties as names
from sprocket.remoting.message.topic_names import AUTO_CREATE_TOPIC, RETRY_PREFIX, dlq_topic

logger = logging.getLogger(__name__)

REDRIVEN_FROM: Final = "REDRIVEN_FROM"
_PRODUCER_GROUP: Final = "CLIENT_INNER_PRODUCER"
_WINDOW: Final = 32  # messages that are sent at a time
_NOT_CARRIED: Final = names.NOT_CARRIED | {REDRIVEN_FROM}


@dataclass(frozen=True, kw_only=True)
class DeadLetterFilter:
    """Filter of dead letters; they must match every given field.

    `since_ms` and `until_ms` bound the time at which they died; `sql` is SQL92, which the broker must allow
    (enablePropertyFilter).
    """

    tags: Iterable[str] = frozenset()
    keys: Iterable[str] = frozenset()
    since_ms: int | None = None
    until_ms: int | None = None
    sql: str | None = None

    def __post_init__(self) -> None:
        """A str is one tag or key.  Raises IllegalArgument."""
        for name in ("tags", "keys"):
            object.__setattr__(self, name, frozenset(arguments.names_of(name, getattr(self, name))))
        for name in ("since_ms", "until_ms"):
            if getattr(self, name) is not None:
                arguments.whole(name, getattr(self, name), 0)
        if self.sql is not None:
            arguments.text("sql", self.sql)

    def matches(self, message: ReceivedMessage) -> bool:
        """Return whether tag and keys match; time and SQL are applied when messages are read."""
        return (not self.tags or message.tags in self.tags) and (
            not self.keys or not set(self.keys).isdisjoint(message.keys)
        )


@dataclass
class Redriven:
    """Outcome of a redrive, or of a dry run; `targets` counts the messages sent by topic."""

    matched: int = 0
    sent: int = 0
    sent_before: int = 0
    without_origin: int = 0  # messages without an original topic
    targets: dict[str, int] = field(default_factory=dict)


class RedriveFailed(ClientError):
    """A message could not be sent; `done` counts the messages before it.  Another run continues there."""

    def __init__(self, reason: str, done: Redriven) -> None:
        super().__init__(reason)
        self.done = done


class Redrive:
    """Redrive of one group's dead letters.

    With `to_retry` they go to the group's retry topic, so that no other group gets them again.
    """

    def __init__(self, admin: AdminClient, group: str, *, to_retry: bool = False, owner: str = "redrive") -> None:
        """Raises IllegalArgument."""
        arguments.check_group(group)
        self._admin = arguments.choice("admin", admin, AdminClient, "pass an AdminClient")
        self._groups = GroupAdmin(admin)
        self._lookup = MessageLookup(admin)
        self._group = group
        self._to_retry = to_retry
        self._owner = owner
        self._topic = dlq_topic(group)
        self._done_group = f"{group}_REDRIVE"
        self._seen_group = f"{group}_REDRIVE_SEEN"
        self._routes: dict[str, TopicRoute] = {}
        self._choice = RoundRobin(random_number)

    async def run(
        self, wanted: DeadLetterFilter | None = None, *, dry_run: bool = False, max_messages: int | None = None,
        most: int | None = None,
    ) -> Redriven:  # fmt: skip
        """Send the messages that match `wanted`, up to `max_messages`; a dry run sends and records nothing.

        `most` is the older name of `max_messages`.

        Raises AdminError, also when another redrive of the group runs, and RedriveFailed.
        """
        arguments.optional("wanted", wanted, DeadLetterFilter)
        if max_messages is None:
            max_messages = most
        if max_messages is not None:
            arguments.whole("max_messages", max_messages, 1)
        report = Redriven()
        for queue, address in await self._lookup.queues(self._topic):
            if dry_run:
                await self._queue(queue, address, wanted or DeadLetterFilter(), report, True, max_messages)
                continue
            await self._create_groups(address)
            await self._lock(queue, address)
            try:
                await self._queue(queue, address, wanted or DeadLetterFilter(), report, False, max_messages)
            finally:
                await self._unlock(queue, address)
        return report

    async def _queue(
        self, queue: MessageQueue, address: str, wanted: DeadLetterFilter, report: Redriven, dry_run: bool,
        max_messages: int | None,
    ) -> None:  # fmt: skip
        low, high = await self._lookup.bounds(queue, address)
        done = max(low, await self._committed(self._done_group, queue, address))
        seen = await self._committed(self._seen_group, queue, address)
        begin, end = await self._lookup.bounds(queue, address, wanted.since_ms, wanted.until_ms)
        progress = _Progress(done)
        async for page in self._pages(queue, address, max(done, begin), min(high, end), wanted.sql):
            if not dry_run:
                await self._lock(queue, address)  # it holds for a minute
            todo = await self._todo(page, wanted, seen, progress, report)
            if max_messages is not None:
                todo = todo[: max(0, max_messages - report.sent)]
            if not dry_run and todo:
                last = todo[-1].queue_offset + 1
                if last > seen:
                    # Before sending, so that a run after a crash looks up what was sent.
                    await self._commit(self._seen_group, queue, address, last)
                    seen = last
                try:
                    await self._send_all(todo, progress, report)
                finally:
                    if progress.moved:
                        await self._commit(self._done_group, queue, address, progress.offset)
            elif dry_run:
                for message in todo:
                    report.sent += 1
                    self._count(report, self._target_of(message) or "")
            if max_messages is not None and report.sent >= max_messages:
                return
        if not dry_run and progress.moved:
            await self._commit(self._done_group, queue, address, progress.offset)

    async def _todo(
        self, page: list[ReceivedMessage], wanted: DeadLetterFilter, seen: int, progress: "_Progress", report: Redriven
    ) -> list[ReceivedMessage]:
        """Return the messages of a page that match, have a target, and were not sent there before."""
        todo = []
        for message in page:
            if not wanted.matches(message):
                continue
            report.matched += 1
            target = self._target_of(message)
            if target is None:
                report.without_origin += 1
            elif message.queue_offset < seen and await self._was_sent(message, target):
                report.sent_before += 1
                progress.add(message.queue_offset)
            else:
                todo.append(message)
        return todo

    def _target_of(self, message: ReceivedMessage) -> str | None:
        if self._to_retry:
            return RETRY_PREFIX + self._group
        return message.properties.get(names.RETRY_TOPIC)

    async def _was_sent(self, message: ReceivedMessage, target: str) -> bool:
        """Return whether any redrive has sent the message, to either kind of target."""
        origin = message.properties.get(names.RETRY_TOPIC)
        for topic in {target, origin or target, RETRY_PREFIX + self._group}:
            try:
                copies = await self._lookup.by_unique_key(topic, message.message_id)
            except AdminError as error:
                if error.code == ResponseCode.TOPIC_NOT_EXIST:
                    continue
                raise
            if any(copy.properties.get(REDRIVEN_FROM) == message.offset_message_id for copy in copies):
                return True
        return False

    # Reading

    async def _pages(
        self, queue: MessageQueue, address: str, start: int, end: int, sql: str | None
    ) -> AsyncIterator[list[ReceivedMessage]]:
        offset = start
        while offset < end:
            messages, next_offset = await self._lookup.messages(
                queue, address, offset, sql or "*", _WINDOW, expression_type="SQL92" if sql else "TAG"
            )
            if next_offset <= offset:
                return
            yield [message for message in messages if message.queue_offset < end]
            offset = next_offset

    # Sending

    async def _send_all(self, messages: list[ReceivedMessage], progress: "_Progress", report: Redriven) -> None:
        """Send all messages at once, in order on each connection."""
        queues = [await self._queue_for(self._target_of(message) or "", message) for message in messages]
        outcomes = await asyncio.gather(
            *(self._send(message, *place) for message, place in zip(messages, queues, strict=True)),
            return_exceptions=True,
        )
        failure: BaseException | None = None
        for message, (queue, _), outcome in zip(messages, queues, outcomes, strict=True):
            if isinstance(outcome, BaseException):
                failure = failure or outcome
                continue
            progress.add(message.queue_offset)
            report.sent += 1
            self._count(report, queue.topic)
            logger.info(
                "event=redriven group=%s from=%s to=%s msg_id=%s",
                self._group, message.offset_message_id, outcome.msg_id, message.message_id,
            )  # fmt: skip
        if isinstance(failure, AdminError):
            raise RedriveFailed(str(failure), report)
        if failure is not None:
            raise failure

    async def _send(self, message: ReceivedMessage, queue: MessageQueue, address: str) -> SendMessageResponseHeader:
        properties = {name: value for name, value in message.properties.items() if name not in _NOT_CARRIED}
        # The message's own, not its batch's: several copies with one id would be taken for duplicates.
        properties[names.UNIQ_KEY] = message.message_id
        properties[REDRIVEN_FROM] = message.offset_message_id
        if self._to_retry:
            # The property from which the group's consumers read the topic that they subscribed to.
            properties[names.RETRY_TOPIC] = message.properties.get(names.RETRY_TOPIC, message.topic)
        header = SendMessageRequestHeaderV2(
            producer_group=_PRODUCER_GROUP, topic=queue.topic, default_topic=AUTO_CREATE_TOPIC,
            default_topic_queue_nums=4, queue_id=queue.queue_id, sys_flag=0, born_timestamp=message.born_timestamp_ms,
            flag=message.flag, properties=names.encode(properties), reconsume_times=0, unit_mode=False, batch=False,
        )  # fmt: skip
        return await self._admin.ask_header(
            address, RequestCode.SEND_MESSAGE_V2, SendMessageResponseHeader, header, message.body
        )

    async def _queue_for(self, topic: str, message: ReceivedMessage) -> tuple[MessageQueue, str]:
        """Return a queue: for a sharding key the queue of that key, else each queue in turn."""
        route = self._routes.get(topic)
        if route is None:
            route = self._routes[topic] = topic_route(topic, await self._admin.topic_route(topic))
        if not route.publish:
            raise AdminError(f"topic {topic} has no queue that can be written")
        key = message.properties.get(names.SHARDING_KEY)
        queue = self._choice.choose(route) if key is None else by_sharding_key(route, key)
        return queue, route.broker_addresses[queue.broker_name][MASTER_ID]

    def _count(self, report: Redriven, topic: str) -> None:
        report.targets[topic] = report.targets.get(topic, 0) + 1

    # Progress

    async def _create_groups(self, address: str) -> None:
        for group in (self._done_group, self._seen_group):
            body = dumps(SubscriptionGroupConfig(group))
            await self._admin.ask(address, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, body)

    async def _lock(self, queue: MessageQueue, address: str) -> None:
        if not await self._groups.lock(address, self._done_group, self._owner, queue):
            raise AdminError(f"another redrive of group {self._group} runs, or was cut off less than a minute ago")

    async def _unlock(self, queue: MessageQueue, address: str) -> None:
        await self._groups.unlock(address, self._done_group, self._owner, queue)

    async def _committed(self, group: str, queue: MessageQueue, address: str) -> int:
        """Return the committed offset; 0 if there is none."""
        return await self._groups.committed(address, group, queue.topic, queue.queue_id) or 0

    async def _commit(self, group: str, queue: MessageQueue, address: str, offset: int) -> None:
        await self._groups.commit(address, group, queue.topic, queue.queue_id, offset)


class _Progress:
    """Progress of a queue from its start on."""

    def __init__(self, offset: int) -> None:
        self.offset = offset
        self._start = offset
        self._done: set[int] = set()

    @property
    def moved(self) -> bool:
        return self.offset > self._start

    def add(self, offset: int) -> None:
        self._done.add(offset)
        while self.offset in self._done:
            self._done.remove(self.offset)
            self.offset += 1
