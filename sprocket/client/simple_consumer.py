"""The consumer that pops: a broker makes a message invisible for a time, and redelivers it if nobody acknowledges it.

No queue belongs to a member of the group, so there is no rebalance, and a slow message delays no other.
Source: RocketMQ 5.3.3, `PopMessageProcessor`, `DefaultMQPushConsumerImpl.popMessage`; the interface follows the
`SimpleConsumer` of RocketMQ's newer clients.
"""

import asyncio
import inspect
import logging
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from datetime import timedelta

from sprocket.client import arguments
from sprocket.client.connection.client_instance import ClientInstance, ClientSettings, settings_of
from sprocket.client.connection.identity import random_number
from sprocket.client.connection.owner import Owner, join
from sprocket.client.connection.wakeup import Wakeup, pause
from sprocket.client.connection.wire_names import WireNames
from sprocket.client.consume.client_remoting_processor import ClientRemotingProcessor
from sprocket.client.consume.message_back import INNER_PRODUCER_GROUP, MessageBack
from sprocket.client.consume.reconsume_later import ReconsumeLater
from sprocket.client.consume.subscription import Topics, subscriptions
from sprocket.client.consume.subscription_check import check_subscriptions
from sprocket.client.consume.workers import GRACE_S, RUN_HAS_ALL, Workers, sigterm_stops
from sprocket.client.errors import ClientClosed, ClientError, IllegalMessage, PermissionDenied
from sprocket.client.openable import Openable
from sprocket.client.pop.done_messages import DoneMessages
from sprocket.client.pop.pop_requests import MAX_POP_NUMS, PopRequests, Target
from sprocket.client.pop.pop_settings import PopSettings
from sprocket.client.pop.pop_subject import PopHandler, PopSubject
from sprocket.client.pop.pop_targets import PopTargets
from sprocket.client.pop.popped_message import PoppedMessage, mark_settled
from sprocket.client.pop.ready_messages import ReadyMessages
from sprocket.client.pop.renewal import Renewal
from sprocket.client.rebalance.start_offset import ConsumeFrom
from sprocket.client.send.reply import Reply, make_reply
from sprocket.client.send.request_reply import ReplySender
from sprocket.client.send.send_request import SendSettings
from sprocket.client.send.sender import Sender
from sprocket.client.send_result import SendResult
from sprocket.client.trace.recorder import TraceSettings
from sprocket.client.trace.tracing import new_tracing
from sprocket.common.cancellation import is_cancelled
from sprocket.common.clock import Clock, SystemClock
from sprocket.common.errors import SprocketError
from sprocket.remoting.bodies.client import ConsumerData, HeartbeatData, SubscriptionData

logger = logging.getLogger(__name__)

_RETRY_S = 1.0
# Invisible time of messages that are returned unseen.
_GIVE_BACK_S = 1.0
# Share of the invisible time that a message kept for the next `receive` must have left.
_MIN_LEFT = 0.5


def _check_popped(popped: object) -> None:
    arguments.choice("popped", popped, PoppedMessage, "pass a message that this consumer gave")


