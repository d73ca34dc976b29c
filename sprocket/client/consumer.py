"""The consumer that pulls."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TypeVar

import msgspec

from sprocket.client import arguments
from sprocket.client.connection.client_instance import ClientInstance, ClientSettings, settings_of
from sprocket.client.connection.owner import Owner, join
from sprocket.client.connection.topic_route import TopicRoute
from sprocket.client.connection.wakeup import Wakeup
from sprocket.client.connection.wire_names import WireNames
from sprocket.client.consume.client_remoting_processor import BrokerAnswers, ClientRemotingProcessor
from sprocket.client.consume.consume_settings import ConsumeSettings, MessageModel
from sprocket.client.consume.consume_stats import ConsumerStats
from sprocket.client.consume.consume_timeout import give_back_expired
from sprocket.client.consume.handling import (
    BatchHandler,
    Consumption,
    Handler,
    Handling,
    Key,
    as_batch_handler,
    check_received,
    sharding_key_or_queue,
    try_directly,
)
from sprocket.client.consume.inbox import Inbox
from sprocket.client.consume.message_back import INNER_PRODUCER_GROUP, MessageBack
from sprocket.client.consume.running_info import properties_of, running_info
from sprocket.client.consume.subscription import ALL, SqlFilter, Topics, subscription, subscriptions
from sprocket.client.consume.subscription_check import check_subscriptions
from sprocket.client.consume.workers import GRACE_S, RUN_HAS_ALL, Workers, sigterm_stops
from sprocket.client.errors import ClientClosed, ClientError, PermissionDenied
from sprocket.client.message import ReceivedMessage
from sprocket.client.openable import Openable
from sprocket.client.pull.process_queue import ProcessQueue
from sprocket.client.pull.pull import Puller, PullLoop
from sprocket.client.rebalance.allocation import AllocateMessageQueueAveragely, AllocateMessageQueueStrategy
from sprocket.client.rebalance.assignment import Assignment
from sprocket.client.rebalance.control import QueueControl
from sprocket.client.rebalance.listener import ConsumerListener, Notifier
from sprocket.client.rebalance.offset_store import LocalFileOffsetStore, OffsetStore, RemoteBrokerOffsetStore
from sprocket.client.rebalance.rebalance import Rebalance
from sprocket.client.rebalance.start_offset import ConsumeFrom, StartOffset, checked_start, consume_from_where
from sprocket.client.send.reply import Reply, make_reply
from sprocket.client.send.request_reply import ReplySender
from sprocket.client.send.send_request import SendSettings
from sprocket.client.send.sender import Sender
from sprocket.client.send_result import SendResult
from sprocket.client.trace.recorder import TraceSettings
from sprocket.client.trace.tracing import new_tracing
from sprocket.common.clock import Clock
from sprocket.remoting.bodies.client import ConsumerData, HeartbeatData, MessageQueue, SubscriptionData
from sprocket.remoting.bodies.consumption import ConsumeMessageDirectlyResult, ConsumerRunningInfo
from sprocket.remoting.message.topic_names import retry_topic

logger = logging.getLogger(__name__)

T = TypeVar("T")


class Consumer(QueueControl, Openable):
    """Consumer of a group's messages; an async context manager and an async iterator::

        async with Consumer(group="g", topics={"Flights": "AA || UA"}, namesrv="127.0.0.1:9876") as consumer:
            async for message in consumer:
                async with message.process():
                    ...

    Acknowledge every message with `message.ack()`, or reject it with `message.nack()` for redelivery;
    `message.process()` does either.  The group's offset stays before the
    first message without either, and pulling stops if there are too many.  A message may be delivered more than once:
    after a `nack`, a rebalance, or a crash.  The consumer recovers from failures of brokers and name servers by itself.
    """

    _is_orderly = False
    # State before `start`.
    _is_started = False
    _is_closed = False
    _is_denied = False
    _handler: BatchHandler | None = None
    _concurrency = 0
    _started_ms = 0

    def __init__(
        self,
        group: str,
        topics: Topics = (),
        namesrv: str | Sequence[str] = "",
        *,
        model: MessageModel = MessageModel.CLUSTERING,
        consume_from: ConsumeFrom | datetime = ConsumeFrom.LAST,
        max_in_flight: int | None = None,
        listener: ConsumerListener | None = None,
        strategy: AllocateMessageQueueStrategy | None = None,
        settings: ConsumeSettings | None = None,
        client: ClientSettings | None = None,
        clock: Clock | None = None,
        trace: TraceSettings | None = None,
        owner: Owner | None = None,
    ) -> None:
        """`topics` is one topic, a list, or maps each to ``*``, tags with ``||`` between them, or a SqlFilter.

        The application has at most `max_in_flight` unacknowledged messages at a time.  `listener` hears of queues and
        connections that come and go.  A `datetime` in `consume_from` has a time zone.  A consumer with an `owner` opens
        at its first use.  Raises IllegalArgument.
        """
        super().__init__()
        self.group = group
        self._owner = owner
        self._max_in_flight = None if max_in_flight is None else arguments.whole("max_in_flight", max_in_flight, 1)
        self._listener = arguments.optional("listener", listener, ConsumerListener)
        self._notifier = None if listener is None else Notifier(listener)
        self._runs: list[Workers] = []
        self._opening = asyncio.Lock()
        self.model = arguments.choice("model", model, MessageModel, "pass one of MessageModel")
        self._settings = arguments.optional("settings", settings, ConsumeSettings) or ConsumeSettings()
        self._consume_from = checked_start(consume_from)
        self._is_clustering = model is MessageModel.CLUSTERING
        self._instance = self._new_instance(settings_of(namesrv, client), clock)
        self._subscriptions: dict[str, SubscriptionData] = subscriptions(
            group, topics, self._instance.clock.wall_ms(), with_retry=self._is_clustering
        )
        chosen = (strategy or AllocateMessageQueueAveragely()) if self._is_clustering else None
        self._rebalance = Rebalance(
            self._instance, group, chosen, self._subscriptions, self._assign, self._assignment_changed
        )
        self._told: dict[str, SubscriptionData] = {}  # what brokers know of `_subscriptions`
        self._monotonic = self._instance.clock.monotonic
        self._tracing = new_tracing(trace, self._instance, group)
        self._inbox = Inbox(
            self._monotonic,
            [] if self._tracing is None else [self._tracing.taken],
            None if max_in_flight is None else self._has_room,
        )
        self._stats = ConsumerStats()
        self._retry_topic = retry_topic(group)
        self._back = MessageBack(self._instance, group, self._settings.max_reconsume_times)
        self._replies = ReplySender(Sender(self._instance, INNER_PRODUCER_GROUP, SendSettings()), SendSettings())
        self._persist_due = Wakeup()

    def _new_instance(self, client: ClientSettings, clock: Clock | None) -> ClientInstance:
        if not self._is_clustering and client.instance_name is None:
            # The client id names the offset file, so it must stay the same.
            client = replace(client, instance_name="DEFAULT")
        return ClientInstance(
            client, routes=ClientRemotingProcessor(self._broker_answers(), WireNames(client.namespace)).routes(),
            heartbeat=self._heartbeat, on_route=self._route_changed, heartbeat_to_slaves=True, clock=clock,
            denied=self._denied, connection_changed=self._connection_changed, on_lost=self._fail,
        )  # fmt: skip

    # Opening and closing

    async def start(self) -> None:
        """Open the consumer; a second call does nothing.

        Raises BrokerRefused for a SqlFilter that a broker refuses, TlsUnusable for invalid TLS files, and ClientClosed
        after `close`.
        """
        async with self._opening:
            if self._is_closed:
                raise ClientClosed(f"the consumer of group {self.group} is closed; make a new one")
            if not self._is_started:
                if self._owner is not None:
                    self._owner.check_open()
                await self._start()
                await join(self._owner, self)

    async def _start(self) -> None:
        await self._instance.open()
        try:
            await check_subscriptions(self._instance, self.group, self._subscriptions.values())
        except BaseException:
            await self._instance.close()
            raise
        store: OffsetStore
        if self._is_clustering:
            is_strict = isinstance(self._consume_from, datetime)  # a time counts also on a new queue
            store = RemoteBrokerOffsetStore(self._instance, self.group, is_strict=is_strict)
        else:
            directory = self._settings.local_offset_store_dir
            store = LocalFileOffsetStore(directory, self._instance.client_id, self._instance.names.whole(self.group))
        self._start_offset = StartOffset(self._instance, store, self._consume_from)
        self._assignment = self._new_assignment(store, self._start_offset)
        self._is_started = True
        self._started_ms = self._instance.clock.wall_ms()
        self._instance.keep(self._rebalance.run())
        self._spawn_expiry()
        self._instance.keep(self._persist_offsets())
        if self._tracing is not None:
            self._tracing.start()

    def _spawn_expiry(self) -> None:
        timeout_s = self._settings.consume_timeout_s
        self._instance.spawn(give_back_expired(self._assignment.held, self.nack, self._monotonic, timeout_s))

    def _new_assignment(self, store: OffsetStore, start: StartOffset) -> Assignment:
        return Assignment(self._instance, store, start, self._pull_loop, self._is_wanted, self, self._notifier)

    def _route_changed(self, _route: TopicRoute) -> None:
        if self._is_started:
            self._rebalance.due.set()

    def _is_wanted(self, topic: str) -> bool:
        return topic in self._subscriptions

    async def close(self) -> None:
        """Wait for running handlers of `run`, 15 s at most; commit, unregister and close; iterations end."""
        if self._is_closed or not self._is_started or not self._instance.is_open:
            return
        self._is_closed = True
        self._inbox.close()
        try:
            for run in list(self._runs):
                if not run.has_current:
                    await run.ended(GRACE_S)
            await self._assignment.close()
            if self._tracing is not None:
                await self._tracing.close()
            await self._instance.unregister(None, self.group)
        finally:
            if self._owner is not None:
                self._owner.left(self)
            await self._instance.close()

    # Subscriptions

    async def subscribe(self, topic: str, expression: str | SqlFilter = ALL) -> None:
        """Subscribe to `topic`, or change its `expression`.  The brokers know of it when this returns.

        Messages that were pulled with the old expression may still be delivered.  Raises IllegalMessage, and
        BrokerRefused for a SqlFilter that a broker refuses; then the old expression stays in force.
        """
        arguments.check_topic(topic)
        wanted = subscription(topic, expression, self._instance.clock.wall_ms())
        if self._is_started:
            await check_subscriptions(self._instance, self.group, [wanted])
        self._subscriptions[topic] = wanted
        await self._subscriptions_changed()

    async def unsubscribe(self, topic: str) -> None:
        """Unsubscribe from `topic`; acknowledged offsets are committed."""
        if self._subscriptions.pop(topic, None) is not None and self._is_started:
            await self._assignment.assign(topic, set())
            await self._subscriptions_changed()

    async def _subscriptions_changed(self) -> None:
        if self._is_started and not self._is_closed:
            await self._tell_brokers()
            self._rebalance.due.set()

    @property
    def client_id(self) -> str:
        """Id of this client at brokers, as `mqadmin` shows it.  Raises ClientClosed unless the client is open."""
        self._instance.check_open()
        return self._instance.client_id

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
        puller = Puller(self._instance, self.group, self._settings.pull, process_queue.queue)
        return PullLoop(
            puller,
            process_queue,
            lambda: self._told[topic],
            self._deliver,
            self._instance,
            commits_with_pull=self._is_clustering,
            pulled=lambda topic, messages, seconds: self._stats.pulled(topic, self._monotonic(), messages, seconds),
            is_paused=lambda: process_queue.queue in self._paused,
        )

    async def _assign(self, topic: str, queues: set[MessageQueue], grace_s: float) -> tuple[bool, bool]:
        return await self._assignment.assign(topic, queues, grace_s)

    async def _assignment_changed(self) -> None:
        """Give the subscriptions a newer version, which tells brokers of a change, as Java's clients do."""
        self._inbox.wake()  # messages of queues that went away are no longer in flight
        now_ms = self._instance.clock.wall_ms()
        for topic, data in self._subscriptions.items():
            self._subscriptions[topic] = msgspec.structs.replace(data, sub_version=now_ms)
        await self._tell_brokers()

    async def _tell_brokers(self) -> None:
        """Send the subscriptions to brokers before pulls use them.

        A broker refuses a pull with a version that it does not know (SUBSCRIPTION_NOT_LATEST).
        """
        told = dict(self._subscriptions)
        await self._instance.heartbeat_all()
        self._told.update(told)

    async def _persist_offsets(self) -> None:
        while True:
            await self._persist_due.wait(self._instance.settings.persist_consumer_offset_interval_s)
            self._stats.sample(self._monotonic())
            await self._assignment.persist()

    def _has_room(self) -> bool:
        held = self._assignment.held() if self._is_started else ()
        return self._max_in_flight is None or sum(len(each.taken) for each in held) < self._max_in_flight

    def _connection_changed(self, address: str, is_open: bool) -> None:
        if (listener := self._listener) is not None:
            self._tell(listener.on_connection_restored if is_open else listener.on_connection_lost, address)

    def _tell(self, callback: Callable[[T], Awaitable[None] | None], what: T) -> None:
        if self._notifier is not None:
            self._instance.spawn(self._notifier.tell(lambda: callback(what)))

    def _restore_topics(self, queue: MessageQueue, messages: list[ReceivedMessage]) -> None:
        if queue.topic == self._retry_topic:
            for message in messages:
                message.topic = self._instance.names.bare(message.properties.get("RETRY_TOPIC", message.topic))

    def _deliver(self, process_queue: ProcessQueue, messages: list[ReceivedMessage]) -> None:
        self._restore_topics(process_queue.queue, messages)
        self._inbox.put(messages)

    def __aiter__(self) -> AsyncIterator[ReceivedMessage]:
        return self

    async def __anext__(self) -> ReceivedMessage:
        if (message := self._inbox.next_ready()) is not None:
            return message
        taken = await self.receive()
        if not taken:
            raise StopAsyncIteration
        return taken[0]

    async def receive(self, max_messages: int = 1, *, wait_s: float | None = None) -> list[ReceivedMessage]:
        """Return up to `max_messages` consecutive messages of one queue; wait at most `wait_s` for the first.

        The list is empty if none arrived, or if the consumer is closed (`is_closed`).  Raises ClientClosed before it is
        open, and PermissionDenied if access control refuses its heartbeats or pulls, which it continues to send.
        """
        arguments.whole("max_messages", max_messages, 1)
        wait_s = arguments.wait_or("wait_s", wait_s, None)
        if not self._is_started:
            await self._first_use()
        if self._runs:
            raise ClientError(RUN_HAS_ALL)
        if not self._is_closed:
            self._instance.check_open()
        try:
            if wait_s is None:
                return await self._inbox.take(max_messages)
            async with asyncio.timeout(wait_s):
                return await self._inbox.take(max_messages)
        except TimeoutError:
            return []
        except PermissionDenied:
            self._instance.outages.told()
            raise

    def _denied(self, error: PermissionDenied | None) -> None:
        """Pass a refusal of access control for this consumer's own requests to the callers that wait for messages."""
        self._tell_denied(error)
        self._fail(error or self._instance.lost)

    def _fail(self, error: ClientError | None) -> None:
        """Raise `error` where the application waits for messages."""
        self._inbox.fail(error)

    def _tell_denied(self, error: PermissionDenied | None) -> None:
        if error is not None and self._listener is not None and not self._is_denied:
            self._tell(self._listener.on_permission_lost, error)
        self._is_denied = error is not None

    def stop(self) -> None:
        """End `run` and iterations after the messages in work.  The consumer delivers nothing more; `close` it then."""
        self._inbox.close()

    @property
    def is_closed(self) -> bool:
        """Whether the consumer delivers no more messages."""
        return self._is_closed

    async def _first_use(self) -> None:
        """Open a consumer that a connection owns.  Raises ClientClosed for any other that is not open."""
        if self._owner is None and not self._is_started:
            raise ClientClosed("the consumer is not open; use it inside `async with`")
        if not self._is_closed:
            await self.start()
            self._instance.check_open()

    async def ack(self, message: ReceivedMessage) -> None:
        """Count `message` as consumed.  The offset is committed within `persist_consumer_offset_interval_s`.

        If another member has the queue by now, the acknowledgement has no effect: the message is redelivered there.
        """
        if type(message) is not ReceivedMessage:
            check_received(message)
        self._acknowledge(message)

    def _acknowledge(self, message: ReceivedMessage) -> bool:
        """Count `message` as consumed.  Return False if it had no effect."""
        if not self._assignment.acknowledge(message):
            return False
        if self._max_in_flight is not None:
            self._inbox.wake()
        now = self._monotonic()
        counts = self._stats.of(message.queue.topic, now)
        counts.consumed += 1
        counts.consumed_s += now - message.taken_at
        if self._tracing is not None:
            self._tracing.finished(message, is_success=True)
        return True

    async def nack(
        self, message: ReceivedMessage, delay_level: int = 0, *, delay: timedelta | float | None = None
    ) -> None:
        """Reject `message`: it is redelivered to any member of the group after a delay.

        `delay`, a timedelta or seconds, is rounded up to the next of RocketMQ's delay levels, 1 s to 2 h.
        `delay_level` 1 to 18 chooses the delay, 0 lets it grow with every retry, and -1 sends the message to the
        dead-letter topic, as do more than `max_reconsume_times` retries.  With broadcasting there is no redelivery,
        only a log line.  A message that was acknowledged or rejected before is ignored.  So is one whose queue another
        member has by now, because that member gets it.  Raises SendFailed if no broker took it; the message is then
        still unacknowledged.
        """
        check_received(message)
        arguments.delay_level(delay_level, low=-1)
        if delay is not None:
            delay_level = arguments.level_of_delay("delay", delay)
        if message.source is not None and self.is_settled(message):
            return
        self._stats.of(message.queue.topic, self._monotonic()).failed += 1
        if self._tracing is not None:
            self._tracing.finished(message, is_success=False)
        if self._is_clustering:
            await self._back.send(message, delay_level)
        else:
            logger.warning("event=nack_dropped group=%s message=%r reason=broadcasting", self.group, message)
        self._assignment.acknowledge(message)

    def is_settled(self, message: ReceivedMessage) -> bool:
        """Return whether `message` was acknowledged or rejected, or another member may have its queue."""
        check_received(message)
        source = message.source
        return source is None or source.is_dropped or not source.is_pending(message)

    async def extend(self, message: ReceivedMessage, duration: timedelta | float | None = None) -> None:
        """Allow `duration` from now on for the work with `message`, without it `consume_timeout_s`."""
        check_received(message)
        limit_s = self._settings.consume_timeout_s
        duration_s = arguments.timeout_or("duration", duration, limit_s)
        if message.source is not None:
            message.source.extend(message, self._monotonic() + duration_s - limit_s)

    async def dead_letter(self, message: ReceivedMessage, reason: str = "") -> None:
        """Give `message` up, as `ReceivedMessage.dead_letter`.

        Ignored after `ack` and `nack`.  With broadcasting there are no dead letters, only a log line.  Raises
        SendFailed if no broker took it; the message is then still unacknowledged.
        """
        arguments.text("reason", reason)
        if self.is_settled(message):
            return
        self._stats.of(message.queue.topic, self._monotonic()).failed += 1
        if self._tracing is not None:
            self._tracing.finished(message, is_success=False)
        if self._is_clustering:
            await self._back.send_dead_letter(message, reason)
        else:
            logger.warning("event=nack_dropped group=%s message=%r reason=broadcasting", self.group, message)
        self._assignment.acknowledge(message)

    async def reply(
        self, message: ReceivedMessage, answer: bytes | Reply, timeout_s: float | None = None
    ) -> SendResult:
        """Reply to `message` as `ReceivedMessage.reply`, within `timeout_s`."""
        self._instance.check_open()
        check_received(message)
        if timeout_s is not None:
            arguments.timeout("timeout_s", timeout_s)
        return await self._replies.send(answer if isinstance(answer, Reply) else make_reply(message, answer), timeout_s)

    async def run(self, handler: Handler, *, concurrency: int = 20, by_key: bool | Key = False) -> None:
        """Hand every message to `handler`, up to `concurrency` at a time, until `stop`, `close` or SIGTERM.

        If the handler returns, its message is acknowledged.  If it raises, the message is redelivered (`nack`) and the
        error is logged.  `ReconsumeLater` redelivers it without a log line, after a delay that it may choose.
        `handler` may be a plain function, which must not block.

        With `by_key` messages of one sharding key are handled one after the other, and keys side by side; a function
        returns another key than `message.sharding_key`.  A redelivered message loses its place; see `OrderlyConsumer`.

        At its end, also after a cancellation, running handlers have ended (within 15 s) and offsets are committed.
        SIGTERM counts if the program runs this in its main thread and has no handler for it.  If access control refuses
        heartbeats or pulls, PermissionDenied is raised after the running handlers.
        """
        arguments.handler("handler", handler, "a message")
        key = sharding_key_or_queue if by_key is True else (by_key or None)
        if key is not None:
            arguments.handler("by_key", key, "a message")
        await self._run(as_batch_handler(handler), concurrency, 1, key)

    async def run_batches(self, handler: BatchHandler, *, concurrency: int = 20) -> None:
        """Do as `run`, with lists of up to `consume_message_batch_max_size` messages of one queue, in order.

        If `handler` raises, the messages of the list that it has not acknowledged itself are redelivered.
        """
        await self._run(
            arguments.handler("handler", handler, "a list of messages"), concurrency,
            self._settings.consume_message_batch_max_size,
        )  # fmt: skip

    async def _run(self, handler: BatchHandler, concurrency: int, max_messages: int, key: Key | None = None) -> None:
        arguments.whole("concurrency", concurrency, 1)
        await self._first_use()
        if self._inbox.is_awaited:
            raise ClientError("an iteration or `receive` waits for messages of this consumer; use either it or `run`")
        self._handler, self._concurrency = handler, concurrency
        if self._tracing is not None:
            handler = self._tracing.around(handler)
        consumption = Consumption(self.group, self._acknowledge, self.nack)
        handling = Handling(self._inbox, consumption, handler, max_messages, key)
        workers = Workers(handling.work, concurrency, handling.stop)
        self._runs.append(workers)
        try:
            with sigterm_stops.calling(self.stop):
                await workers.run()
        finally:
            self._runs.remove(workers)
            self._handler = None
            await self._handlers_ended()
        if handling.denied is not None:
            self._instance.outages.told()
            raise handling.denied

    async def _handlers_ended(self) -> None:
        if not self._is_closed:
            await self._assignment.persist()

    # Requests of brokers

    def _broker_answers(self) -> BrokerAnswers:
        return BrokerAnswers(
            group=self.group,
            running_info=self._running_info,
            consume_directly=self._consume_directly,
            committed=self.committed,
            members_changed=lambda: self._rebalance.due.set(),
            reset_offsets=self._reset_offsets,
        )

    def _consume_directly(self, message: ReceivedMessage) -> Awaitable[ConsumeMessageDirectlyResult] | None:
        """Let the current handler consume `message` for an operator; None without a handler."""
        if self._handler is None:
            return None
        self._restore_topics(message.queue, [message])
        return try_directly(self._handler, message, self._monotonic, is_orderly=self._is_orderly)

    def _reset_offsets(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Continue from `offsets` soon, in the queues that this consumer has."""
        if self._is_started and not self._is_closed:
            self._instance.spawn(self._assignment.reset(offsets))

    def _locked_at(self, queue: MessageQueue) -> float | None:
        return None

    def _running_info(self) -> ConsumerRunningInfo[MessageQueue]:
        """Return the state of this consumer for `mqadmin consumerStatus`."""
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
