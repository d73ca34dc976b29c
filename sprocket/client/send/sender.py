"""Sender of requests to brokers: it chooses a queue, writes, waits, and retries on another broker.

Source: RocketMQ 5.3.3, `DefaultMQProducerImpl.sendDefaultImpl`, `MQClientAPIImpl.processSendResponse`.
Different here: an attempt that could not connect sent nothing, so it does not count as a retry.  It is repeated with
back-off until the send's time is over.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sprocket.client.connection.backoff import Backoff
from sprocket.client.connection.client_instance import ClientInstance
from sprocket.client.connection.identity import random_number
from sprocket.client.connection.topic_route import TopicRoute
from sprocket.client.connection.wakeup import Wakeup, pause
from sprocket.client.errors import (
    AnswerUnreadable,
    BrokerNotFound,
    BrokerRefused,
    ClientError,
    ConnectFailed,
    FlowControlled,
    IllegalMessage,
    PermissionDenied,
    RemotingTimeout,
    SendFailed,
    refusal,
)
from sprocket.client.send.attempt import Attempt
from sprocket.client.send.compiled_starts import ENGINE, CompiledStarts
from sprocket.client.send.fault_tolerance import SLOW_S, FaultTolerance
from sprocket.client.send.queue_choice import RoundRobin, by_sharding_key
from sprocket.client.send.send_header import SendHeader
from sprocket.client.send.send_request import PLAIN, IdempotentRequest, SendRequest, SendSettings, header_to, sharded
from sprocket.client.send_result import SendResult, SendStatus
from sprocket.common.errors import InvariantError
from sprocket.remoting.bodies.client import MessageQueue
from sprocket.remoting.bodies.topic_queue_mapping import LOGICAL_BROKER
from sprocket.remoting.channel import RemotingChannel
from sprocket.remoting.codes import ResponseCode
from sprocket.remoting.headers.send import DUPLICATES_FIELD

logger = logging.getLogger(__name__)

_STATUS = {
    int(ResponseCode.SUCCESS): SendStatus.SEND_OK,
    int(ResponseCode.FLUSH_DISK_TIMEOUT): SendStatus.FLUSH_DISK_TIMEOUT,
    int(ResponseCode.FLUSH_SLAVE_TIMEOUT): SendStatus.FLUSH_SLAVE_TIMEOUT,
    int(ResponseCode.SLAVE_NOT_AVAILABLE): SendStatus.SLAVE_NOT_AVAILABLE,
}
# `DefaultMQProducer.retryResponseCodes`, and one more.
RETRY_CODES = frozenset(
    {
        ResponseCode.TOPIC_NOT_EXIST,
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.SYSTEM_ERROR,
        ResponseCode.SYSTEM_BUSY,
        ResponseCode.NO_PERMISSION,
        ResponseCode.NO_BUYER_ID,
        ResponseCode.NOT_IN_CURRENT_UNIT,
        ResponseCode.GO_AWAY,
        # RocketMQ's client does not send again after this one: the message then fails while its queue moves.
        ResponseCode.NOT_LEADER_FOR_QUEUE,
    }
)
# The route may have changed.
_REFRESH_CODES = frozenset({ResponseCode.TOPIC_NOT_EXIST, ResponseCode.NOT_LEADER_FOR_QUEUE})
SentListener = Callable[[SendRequest, SendResult, Mapping[str, str], float], None]
# Queues whose ways are kept.
_MAX_WAYS = 4096


def is_retried(refused: BrokerRefused) -> bool:
    """Return whether another attempt may succeed; access control is the same on all brokers."""
    if isinstance(refused, FlowControlled):
        return True
    return refused.code in RETRY_CODES and not isinstance(refused, PermissionDenied)


def _is_plain(request: SendRequest) -> bool:
    """Return whether its header differs from others of its queue only in what `SendHeader` takes."""
    return request.code == PLAIN and request.max_reconsume_times is None and not request.reconsume_times


def _duplicates(fields: Mapping[str, str]) -> int | None:
    text = fields.get(DUPLICATES_FIELD, "")
    return int(text) if text.isdecimal() else None


def _queue_key(request: SendRequest) -> str | None:
    """Return the key that chooses the queue of an idempotent message; None if any queue will do."""
    return request.queue_key or None if isinstance(request, IdempotentRequest) else None


def _has_moved(error: ClientError | None) -> bool:
    """Return whether nothing was stored because a logical queue has moved, which is no failed attempt."""
    return isinstance(error, BrokerRefused) and error.code == ResponseCode.NOT_LEADER_FOR_QUEUE


def _is_free(error: ClientError | None) -> bool:
    """Return whether the broker took nothing and is well, so that the attempt does not count."""
    return _has_moved(error) or isinstance(error, FlowControlled)


def _to_avoid(tried: Sequence[str], error: ClientError | None) -> Sequence[str]:
    """Return the brokers of which the next attempt must not ask one at once."""
    if isinstance(error, FlowControlled):
        return ()
    return tried if _has_moved(error) else tried[-1:]


def _is_bound(request: SendRequest, error: ClientError | None) -> bool:
    """Return whether an idempotent message must stay with a queue: its broker may have it after `error`."""
    is_refused = isinstance(error, BrokerRefused) and error.code != ResponseCode.SLAVE_NOT_AVAILABLE
    return isinstance(request, IdempotentRequest) and not is_refused


class _Way:
    """The way to one queue: its broker, the connection that was found for it, and the encoded header."""

    __slots__ = ("broker_name", "changes", "channel", "header")

    def __init__(self, broker_name: str, header: SendHeader) -> None:
        self.broker_name = broker_name
        self.header = header
        self.changes = -1  # `route_changes` when the connection was found
        self.channel: RemotingChannel | None = None


class Sender:
    """Sender of one producer group over the connections of `instance`."""

    def __init__(
        self,
        instance: ClientInstance,
        group: str,
        settings: SendSettings,
        first_queue: Callable[[], int] = random_number,
        engine: Any = ENGINE,
    ) -> None:
        """`first_queue` returns the position to begin at among a topic's queues; `engine` that of `CompiledStarts`."""
        self.instance = instance
        self._wall_ms = instance.clock.wall_ms
        self._monotonic = instance.clock.monotonic
        self.group = group
        self.settings = settings
        self.faults = FaultTolerance(settings.send_latency_enable, instance.master_changed_at)
        self._round_robin = RoundRobin(first_queue)
        self._outstanding = 0
        self._outstanding_bytes = 0
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._ways: dict[MessageQueue, _Way] = {}
        self.compiled = CompiledStarts(instance, settings, self.faults.avoided, self._round_robin.positions, engine)
        self._idle: Wakeup | None = None  # of `settled`
        # Called with each send that a broker has taken: request, result, fields of the response, seconds.
        self.on_sent: list[SentListener] = []

    # Bound of outstanding requests

    def take_free_room(self, body_bytes: int) -> bool:
        """Do as `take_room` if there is room now; else return False."""
        settings = self.settings
        if self._outstanding and (
            self._outstanding >= settings.max_outstanding
            or self._outstanding_bytes + body_bytes > settings.max_outstanding_bytes
        ):
            return False
        self._outstanding += 1
        self._outstanding_bytes += body_bytes
        return True

    async def take_room(self, body_bytes: int) -> None:
        """Wait until one more request of `body_bytes` may be outstanding."""
        while not self.take_free_room(body_bytes):
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(waiter)
            try:
                await waiter
            except asyncio.CancelledError:
                if waiter.done() and not waiter.cancelled():
                    self._wake_next()
                raise

    def give_room(self, body_bytes: int) -> None:
        self._outstanding -= 1
        self._outstanding_bytes -= body_bytes
        if self._waiting:
            self._wake_next()
        if not self._outstanding and self._idle is not None:
            self._idle.set()

    async def settled(self, limit_s: float) -> bool:
        """Wait until no request is outstanding, for at most `limit_s`; return whether that is so."""
        if self._outstanding:
            self._idle = Wakeup()
            await self._idle.wait(limit_s)
        return not self._outstanding

    def _wake_next(self) -> None:
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return

    # One attempt

    def start(self, request: SendRequest, timeout_s: float) -> Attempt | None:
        """Write `request` if the route is known and the broker connected; return None if it must wait for either."""
        route = self.instance.cached_route(request.topic)
        if route is None or not route.rotation:
            return None
        if self.settings.idempotent and isinstance(request, IdempotentRequest) and request.queue_key:
            return None  # `send` finds its queue
        queue = self._choose(route, ()) if self.faults.avoided else self._round_robin.choose(route)
        way = self._ways.get(queue) or self._new_way(queue)
        channel = way.channel
        if channel is None or channel.is_closed or way.changes != self.instance.route_changes:
            channel = self._open_channel(way, queue)
        if channel is None:
            # The send that connects must choose this queue again.  If it took the next one, which belongs to the
            # other of two brokers, the broker that came back would get nothing until a heartbeat connects to it.
            self._round_robin.undo(request.topic)
            return None
        if queue is route.rotation[-1] and self.compiled.is_possible:  # once a round, which may have found all ways
            self._keep_ways(route)
        return self._write(channel, request, queue, timeout_s, way)

    def _keep_ways(self, route: TopicRoute) -> None:
        """Let the compiled code start further messages of a topic, if the way to each of its queues is known."""
        ways = []
        for queue in route.rotation:
            way = self._ways.get(queue)
            if way is None or way.changes != self.instance.route_changes:
                return
            ways.append((queue, way.header, way.channel))
        self.compiled.keep(route.topic, ways)

    def _open_channel(self, way: _Way, queue: MessageQueue) -> RemotingChannel | None:
        """Return the open connection to the master of `queue`, and keep it in `way`."""
        located = self._located(queue)
        if located.broker_name != way.broker_name:  # a logical queue has moved
            way.broker_name, way.header = located.broker_name, self._header_to(located)
        address = self.instance.master_address(located.broker_name)
        way.channel = None if address is None else self.instance.remoting.open_channel(address)
        way.changes = self.instance.route_changes
        return way.channel

    def _new_way(self, queue: MessageQueue) -> _Way:
        if len(self._ways) >= _MAX_WAYS:
            self._ways.clear()
            self.compiled.forget()
        located = self._located(queue)
        way = self._ways[queue] = _Way(located.broker_name, self._header_to(located))
        return way

    def _fields(self, request: SendRequest, queue: MessageQueue, now_ms: int, sharding: int | None) -> dict[str, str]:
        located = self._located(queue)
        fields = request.ext_fields(self.group, self.settings, located, now_ms, self.instance.names)
        return fields | sharded(sharding)

    def _header_to(self, queue: MessageQueue) -> SendHeader:
        return header_to(queue, self.group, self.settings, wire_names=self.instance.names)

    def _located(self, queue: MessageQueue) -> MessageQueue:
        """Return `queue` with the name of the broker that serves it, which is in the headers of sends."""
        if queue.broker_name != LOGICAL_BROKER:
            return queue
        return MessageQueue(queue.topic, self.instance.broker_name_of(queue), queue.queue_id)

    def _choose(self, route: TopicRoute, failed: Sequence[str]) -> MessageQueue:
        faults = self.faults
        if faults.avoided:
            faults.end_avoidances(self._monotonic())
        return self._round_robin.choose(route, faults.is_available if faults.avoided else None, failed)

    def _write(
        self,
        channel: RemotingChannel,
        request: SendRequest,
        queue: MessageQueue,
        timeout_s: float,
        way: _Way | None = None,
        sharding: int | None = None,
    ) -> Attempt:
        now_ms = self._wall_ms()
        attempt = Attempt(request, queue, self._monotonic())
        if way is None or channel.is_signing or not _is_plain(request):
            fields = self._fields(request, queue, now_ms, sharding)
            channel.request_for(attempt, request.code, fields, request.body, timeout_s=timeout_s)
        else:
            opaque, body = channel.next_opaque(), request.body
            prefix = way.header.prefix(opaque, request.sys_flag, now_ms, request.flag, request.properties, len(body))
            channel.request_encoded(attempt, PLAIN, opaque, prefix, body, timeout_s)
        return attempt

    def result_at_once(self, attempt: Attempt) -> SendResult | None:
        """Return the result of an attempt that succeeded in the usual way; None if `finish` must decide."""
        outcome = attempt.outcome
        if outcome is None or isinstance(outcome, ClientError) or outcome.code:
            return None
        try:
            return self._result(attempt)
        except ClientError:
            return None

    async def finish(self, attempt: Attempt) -> SendResult:
        """Return the result of an attempt.  Raises RemotingTimeout, ConnectionLost, BrokerRefused."""
        if attempt.outcome is None:
            await attempt.ended()
        return self._result(attempt)

    def _result(self, attempt: Attempt) -> SendResult:
        """Return the result of an attempt that has ended."""
        request, queue, response = attempt.request, attempt.queue, attempt.outcome
        if isinstance(response, ClientError):
            self._failed(request.topic, self.instance.broker_name_of(queue), attempt.started)
            raise response
        if response is None:
            raise InvariantError(f"the attempt to send {request.message_id} has not ended")
        status = _STATUS.get(response.code)
        if status is None:
            broker_name = self.instance.broker_name_of(queue)
            address = self.instance.master_address(broker_name) or broker_name
            refused = refusal(response.code, response.remark, address, response.ext_fields)
            self._refused(attempt, refused)
            raise refused
        now = self._monotonic()
        latency_s = now - attempt.started
        if latency_s >= SLOW_S:
            self.faults.sent(self.instance.broker_name_of(queue), attempt.started, now)
        fields = response.ext_fields
        try:
            queue_id = int(fields.get("queueId", queue.queue_id))
            queue_offset = int(fields.get("queueOffset", 0))
        except ValueError as error:
            raise AnswerUnreadable(
                f"{queue.broker_name} took the message and answered with no number: {error}"
            ) from None
        if queue_id != queue.queue_id:
            queue = MessageQueue(request.topic, queue.broker_name, queue_id)
        result = SendResult(
            status,
            request.message_id,
            fields.get("msgId", ""),
            queue,
            queue_offset,
            fields.get("transactionId"),
            fields.get("recallHandle"),
            _duplicates(fields),
        )
        for listener in self.on_sent:
            listener(request, result, fields, latency_s)
        return result

    def _failed(self, topic: str, broker_name: str, started: float) -> None:
        self.faults.failed(broker_name, started, self._monotonic())
        self.instance.watch_route(topic)

    def _refused(self, attempt: Attempt, refused: BrokerRefused) -> None:
        if _has_moved(refused):
            self.instance.watch_route(attempt.request.topic)
        elif is_retried(refused) and not isinstance(refused, FlowControlled):
            broker_name = self.instance.broker_name_of(attempt.queue)
            self.faults.failed(broker_name, attempt.started, self._monotonic())
            if refused.code in (ResponseCode.NO_PERMISSION, ResponseCode.SERVICE_NOT_AVAILABLE):
                self.instance.watch_route(attempt.request.topic)

    # A whole send

    async def send(
        self,
        request: SendRequest,
        *,
        queue: MessageQueue | None = None,
        sharding_key: str | None = None,
        among: int | None = None,
        timeout_s: float | None = None,
        failed: tuple[MessageQueue, ClientError] | None = None,
    ) -> SendResult:
        """Send until a broker has the message, or retries or time are used up.

        With `queue` or `sharding_key` there is one target, so there is no second attempt unless the first could not
        connect, a logical queue has moved, or a quota was used up: then the message waits.  `failed` has the queue and
        the error of an earlier attempt.  Attempts of an idempotent message stay with one queue from the first that may
        have reached its broker: only that broker recognises a duplicate.
        A batch whose keys chose one of `among` queues gets IllegalMessage if there is another number of them.
        Raises SendFailed, TopicNotFound, NameServerUnreachable, BrokerRefused (for a code that is not retried).
        """
        loop = asyncio.get_running_loop()
        deadline = (begun := loop.time()) + (self.settings.send_msg_timeout_s if timeout_s is None else timeout_s)
        left = self._max_attempts(request, queue, sharding_key)
        sharding_key = _queue_key(request) if sharding_key is None else sharding_key
        target, error = failed or (None, None)
        tried = [self.instance.broker_name_of(target)] if target else []
        left -= 0 if _is_free(error) else len(tried)
        given, queue = queue, target if target and _is_bound(request, error) else queue
        sharding: int | None = None
        backoff = Backoff()
        while left > 0 and loop.time() < deadline:
            await self._before_next(request.topic, error, deadline - loop.time())
            target, sharding = await self._target(request.topic, queue, sharding_key, tried, sharding, among)
            if self.instance.broker_name_of(target) in _to_avoid(tried, error):
                # The only broker has just failed, or the route has an old leader: give it time.
                await backoff.pause(deadline - loop.time())
                target, sharding = await self._target(request.topic, queue, sharding_key, tried, sharding, among)
            tried.append(self.instance.broker_name_of(target))
            try:
                channel = await self._connect(target)
                attempt = self._write(channel, request, target, deadline - loop.time(), sharding=sharding)
                result = await self.finish(attempt)
            except (ConnectFailed, BrokerNotFound) as unsent:
                error = unsent
                continue
            except BrokerRefused as refused:
                if not is_retried(refused):
                    raise
                error = refused
            except ClientError as failure:
                error = failure
            else:
                if result.status is SendStatus.SEND_OK or not self.settings.retry_another_broker_when_not_store_ok:
                    return result
                error = BrokerRefused(ResponseCode.SLAVE_NOT_AVAILABLE, result.status.value, tried[-1])
            left -= 0 if _is_free(error) else 1
            queue = given if sharding and _has_moved(error) else target if _is_bound(request, error) else queue
            logger.info("event=send_attempt_failed topic=%s broker=%s reason=%r", request.topic, tried[-1], str(error))
        if error is None:
            error = RemotingTimeout("the time for the send was over before the first attempt")
        raise SendFailed(request.topic, tried, round((loop.time() - begun) * 1000), error) from error

    async def _before_next(self, topic: str, error: ClientError | None, left_s: float) -> None:
        """Do what `error` asks for before the next attempt: refresh the route, or wait until a quota admits it."""
        if isinstance(error, FlowControlled):
            await pause(min(error.retry_after_s, max(0.0, left_s)))
        elif isinstance(error, BrokerRefused) and error.code in _REFRESH_CODES:
            await self._refresh(topic)

    def _max_attempts(self, request: SendRequest, queue: MessageQueue | None, sharding_key: str | None) -> int:
        if (queue or sharding_key is not None) and not isinstance(request, IdempotentRequest):
            return 1
        return self.settings.retry_times_when_send_failed + 1

    async def _refresh(self, topic: str) -> None:
        """Refresh the route; keep the old one if no name server answers."""
        try:
            await self.instance.refresh_route(topic)
        except ClientError as error:
            logger.info("event=route_refresh_failed topic=%s reason=%r", topic, str(error))

    async def _target(
        self,
        topic: str,
        queue: MessageQueue | None,
        sharding_key: str | None,
        failed: Sequence[str],
        sharding: int | None = None,
        among: int | None = None,
    ) -> tuple[MessageQueue, int | None]:
        """Return the queue for a message, and from how many queues its key chose; None without a key.

        They are those given, if `queue` is.
        """
        if queue is not None:
            return queue, sharding
        route = await self.instance.publish_route(topic, self.settings.default_topic_queue_nums)
        if sharding_key is None:
            return self._choose(route, failed), None
        if among not in (None, len(route.publish)):
            raise IllegalMessage(f"topic {topic} has {len(route.publish)} queues, the batch's keys chose from {among}")
        return by_sharding_key(route, sharding_key), len(route.publish)

    async def _connect(self, queue: MessageQueue) -> RemotingChannel:
        """Raises BrokerNotFound, ConnectFailed, and as `refresh_route`."""
        instance = self.instance
        address = instance.master_address(instance.broker_name_of(queue))
        if address is None:
            await instance.refresh_route(queue.topic)
            address = instance.master_address(instance.broker_name_of(queue))
            if address is None:
                raise BrokerNotFound(instance.broker_name_of(queue))
        started = self._monotonic()
        try:
            return await instance.remoting.channel(address)
        except ConnectFailed:
            self._failed(queue.topic, instance.broker_name_of(queue), started)
            raise

    async def send_oneway(self, request: SendRequest, queue: MessageQueue | None, sharding_key: str | None) -> None:
        """Write the request without waiting for a response; wait only until the connection takes more.

        Raises TopicNotFound, NameServerUnreachable, BrokerNotFound, ConnectFailed.
        """
        target, sharding = await self._target(request.topic, queue, sharding_key, ())
        channel = await self._connect(target)
        now_ms = self.instance.clock.wall_ms()
        fields = self._fields(request, target, now_ms, sharding)
        channel.notify(request.code, fields, request.body)
        await channel.drained()