class SimpleConsumer(Openable):
    """Consumer that takes messages on request; an async context manager::

        async with SimpleConsumer("g", {"Flights": "AA || UA"}, "127.0.0.1:9876") as consumer:
            for message in await consumer.receive(16, invisible=30):
                async with message.process():
                    ...

    or as they arrive, each renewed until it is acknowledged, at most for `renew_limit_s`::

            async for message in consumer:
                async with message.process():
                    ...

    A message that is not acknowledged within its invisible time is redelivered to any member of the group.  An
    iteration and `run` do not give a message again that the application still has.  Brokers need RocketMQ 5.
    """

    # State before `start`.
    _is_closed = False
    _is_stopping = False
    _iterations = 0

    def __init__(
        self,
        group: str,
        topics: Topics,
        namesrv: str | Sequence[str] = "",
        *,
        consume_from: ConsumeFrom = ConsumeFrom.LAST,
        ordered: bool = False,
        settings: PopSettings | None = None,
        client: ClientSettings | None = None,
        clock: Clock | None = None,
        trace: TraceSettings | None = None,
        owner: Owner | None = None,
    ) -> None:
        """`topics` as for `Consumer`.  With `ordered` a queue delivers nothing until its messages are acknowledged.

        A consumer with an `owner` opens at its first use.  Raises IllegalArgument.
        """
        self.group = group
        self._owner = owner
        self._opening = asyncio.Lock()
        self._runs: list[Workers] = []
        arguments.choice("consume_from", consume_from, ConsumeFrom, "pass ConsumeFrom.FIRST or ConsumeFrom.LAST")
        arguments.switch("ordered", ordered)
        self._settings = arguments.optional("settings", settings, PopSettings) or PopSettings()
        client = settings_of(namesrv, client)
        clock = clock or SystemClock()
        self._subscriptions: dict[str, SubscriptionData] = subscriptions(
            group, topics, clock.wall_ms(), with_retry=False
        )
        if not self._subscriptions:
            raise IllegalMessage("a SimpleConsumer has at least one topic")
        self._renewal = self._new_renewal(clock)
        self._done = DoneMessages(clock.monotonic, self._settings.remember_s)
        self._subject = PopSubject(
            group, ";".join(arguments.addresses("namesrv", client.namesrv)), self._subscriptions,
            self._renewal.held, clock.monotonic,
            is_ordered=ordered,
        )  # fmt: skip
        self._arrived = Wakeup()
        self._instance = self._new_instance(client, clock)
        self._pops = self._new_pops(consume_from, ordered)
        self._back = MessageBack(self._instance, group, -1)
        self._replies = ReplySender(Sender(self._instance, INNER_PRODUCER_GROUP, SendSettings()), SendSettings())
        self._tracing = new_tracing(trace, self._instance, group)
        self._left_over: deque[PoppedMessage] = deque()  # of a `receive` that was cancelled
        self._targets = self._new_targets()
        self._ready = self._new_ready()  # of the iteration
        self._room = Wakeup()
        self._loops: dict[Target, asyncio.Task[None]] = {}

    def _new_instance(self, client: ClientSettings, clock: Clock) -> ClientInstance:
        return ClientInstance(
            client,
            routes=ClientRemotingProcessor(self._subject, WireNames(client.namespace)).routes(),
            heartbeat=self._heartbeat,
            clock=clock,
            denied=lambda error: self._arrived.set(),
            on_lost=lambda error: self._arrived.set(),
        )

    def _new_pops(self, consume_from: ConsumeFrom, ordered: bool) -> PopRequests:
        init_mode = 0 if consume_from is ConsumeFrom.FIRST else 1
        return PopRequests(self._instance, self.group, init_mode=init_mode, is_ordered=ordered, consumer=self)

    def _new_targets(self) -> PopTargets:
        return PopTargets(self._instance, self._pops, self._subscriptions, self._left_over.extend, random_number())

    def _new_ready(self) -> ReadyMessages:
        return deque()

    async def _check_subscriptions(self) -> None:
        await check_subscriptions(self._instance, self.group, self._subscriptions.values())

    def _new_renewal(self, clock: Clock) -> Renewal:
        settings = self._settings
        return Renewal(
            self._renew_one,
            clock.monotonic,
            invisible_s=settings.pop_invisible_time_s,
            limit_s=settings.renew_limit_s,
        )

    # Opening and closing

    async def start(self) -> None:
        """Open the consumer; a second call does nothing.  Raises as `Consumer.start`."""
        async with self._opening:
            if self._is_closed:
                raise ClientClosed(f"the consumer of group {self.group} is closed; make a new one")
            if not self._instance.is_open:
                if self._owner is not None:
                    self._owner.check_open()
                await self._start()
                await join(self._owner, self)

    async def _first_use(self) -> None:
        """Open a consumer that a connection owns.  Raises ClientClosed for any other that is not open."""
        if self._owner is None:
            self._instance.check_open()
        elif not self._instance.is_open:
            await self.start()
            self._instance.check_open()

    async def _start(self) -> None:
        await self._instance.open()
        try:
            await self._check_subscriptions()
        except BaseException:
            await self._instance.close()
            raise
        self._instance.keep(self._renewal.run())
        if self._tracing is not None:
            self._tracing.start()
        self._subject.opened(self._instance.clock.wall_ms())

    async def close(self) -> None:
        """Wait for running handlers of `run`, 15 s at most; return unseen messages to brokers, unregister and close.

        Iterations end.
        """
        if not self._instance.is_open:
            return
        self._is_closed = True
        self.stop()
        for run in list(self._runs):
            if not run.has_current:
                await run.ended(GRACE_S)
        for task in self._loops.values():
            task.cancel()
        try:
            await asyncio.gather(*self._loops.values(), return_exceptions=True)
            unseen = [*self._ready, *self._left_over]
            self._ready.clear()
            self._left_over.clear()
            self._renewal.forget_all()
            await asyncio.gather(*(self._give_back(popped) for popped in unseen))
            if self._tracing is not None:
                await self._tracing.close()
            await self._unregister()
        finally:
            if self._owner is not None:
                self._owner.left(self)
            await self._instance.close()
            self._arrived.set()

    async def _unregister(self) -> None:
        await self._instance.unregister(None, self.group)

    async def _give_back(self, popped: PoppedMessage) -> None:
        try:
            await self._pops.change_invisible(popped, _GIVE_BACK_S)
        except SprocketError as error:
            logger.info("event=not_given_back message=%r reason=%r", popped, str(error))

    @property
    def client_id(self) -> str:
        """Id of this client at brokers, as `mqadmin` shows it.  Raises ClientClosed unless the client is open."""
        self._instance.check_open()
        return self._instance.client_id

    def _heartbeat(self) -> HeartbeatData:
        data = ConsumerData(
            group_name=self.group,
            consume_type="CONSUME_POP",
            subscription_data_set=list(self._subscriptions.values()),
        )
        return HeartbeatData(self._instance.client_id, consumer_data_set=[data])

    # Taking

    async def receive(
        self,
        max_messages: int = MAX_POP_NUMS,
        *,
        invisible: timedelta | float | None = None,
        wait_s: float | None = None,
        renew: bool = False,
    ) -> list[PoppedMessage]:
        """Return up to `max_messages` of one broker, at most 32; an empty list if there are none for `wait_s`.

        They are invisible to others for `invisible`, a timedelta or s (`pop_invisible_time_s` by default); `ack` or
        `extend` them within that.  With `renew` they are renewed as those of an iteration, and an empty list may come
        early.  `wait_s` is `poll_time_s` by default, 0 does not wait.
        Raises TopicNotFound, NameServerUnreachable, BrokerRefused if no broker could be asked, ClientClosed.
        """
        await self._first_use()
        arguments.whole("max_messages", max_messages, 1, MAX_POP_NUMS)
        invisible_s = arguments.timeout_or("invisible", invisible, self._settings.pop_invisible_time_s)
        wait_s = arguments.wait_or("wait_s", wait_s, self._settings.poll_time_s) or 0.0
        arguments.switch("renew", renew)
        received = self._take_left_over(max_messages)
        if not received:
            received = await self._targets.receive(max_messages, invisible_s, wait_s)
        # No wait from here on: a caller that is cancelled there would lose what is renewed.
        if renew:
            received = self._hold_new(received)
        if self._tracing is not None:
            self._tracing.taken(received)
        return received

    def _take_left_over(self, max_messages: int) -> list[PoppedMessage]:
        now = self._instance.clock.monotonic()
        kept: list[PoppedMessage] = []
        while self._left_over and len(kept) < max_messages:
            popped = self._left_over.popleft()
            if popped.invisible_until - now > popped.handle.invisible_ms / 1000 * _MIN_LEFT:
                kept.append(popped)
        return kept

    def _hold_new(self, batch: list[PoppedMessage]) -> list[PoppedMessage]:
        """Renew `batch`; return it without messages that are in work here already, or that were acknowledged."""
        new = []
        for popped in batch:
            if self._renewal.has_earlier(popped) or popped in self._done:
                self._instance.spawn(self._settle_repeat(popped))
            else:
                self._renewal.hold([popped])
                new.append(popped)
        return new

    async def _settle_repeat(self, popped: PoppedMessage) -> None:
        """Acknowledge `popped`; if its message is in work, that keeps the newer of the two handles."""
        if not await self._renewal.take_over(popped) and popped not in self._done:
            return  # the application rejected the message meanwhile
        try:
            await self._pops.ack(popped)
        except SprocketError as error:
            logger.info("event=repeat_not_acknowledged message=%r reason=%r", popped, str(error))
        else:
            self._done.acknowledged(popped)

    # Acknowledging and renewing

    async def ack(self, popped: PoppedMessage) -> None:
        """Count `popped` as consumed.

        Raises BrokerRefused if its invisible time is over and the handle is no longer valid; BrokerNotFound,
        ConnectFailed, ConnectionLost, RemotingTimeout if the broker could not be reached: it may be redelivered then.
        """
        _check_popped(popped)
        mark_settled(popped)
        self._done.add(popped)
        await self._released(popped)
        await self._pops.ack(popped)
        self._done.acknowledged(popped)
        self._trace_end(popped, is_success=True)

    def _trace_end(self, popped: PoppedMessage, *, is_success: bool) -> None:
        if self._tracing is not None:
            self._tracing.finished(popped, is_success=is_success)

    async def ack_all(self, batch: Iterable[PoppedMessage]) -> None:
        """Count all of `batch` as consumed, by one request to each broker.  Raises as `ack`."""
        by_target: defaultdict[Target, list[PoppedMessage]] = defaultdict(list)
        single: list[PoppedMessage] = []
        listed = list(batch)
        for popped in listed:
            _check_popped(popped)
        for popped in listed:
            mark_settled(popped)
            self._done.add(popped)
            await self._released(popped)
            if popped.handle.is_ordered:
                single.append(popped)
            else:
                by_target[Target(popped.topic, popped.handle.broker_name)].append(popped)
        # A broker takes half the time for a request that acknowledges one message.
        single += [part[0] for part in by_target.values() if len(part) == 1]
        await asyncio.gather(
            *(self._pops.ack_batch(target, part) for target, part in by_target.items() if len(part) > 1),
            *(self._pops.ack(popped) for popped in single),
        )
        for popped in listed:
            self._done.acknowledged(popped)
            self._trace_end(popped, is_success=True)

    async def extend(self, popped: PoppedMessage, invisible: timedelta | float | None = None) -> None:
        """Make `popped` invisible for `invisible` from now on (`pop_invisible_time_s` by default).  Raises as `ack`."""
        _check_popped(popped)
        invisible_s = arguments.timeout_or("invisible", invisible, self._settings.pop_invisible_time_s)
        await self._renewal.change(popped, lambda: self._pops.change_invisible(popped, invisible_s))

    async def nack(self, popped: PoppedMessage, delay: timedelta | float = 1.0) -> None:
        """Reject `popped`: it is redelivered after `delay`, with `reconsume_times` one higher.  Raises as `ack`."""
        _check_popped(popped)
        delay_s = arguments.seconds("delay", delay)
        mark_settled(popped)
        await self._rejected(popped, delay_s)
        self._trace_end(popped, is_success=False)
        await self._pops.change_invisible(popped, delay_s)

    def is_settled(self, popped: PoppedMessage) -> bool:
        """Return whether `popped` was acknowledged or rejected."""
        _check_popped(popped)
        return popped.is_settled

    async def dead_letter(self, popped: PoppedMessage, reason: str = "") -> None:
        """Send `popped` to the dead-letter topic of the group, with `reason` as its property DEAD_LETTER_REASON.

        Raises as `ack`, and SendFailed if no broker took it; then it is redelivered after its invisible time.
        """
        _check_popped(popped)
        arguments.text("reason", reason)
        await self._back.send_dead_letter(popped.message, reason)
        mark_settled(popped)
        await self._released(popped)
        self._trace_end(popped, is_success=False)
        await self._pops.ack(popped)

    async def reply(self, popped: PoppedMessage, answer: bytes | Reply, timeout_s: float | None = None) -> SendResult:
        """Reply to `popped`, which was sent with `Producer.request`.  Raises as `Consumer.reply`."""
        self._instance.check_open()
        _check_popped(popped)
        if timeout_s is not None:
            arguments.timeout("timeout_s", timeout_s)
        reply = answer if isinstance(answer, Reply) else make_reply(popped.message, answer)
        return await self._replies.send(reply, timeout_s)

    async def _renew_one(self, popped: PoppedMessage) -> None:
        await self._pops.change_invisible(popped, self._settings.pop_invisible_time_s)

    async def _released(self, popped: PoppedMessage) -> None:
        """Stop renewing `popped`, which makes room for another message."""
        await self._renewal.release(popped)
        self._room.set()

    async def _rejected(self, popped: PoppedMessage, after_s: float | None) -> None:
        """Stop renewing `popped`, which is redelivered after `after_s`, None: when its invisible time is over."""
        await self._released(popped)

    # Iteration and `run`

    async def __aiter__(self) -> AsyncIterator[PoppedMessage]:
        if self._runs:
            raise ClientError(RUN_HAS_ALL)
        self._iterations += 1
        try:
            async for popped in self._iterate():
                yield popped
        except PermissionDenied:
            self._instance.outages.told()
            raise
        finally:
            self._iterations -= 1

    async def _iterate(self, is_over: Callable[[], bool] = lambda: False) -> AsyncIterator[PoppedMessage]:
        await self._first_use()
        while self._instance.is_open and not self._is_stopping and not is_over():
            if not self._ready:
                denial = self._instance.lost or self._instance.outages.denial
                if denial is not None:
                    self._arrived.set()  # for the next waiting reader
                    raise denial
                await self._start_loops()
                await self._arrived.wait(_RETRY_S)
                continue
            popped = self._ready.popleft()
            if popped.invisible_until > self._instance.clock.monotonic():
                if self._tracing is not None:
                    self._tracing.taken([popped])
                yield popped
            else:
                # Its broker was unreachable, or this process was suspended.
                await self._rejected(popped, None)
                logger.info("event=not_given_in_time message=%r", popped)
        self._arrived.set()  # for the next waiting reader

    def stop(self) -> None:
        """End `run` and iterations after the messages in work.  They give nothing more; `close` the consumer then."""
        self._is_stopping = True
        self._arrived.set()

    async def run(self, handler: PopHandler, *, concurrency: int = 20) -> None:
        """Hand every message to `handler`, up to `concurrency` at a time, until `stop`, `close` or SIGTERM.

        If the handler returns, its message is acknowledged.  If it raises, the message is redelivered after its
        invisible time, or after the `suspend_s` of a `ReconsumeLater`.  If access control refuses heartbeats or pops,
        PermissionDenied is raised after the running handlers.
        """
        await self._first_use()
        arguments.handler("handler", handler, "a message")
        arguments.whole("concurrency", concurrency, 1)
        if self._iterations:
            raise ClientError("an iteration hands out the messages of this consumer; use either it or `run`")
        self._subject.begin(handler, concurrency)
        if self._tracing is not None:
            handler = self._tracing.around(handler)
        denied: list[ClientError] = []
        stopped = asyncio.Event()

        def stop() -> None:
            stopped.set()
            self._arrived.set()

        workers = Workers(lambda: self._work(handler, denied, stopped.is_set), concurrency, stop)
        self._runs.append(workers)
        try:
            with sigterm_stops.calling(self.stop):
                await workers.run()
        finally:
            self._runs.remove(workers)
            self._subject.end()
        if denied:
            self._instance.outages.told()
            raise denied[0]

    async def _work(self, handler: PopHandler, denied: list[ClientError], is_stopped: Callable[[], bool]) -> None:
        """Handle messages until the consumer is closed, or access control refuses a worker's requests."""
        try:
            await self._handle(handler, lambda: bool(denied) or is_stopped())
        except (PermissionDenied, ClientClosed) as denial:
            denied.append(denial)
            self._arrived.set()

    async def _handle(self, handler: PopHandler, is_over: Callable[[], bool]) -> None:
        async for popped in self._iterate(is_over):
            try:
                outcome = handler(popped)
                if inspect.isawaitable(outcome):
                    await outcome
                if not popped.is_settled:
                    await self.ack(popped)
            except ReconsumeLater as later:
                if later.delay_level < 0:
                    await self.dead_letter(popped)
                else:
                    await self._leave(popped, later.suspend_s)
            except SprocketError as error:
                logger.warning("event=pop_not_acknowledged message=%r reason=%r", popped, str(error))
                await self._leave(popped, None)
            except (Exception, asyncio.CancelledError):
                if is_cancelled():
                    raise
                logger.exception("event=handler_failed group=%s message=%r", self.group, popped)
                await self._leave(popped, None)

    async def _leave(self, popped: PoppedMessage, after_s: float | None) -> None:
        await self._rejected(popped, after_s)
        self._trace_end(popped, is_success=False)
        if after_s is not None:
            try:
                await self._pops.change_invisible(popped, after_s)
            except SprocketError as error:
                logger.warning("event=not_given_back message=%r reason=%r", popped, str(error))

    async def _start_loops(self) -> None:
        try:
            targets = await self._targets.all()
        except ClientError as failure:
            error = failure
            try:
                await self._instance.check_access(self.group)
            except PermissionDenied as denied:
                error = denied
            if self._instance.outages.failed("targets", error):
                logger.warning("event=pop_failed group=%s reason=%r", self.group, str(error))
            return
        self._instance.outages.succeeded("targets")
        for target in targets:
            task = self._loops.get(target)
            if task is None or task.done():
                self._loops[target] = self._instance.spawn(self._loop(target))

    async def _loop(self, target: Target) -> None:
        """Pop from one target for the iteration, until the route no longer has it."""
        settings = self._settings
        while target in await self._known_targets():
            if len(self._renewal) >= settings.pop_threshold_for_queue:
                await self._room.wait(_RETRY_S)
                continue
            try:
                popped = await self._targets.pop(
                    target, settings.pop_batch_nums, settings.pop_invisible_time_s, settings.poll_time_s
                )
            except SprocketError as error:
                if self._instance.outages.failed(target, error):
                    logger.warning("event=pop_failed target=%r reason=%r", target, str(error))
                self._instance.request_refresh(target.topic)
                await pause(_RETRY_S)
                continue
            over = self._instance.outages.succeeded(target)
            if over is not None:
                logger.info("event=pop_recovered target=%r after_s=%.1f failures=%d", target, *over)
            if popped:
                await self._put(popped)
                self._arrived.set()

    async def _put(self, batch: list[PoppedMessage]) -> None:
        """Renew messages, and keep them for the iteration."""
        self._ready.extend(self._hold_new(batch))

    async def _known_targets(self) -> list[Target]:
        try:
            return await self._targets.all()
        except ClientError:
            return list(self._loops)  # no name server answers: continue with the known targets
