"""The consumer: what an application receives with."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from types import TracebackType
from typing import Self

import msgspec

from sprocket.client import arguments
from sprocket.client.connection.client_instance import ClientInstance, ClientSettings, settings_of
from sprocket.client.connection.wakeup import Wakeup
from sprocket.client.consume.allocation import AllocateMessageQueueAveragely, AllocateMessageQueueStrategy
from sprocket.client.consume.assignment import Assignment
from sprocket.client.consume.client_remoting_processor import ClientRemotingProcessor
from sprocket.client.consume.consume_settings import ConsumeSettings, MessageModel
from sprocket.client.consume.consume_stats import ConsumerStats
from sprocket.client.consume.consume_timeout import give_back_expired
from sprocket.client.consume.handling import (
    BatchHandler,
    Handler,
    Handling,
    as_batch_handler,
    run_workers,
    try_directly,
)
from sprocket.client.consume.inbox import Inbox
from sprocket.client.consume.message_back import INNER_PRODUCER_GROUP, MessageBack
from sprocket.client.consume.offset_store import LocalFileOffsetStore, OffsetStore, RemoteBrokerOffsetStore
from sprocket.client.consume.process_queue import ProcessQueue
from sprocket.client.consume.pull import Puller, PullLoop
from sprocket.client.consume.rebalance import Rebalance
from sprocket.client.consume.running_info import properties_of, running_info
from sprocket.client.consume.start_offset import ConsumeFrom, StartOffset, checked_start, consume_from_where
from sprocket.client.consume.subscription import ALL, SqlFilter, Topics, retry_topic, subscription, subscriptions
from sprocket.client.consume.subscription_check import check_subscriptions
from sprocket.client.errors import ClientClosed, PermissionDenied
from sprocket.client.message import ReceivedMessage, SendResult
from sprocket.client.send.reply import Reply, make_reply
from sprocket.client.send.request_reply import ReplySender
from sprocket.client.send.send_request import SendSettings
from sprocket.client.send.sender import Sender
from sprocket.common.clock import Clock
from sprocket.remoting.bodies.client import ConsumerData, HeartbeatData, MessageQueue, SubscriptionData
from sprocket.remoting.bodies.consumption import ConsumeMessageDirectlyResult, ConsumerRunningInfo

logger = logging.getLogger(__name__)


def check_received(message: object) -> None:
    """Raises IllegalArgument for what no consumer gave."""
    arguments.choice("message", message, ReceivedMessage, "pass a message that this consumer gave")


class Consumer:
    """Receives the messages of a group; an async context manager and an async iterator::

        async with Consumer(group="g", topics={"Flights": "AA || UA"}, namesrv="127.0.0.1:9876") as consumer:
            async for message in consumer:
                ...
                await consumer.ack(message)

    Every message must be acknowledged with `ack`, or given back with `nack`: the group's offset stays before the
    first that is neither, and pulling stops when too many are.  A message may come more than once: after a `nack`,
    a rebalance, or a crash.  Broker and name server failures are survived without the application's help.
    """

    _is_orderly = False

    def __init__(
        self,
        group: str,
        topics: Topics = (),
        namesrv: str | Sequence[str] = "",
        *,
        model: MessageModel = MessageModel.CLUSTERING,
        consume_from: ConsumeFrom | datetime = ConsumeFrom.LAST,
        strategy: AllocateMessageQueueStrategy | None = None,
        settings: ConsumeSettings | None = None,
        client: ClientSettings | None = None,
        clock: Clock | None = None,
    ) -> None:
        """`topics` is one topic, a list, or maps each to ``*``, tags with ``||`` between them, or a SqlFilter.

        `subscribe` adds more.  A `datetime` in `consume_from` has a time zone.  Raises IllegalArgument.
        """
        self.group = group
        self.model = arguments.choice("model", model, MessageModel, "pass one of MessageModel")
        self._settings = arguments.optional("settings", settings, ConsumeSettings) or ConsumeSettings()
        self._consume_from = checked_start(consume_from)
        self._is_clustering = model is MessageModel.CLUSTERING
        client = settings_of(namesrv, client)
        if not self._is_clustering and client.instance_name is None:
            # The offset file is found again by the client id, so that must stay the same.
            client = replace(client, instance_name="DEFAULT")
        self._instance = ClientInstance(
            client,
            routes=ClientRemotingProcessor(self).routes(),
            heartbeat=self._heartbeat,
            on_route=lambda route: self._rebalance.due.set() if self._is_started else None,
            heartbeat_to_slaves=True,
            clock=clock,
            denied=self._denied,
        )
        self._subscriptions: dict[str, SubscriptionData] = subscriptions(
            group, topics, self._instance.clock.wall_ms(), with_retry=self._is_clustering
        )
        self._rebalance = Rebalance(
            self._instance,
            group,
            (strategy or AllocateMessageQueueAveragely()) if self._is_clustering else None,
            self._subscriptions,
            self._assign,
            self._assignment_changed,
        )
        self._told: dict[str, SubscriptionData] = {}  # what brokers know of `_subscriptions`
        self._is_started = False
        self._is_closed = False
        self._monotonic = self._instance.clock.monotonic
        self._inbox = Inbox(self._monotonic)
        self._stats = ConsumerStats()
        self._handler: BatchHandler | None = None
        self._concurrency = 0
        self._started_ms = 0
        self._retry_topic = retry_topic(group)
        self._back = MessageBack(self._instance, group, self._settings.max_reconsume_times)
        self._replies = ReplySender(Sender(self._instance, INNER_PRODUCER_GROUP, SendSettings()), SendSettings())
        self._assignment: Assignment
        self._persist_due = Wakeup()

    # Opening and closing

    async def __aenter__(self) -> Self:
        await self._instance.open()
        try:
            await check_subscriptions(self._instance, self.group, self._subscriptions.values())
        except BaseException:
            await self._instance.close()
            raise
        store: OffsetStore
        if self._is_clustering:
            # Who names a time wants that time, also on a young queue.
            is_strict = isinstance(self._consume_from, datetime)
            store = RemoteBrokerOffsetStore(self._instance, self.group, is_strict=is_strict)
        else:
            directory = self._settings.local_offset_store_dir
            store = LocalFileOffsetStore(directory, self._instance.client_id, self.group)
        start = StartOffset(self._instance, store, self._consume_from)
        self._assignment = self._new_assignment(store, start)
        self._is_started = True
        self._started_ms = self._instance.clock.wall_ms()
        self._instance.spawn(self._rebalance.run())
        self._spawn_expiry()
        self._instance.spawn(self._persist_offsets())
        return self

    def _spawn_expiry(self) -> None:
        timeout_s = self._settings.consume_timeout_s
        self._instance.spawn(give_back_expired(self._assignment.held, self.nack, self._monotonic, timeout_s))

    def _new_assignment(self, store: OffsetStore, start: StartOffset) -> Assignment:
        return Assignment(self._instance, store, start, self._pull_loop, self._is_wanted)

    def _is_wanted(self, topic: str) -> bool:
        return topic in self._subscriptions

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Stop pulling, commit what is acknowledged, unregister, close the connections; iterations end."""
        if self._is_closed or not self._is_started:
            return
        self._is_closed = True
        self._inbox.close()
        try:
            await self._assignment.close()
            await self._instance.unregister(None, self.group)
        finally:
            await self._instance.close()

    # Subscriptions

    async def subscribe(self, topic: str, expression: str | SqlFilter = ALL) -> None:
        """Receive `topic` too, or with another `expression` from now on; brokers are told before this returns.

        Messages that were pulled with the old expression may still come.  Raises IllegalMessage, and BrokerRefused
        for a SqlFilter that a broker does not take; then the old expression holds.
        """
        arguments.check_topic(topic)
        wanted = subscription(topic, expression, self._instance.clock.wall_ms())
        if self._is_started:
            await check_subscriptions(self._instance, self.group, [wanted])
        self._subscriptions[topic] = wanted
        await self._subscriptions_changed()

    async def unsubscribe(self, topic: str) -> None:
        """Receive nothing more of `topic`; what is acknowledged is committed."""
        if self._subscriptions.pop(topic, None) is not None and self._is_started:
            await self._assignment.assign(topic, set())
            await self._subscriptions_changed()

    async def _subscriptions_changed(self) -> None:
        if self._is_started and not self._is_closed:
            await self._tell_brokers()
            self._rebalance.due.set()

    def members_changed(self) -> None:
        """A broker says that members of the group came or went."""
        self._rebalance.due.set()

    def _heartbeat(self) -> HeartbeatData:
        data = ConsumerData(
            group_name=self.group,
            message_model=self.model.value,
            consume_from_where=consume_from_where(self._consume_from),
            subscription_data_set=list(self._subscriptions.values()),
        )
        return HeartbeatData(self._instance.client_id, consumer_data_set=[data])

    def _pull_loop(self, process_queue: ProcessQueue) -> PullLoop:
        topic = process_queue.queue.topic
        self._told.setdefault(topic, self._subscriptions[topic])
        puller = Puller(self._instance, self.group, self._settings.pull)
        return PullLoop(
            puller,
            process_queue,
            lambda: self._told[topic],
            self._deliver,
            self._instance,
            commits_with_pull=self._is_clustering,
            pulled=self._pulled,
        )

    async def _assign(self, topic: str, queues: set[MessageQueue], grace_s: float) -> tuple[bool, bool]:
        return await self._assignment.assign(topic, queues, grace_s)

    async def _assignment_changed(self) -> None:
        """Tell brokers by a newer version of the subscriptions, as Java's clients do."""
        now_ms = self._instance.clock.wall_ms()
        for topic, data in self._subscriptions.items():
            self._subscriptions[topic] = msgspec.structs.replace(data, sub_version=now_ms)
        await self._tell_brokers()

    async def _tell_brokers(self) -> None:
        """Send what is subscribed, and only then pull by it.

        A broker refuses a pull of a version that it was not told of (SUBSCRIPTION_NOT_LATEST).
        """
        told = dict(self._subscriptions)
        await self._instance.heartbeat_all()
        self._told.update(told)

    async def _persist_offsets(self) -> None:
        while True:
            await self._persist_due.wait(self._instance.settings.persist_consumer_offset_interval_s)
            self._stats.sample(self._monotonic())
            await self._assignment.persist()

    @property
    def assigned_queues(self) -> list[MessageQueue]:
        """The queues that this consumer has now, sorted."""
        return self._assignment.queues if self._is_started else []

    def _restore_topics(self, process_queue: ProcessQueue, messages: list[ReceivedMessage]) -> None:
        if process_queue.queue.topic == self._retry_topic:
            for message in messages:
                message.topic = message.properties.get("RETRY_TOPIC", message.topic)

    def _deliver(self, process_queue: ProcessQueue, messages: list[ReceivedMessage]) -> None:
        self._restore_topics(process_queue, messages)
        self._inbox.put(messages)

    def _pulled(self, topic: str, messages: int, seconds: float) -> None:
        self._stats.pulled(topic, self._monotonic(), messages, seconds)

    def __aiter__(self) -> AsyncIterator[ReceivedMessage]:
        return self

    async def __anext__(self) -> ReceivedMessage:
        message = self._inbox.next_ready()
        if message is not None:
            return message
        taken = await self.receive()
        if not taken:
            raise StopAsyncIteration
        return taken[0]

    async def receive(self, max_messages: int = 1, *, wait_s: float | None = None) -> list[ReceivedMessage]:
        """Up to `max_messages` that lie one behind the other in one queue; waits for the first, `wait_s` at most.

        Empty when none came, or when the consumer is closed (`is_closed`).  Raises ClientClosed before it is open, and
        PermissionDenied when access control refuses its heartbeats or pulls; it goes on trying.
        """
        arguments.whole("max_messages", max_messages, 1)
        wait_s = arguments.wait_or("wait_s", wait_s, None)
        self._check_started()
        try:
            async with asyncio.timeout(wait_s):
                return await self._inbox.take(max_messages)
        except TimeoutError:
            return []
        except PermissionDenied:
            self._instance.outages.told()
            raise

    def _denied(self, error: PermissionDenied | None) -> None:
        """Access control refuses what this consumer does by itself: who waits for messages learns it."""
        self._inbox.fail(error)

    @property
    def is_closed(self) -> bool:
        """Whether it gives no more messages."""
        return self._is_closed

    def _check_started(self) -> None:
        if not self._is_started:
            raise ClientClosed("the consumer is not open; use it inside `async with`")

    async def ack(self, message: ReceivedMessage) -> None:
        """Count `message` as consumed.  The offset is committed within `persist_consumer_offset_interval_s`.

        Of a message whose queue another member has by now, nothing is kept: it comes again there.
        """
        check_received(message)
        self.acknowledge(message)

    def acknowledge(self, message: ReceivedMessage) -> bool:
        """`ack`, which never waits; False when it counted nothing."""
        if not self._assignment.acknowledge(message):
            return False
        now = self._monotonic()
        counts = self._stats.of(message.queue.topic, now)
        counts.consumed += 1
        counts.consumed_s += now - message.taken_at
        return True

    async def nack(self, message: ReceivedMessage, delay_level: int = 0) -> None:
        """Give `message` back: it comes again, to any member of the group, after a delay.

        `delay_level` 1 to 18 chooses the delay, 0 lets it grow with every time, -1 is the dead-letter topic, where
        it also goes after `max_reconsume_times`.  When broadcasting there is no second time: it is only logged.
        Of a message that was acknowledged or given back before, nothing is done; nor of one whose queue another
        member has by now, because that member gets it.
        Raises SendFailed when no broker took it; it is then still unacknowledged.
        """
        check_received(message)
        arguments.delay_level(delay_level, low=-1)
        source = message.source
        if source is not None and (source.is_dropped or not source.is_pending(message)):
            return
        self._stats.of(message.queue.topic, self._monotonic()).failed += 1
        if self._is_clustering:
            await self._back.send(message, delay_level)
        else:
            logger.warning("event=nack_dropped group=%s message=%r reason=broadcasting", self.group, message)
        self._assignment.acknowledge(message)

    async def reply(
        self, message: ReceivedMessage, answer: bytes | Reply, timeout_s: float | None = None
    ) -> SendResult:
        """Answer `message`, which was sent with `Producer.request`; it must be acknowledged all the same.

        Raises IllegalMessage when it asks for no reply, SendFailed when the requester is gone.
        """
        self._instance.check_open()
        check_received(message)
        if timeout_s is not None:
            arguments.timeout("timeout_s", timeout_s)
        return await self._replies.send(answer if isinstance(answer, Reply) else make_reply(message, answer), timeout_s)

    async def run(self, handler: Handler, *, concurrency: int = 20) -> None:
        """Hand every message to `handler`, up to `concurrency` at a time, until the consumer is closed.

        A handler that returns has consumed its message; one that raises gives it back (`nack`), and the error is
        logged; `ReconsumeLater` gives it back without that, after a delay that it may choose.  `handler` may be a
        plain function, which must not block.
        Raises PermissionDenied, after the handlers that run, when access control refuses heartbeats or pulls.
        """
        await self._run(as_batch_handler(arguments.function("handler", handler)), concurrency, 1)

    async def run_batches(self, handler: BatchHandler, *, concurrency: int = 20) -> None:
        """As `run`, with lists of up to `consume_message_batch_max_size` messages of one queue, in its order.

        If `handler` raises, those messages of the list are given back that it has not acknowledged by itself.
        """
        await self._run(
            arguments.function("handler", handler), concurrency, self._settings.consume_message_batch_max_size
        )

    async def _run(self, handler: BatchHandler, concurrency: int, most: int) -> None:
        self._check_started()
        arguments.whole("concurrency", concurrency, 1)
        self._handler, self._concurrency = handler, concurrency
        try:
            await run_workers(Handling(self._inbox, self, handler, most), concurrency)
        except PermissionDenied:
            self._instance.outages.told()
            raise
        finally:
            self._handler = None

    # What brokers ask (`ClientRemotingProcessor`)

    def consume_directly(self, message: ReceivedMessage) -> Awaitable[ConsumeMessageDirectlyResult] | None:
        """Have the handler that runs now consume `message` for an operator; None without one."""
        if self._handler is None:
            return None
        if message.queue.topic == self._retry_topic:
            message.topic = message.properties.get("RETRY_TOPIC", message.topic)
        return try_directly(self._handler, message, self._monotonic, is_orderly=self._is_orderly)

    def committed(self, topic: str) -> dict[MessageQueue, int]:
        """The offset that the group has in each queue of `topic` that this consumer has."""
        held = [queue for queue in self._assignment.held() if queue.queue.topic == topic] if self._is_started else []
        return {queue.queue: queue.commit_offset for queue in held if queue.commit_offset is not None}

    def reset_offsets(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Go on from `offsets` soon, in those of the queues that this consumer has."""
        if self._is_started and not self._is_closed:
            self._instance.spawn(self._assignment.reset(offsets))

    def _locked_at(self, queue: MessageQueue) -> float | None:
        return None

    def running_info(self) -> ConsumerRunningInfo[MessageQueue]:
        """What this consumer does, as `mqadmin consumerStatus` shows it."""
        properties = properties_of(
            self.group,
            self.model,
            self._settings,
            name_servers=str(self._instance.name_servers),
            is_orderly=self._is_orderly,
            concurrency=self._concurrency,
            started_ms=self._started_ms,
            consume_from_where=consume_from_where(self._consume_from),
        )
        held = [(queue, self._locked_at(queue.queue)) for queue in self._assignment.held()] if self._is_started else []
        return running_info(properties, self._subscriptions.values(), held, self._stats, self._instance.clock)
