"""Pulling: one request for the messages of a queue, and the loop that keeps its process queue filled.

Source: RocketMQ 5.3.3, `PullAPIWrapper`, `DefaultMQPushConsumerImpl.pullMessage`, `PullSysFlag`.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

import msgspec

from sprocket.client import arguments
from sprocket.client.connection.backoff import Backoff
from sprocket.client.connection.client_instance import ClientInstance
from sprocket.client.connection.topic_route import subscribe_address
from sprocket.client.connection.wakeup import Wakeup, pause
from sprocket.client.errors import BrokerNotFound, BrokerRefused, ClientError, ConnectionLost, refusal
from sprocket.client.message import ReceivedMessage
from sprocket.client.pull.process_queue import ProcessQueue
from sprocket.client.pull.pull_header import PULL, PullHeader
from sprocket.client.send_result import queue_name
from sprocket.common.errors import SprocketError
from sprocket.remoting.bodies.client import MessageQueue, SubscriptionData
from sprocket.remoting.bodies.route import MASTER_ID
from sprocket.remoting.codes import ResponseCode
from sprocket.remoting.command import ReceivedResponse
from sprocket.remoting.headers.pull import PullMessageRequestHeader, PullMessageResponseHeader
from sprocket.remoting.pending import Waiter

logger = logging.getLogger(__name__)

_COMMIT_OFFSET = 0x1
_SUSPEND = 0x2
_SUBSCRIPTION = 0x4
_BACKOFF_FIRST_S = 0.1
_BACKOFF_MAX_S = 3.0  # pullTimeDelayMillsWhenException
_FLOW_CONTROL_S = 0.02
# A member that replaces the wanted broker holds a pull at most this long: the wanted one may be back by then.
_STAND_IN_S = 1.0
# The first redirect to another member is followed at once; repeated redirects wait up to this time.
_ASTRAY_MAX_S = 1.0


@dataclass(frozen=True, kw_only=True)
class PullSettings:
    """Settings of pulls under RocketMQ's names.  Source: RocketMQ 5.3.3, `DefaultMQPushConsumer`."""

    pull_batch_size: int = 32
    pull_batch_size_in_bytes: int = 256 * 1024
    pull_threshold_for_queue: int = 1000
    pull_threshold_size_for_queue_bytes: int = 100 * 1024 * 1024
    consume_concurrently_max_span: int = 2000
    suspend_timeout_s: float = 15.0  # brokerSuspendMaxTimeMillis
    suspend_consumer_timeout_s: float = 30.0  # consumerTimeoutMillisWhenSuspend

    def __post_init__(self) -> None:
        """Raises IllegalArgument."""
        arguments.check(self, _CHECKS)


# Limits are those of `DefaultMQPushConsumerImpl.checkConfig`.
_CHECKS: dict[str, Callable[[str, object], object]] = {
    "pull_batch_size": arguments.at_least(1, 1024),
    "pull_batch_size_in_bytes": arguments.at_least(1),
    "pull_threshold_for_queue": arguments.at_least(1, 65_535),
    "pull_threshold_size_for_queue_bytes": arguments.at_least(1),
    "consume_concurrently_max_span": arguments.at_least(1, 65_535),
    "suspend_timeout_s": arguments.seconds,
    "suspend_consumer_timeout_s": arguments.timeout,
}


class PullStatus(Enum):
    """Outcome of a pull.  Source: RocketMQ 5.3.3, `PullStatus`."""

    FOUND = "FOUND"
    NO_NEW_MSG = "NO_NEW_MSG"
    NO_MATCHED_MSG = "NO_MATCHED_MSG"
    OFFSET_ILLEGAL = "OFFSET_ILLEGAL"


_STATUS = {
    int(ResponseCode.SUCCESS): PullStatus.FOUND,
    int(ResponseCode.PULL_NOT_FOUND): PullStatus.NO_NEW_MSG,
    int(ResponseCode.PULL_RETRY_IMMEDIATELY): PullStatus.NO_MATCHED_MSG,
    int(ResponseCode.PULL_OFFSET_MOVED): PullStatus.OFFSET_ILLEGAL,
}


@dataclass(slots=True)
class PullResult:
    """Result of a pull; the next pull begins at `next_begin_offset`."""

    status: PullStatus
    next_begin_offset: int
    min_offset: int
    max_offset: int
    messages: list[ReceivedMessage]


class Puller:
    """Sender of the pulls of one queue, each to the broker that the last response suggested."""

    def __init__(
        self, instance: ClientInstance, group: str, settings: PullSettings, queue: MessageQueue, *,
        states_subscription: bool = False,
    ) -> None:  # fmt: skip
        """With `states_subscription` each pull states it, so that brokers need no heartbeats of the group."""
        self._states_subscription = states_subscription
        self._instance = instance
        self._group = group
        self.settings = settings
        self._queue = queue
        self._suggested_id = MASTER_ID
        self._subscription: SubscriptionData | None = None  # that of `_encoder`
        self._encoder: PullHeader

    def start(
        self, waiter: Waiter, subscription: SubscriptionData, offset: int, commit_offset: int | None, *,
        count: int = 0, waits: bool = True,
    ) -> bool:  # fmt: skip
        """Send one pull of `count` messages, 0 for those of the settings.

        With `waits` the broker holds it until a message arrives or the suspend time is over.  The broker
        also commits `commit_offset`, unless it is None.  `waiter` gets the response for `result`.
        Return False if there is no connection to the broker: `connect` makes one.
        """
        addresses = self._instance.broker_addresses(self._instance.broker_name_of(self._queue))
        address, broker_id = subscribe_address(addresses, self._suggested_id)
        channel = self._instance.remoting.open_channel(address)
        if channel is None:
            return False
        settings = self.settings
        suspend_s = settings.suspend_timeout_s if waits else 0.0
        if broker_id != self._suggested_id:
            suspend_s = min(suspend_s, _STAND_IN_S)
        suspend_ms = round(suspend_s * 1000)
        sys_flag = (_SUSPEND if waits else 0) | (_SUBSCRIPTION if self._states_subscription else 0)
        count = count or settings.pull_batch_size
        if commit_offset and broker_id == MASTER_ID:
            sys_flag |= _COMMIT_OFFSET
        timeout_s = settings.suspend_consumer_timeout_s
        if channel.is_signing:
            header = self._header(subscription, offset, count, sys_flag, commit_offset or 0, suspend_ms)
            channel.request_for(waiter, PULL, header, timeout_s=timeout_s)
            return True
        if subscription is not self._subscription:
            self._encoder = PullHeader(self._header(subscription, 0, 0, 0, 0, 0))
            self._subscription = subscription
        opaque = channel.next_opaque()
        frame = self._encoder.frame(opaque, offset, count, sys_flag, commit_offset or 0, suspend_ms)
        channel.request_encoded(waiter, PULL, opaque, frame, b"", timeout_s)
        return True

    async def pull(
        self, subscription: SubscriptionData, offset: int, *, count: int = 0, waits: bool = True
    ) -> PullResult:
        """Return the result of one pull, as `start` sends it.  Raises as `connect` and `result`, and ClientError."""
        answered: asyncio.Future[ReceivedResponse] = asyncio.get_running_loop().create_future()
        if not self.start(answered, subscription, offset, None, count=count, waits=waits):
            await self.connect()
            if not self.start(answered, subscription, offset, None, count=count, waits=waits):
                raise ConnectionLost(f"broker {self._queue.broker_name} closed the connection")
        return self.result(await answered, subscription, offset)

    def _header(
        self, subscription: SubscriptionData, offset: int, count: int, sys_flag: int, commit_offset: int,
        suspend_ms: int,
    ) -> PullMessageRequestHeader:  # fmt: skip
        names = self._instance.names
        return PullMessageRequestHeader(
            consumer_group=names.whole(self._group),
            topic=names.whole(self._queue.topic),
            queue_id=self._queue.queue_id,
            queue_offset=offset,
            max_msg_nums=count,
            sys_flag=sys_flag,
            commit_offset=commit_offset,
            suspend_timeout_millis=suspend_ms,
            subscription=subscription.sub_string if self._states_subscription else None,
            sub_version=subscription.sub_version,
            expression_type=subscription.expression_type,
            max_msg_bytes=self.settings.pull_batch_size_in_bytes,
            broker_name=self._queue.broker_name,
        )

    async def connect(self) -> None:
        """Open a connection for `start`.  Raises BrokerNotFound, ConnectFailed, and as `refresh_route`."""
        address = self._address()
        if not address:
            await self._instance.refresh_route(self._queue.topic)
            address = self._address()
            if not address:
                raise BrokerNotFound(self._instance.broker_name_of(self._queue))
        channel = await self._instance.remoting.channel(address)
        if channel.is_closed:
            raise ConnectionLost(f"{address} closed the connection")

    def _address(self) -> str:
        """Return the address to pull from; empty if the routes have none."""
        addresses = self._instance.broker_addresses(self._instance.broker_name_of(self._queue))
        return subscribe_address(addresses, self._suggested_id)[0]

    def failed(self) -> None:
        """Send the next pull to the master, which suggests a broker: the suggested one is unreachable or refuses."""
        self._suggested_id = MASTER_ID

    def note_failure(self, error: Exception) -> None:
        """Log the first failure of several, and ask for the topic's routes again."""
        if self._instance.outages.failed(("pull", self._queue), error):
            logger.warning("event=pull_failed queue=%s reason=%r", queue_name(self._queue), str(error))
        self._instance.request_refresh(self._queue.topic)

    def note_success(self) -> None:
        """Log the end of failures."""
        over = self._instance.outages.succeeded(("pull", self._queue))
        if over is not None:
            logger.info("event=pull_recovered queue=%s after_s=%.1f failures=%d", queue_name(self._queue), *over)

    def result(self, response: ReceivedResponse, subscription: SubscriptionData, offset: int) -> PullResult:
        """Return the result of a pull from `offset`.  Raises BrokerRefused, ProtocolError, ValidationError."""
        status = _STATUS.get(response.code)
        if status is None:
            raise refusal(response.code, response.remark, self._address() or self._queue.broker_name)
        answer = response.header(PullMessageResponseHeader)
        self._suggested_id = answer.suggest_which_broker_id
        messages: list[ReceivedMessage] = []
        if status is PullStatus.FOUND:
            messages = self._instance.names.decoded(response.body, self._queue, answer.offset_delta or 0, offset)
            if subscription.tags_set:
                # The broker filters by the tags' hashes, the client by the tags.
                wanted = subscription.tags_set
                messages = [message for message in messages if message.tags in wanted]
        return PullResult(status, answer.next_begin_offset, answer.min_offset, answer.max_offset, messages)


class _Pull:
    """One pull of a loop: the waiter of its response.

    Messages are delivered in the turn of the event loop that reads them.  The next pull follows in the same write as
    those of other queues.  So a pull that finds messages needs neither a task switch nor a turn of the loop.
    """

    __slots__ = ("_take", "answered", "begun", "offset", "subscription")

    def __init__(
        self,
        take: Callable[["_Pull", ReceivedResponse], None],
        answered: "asyncio.Future[PullResult | None]",
        subscription: SubscriptionData,
        offset: int,
        begun: float,
    ) -> None:
        """`take` gets the response; `answered` gets each error.  `begun` is monotonic s."""
        self._take = take
        self.answered = answered
        self.subscription = subscription
        self.offset = offset
        self.begun = begun

    def done(self) -> bool:
        """Whether the response is of no use: the task of the loop was cancelled."""
        return self.answered.done()

    def set_result(self, response: ReceivedResponse) -> None:
        """Take the response."""
        if self.answered.done():
            return
        try:
            self._take(self, response)
        except Exception as error:  # for the task of the loop: the connection has responses of others
            if not self.answered.done():
                self.answered.set_exception(error)

    def set_exception(self, error: Exception) -> None:
        """Take the failure of the pull."""
        self.answered.set_exception(error)


class PullLoop:
    """Loop that pulls one queue until it is dropped: it waits for room, and backs off when a broker fails."""

    def __init__(
        self,
        puller: Puller,
        process_queue: ProcessQueue,
        subscription: Callable[[], SubscriptionData],
        deliver: Callable[[ProcessQueue, list[ReceivedMessage]], None],
        instance: ClientInstance,
        commits_with_pull: bool,
        pulled: Callable[[str, int, float], None] = lambda topic, messages, seconds: None,
        is_paused: Callable[[], bool] = lambda: False,
    ) -> None:
        """`pulled` gets topic, number of messages and seconds of every pull that brought messages.

        While `is_paused` returns True, nothing is pulled; `room` is set after a change to False.
        """
        self._is_paused = is_paused
        self.process_queue = process_queue
        self.room = Wakeup()
        self._puller = puller
        self._subscription = subscription
        self._deliver = deliver
        self._instance = instance
        self._commits_with_pull = commits_with_pull
        self._pulled = pulled
        self._backoff = Backoff(_BACKOFF_FIRST_S, _BACKOFF_MAX_S)
        self._astray_s = 0.0

    def is_full(self) -> bool:
        """Return whether pulling must wait: too much is unacknowledged, or the queue is paused."""
        held, settings = self.process_queue, self._puller.settings
        return (
            self._is_paused()
            or held.count > settings.pull_threshold_for_queue
            or held.size_bytes > settings.pull_threshold_size_for_queue_bytes
            or held.span > settings.consume_concurrently_max_span
        )

    async def run(self) -> bool:
        """Pull until the queue is dropped (False) or its offset proves illegal (True).

        After True `process_queue.next_offset` is corrected, and the messages pulled before must be dropped.
        """
        held = self.process_queue
        while not held.is_dropped:
            if self.is_full():
                held.waits(True)
                await self.room.wait()
                held.waits(False)
                continue
            try:
                result = await self._unusual_result()
            except (SprocketError, msgspec.ValidationError) as error:
                if isinstance(error, ClientError):
                    self._puller.failed()
                await self._back_off(error)
                continue
            if held.is_dropped:
                return False
            if result is None:
                continue
            self._succeeded()
            if result.status is PullStatus.OFFSET_ILLEGAL:
                held.next_offset = result.next_begin_offset
                return True
            if result.status is PullStatus.NO_MATCHED_MSG and result.next_begin_offset == held.next_offset:
                # Nothing was read: a slave redirects to the master, or back if the route has no master.
                await pause(self._astray_s)
                self._astray_s = min(self._astray_s * 2, _ASTRAY_MAX_S) or _BACKOFF_FIRST_S
                continue
            self._astray_s = 0.0
            held.put(result.messages, result.next_begin_offset)
        return False

    async def _unusual_result(self) -> PullResult | None:
        """Pull until a response brings no messages, and return its result; None if pulling must wait."""
        answered: asyncio.Future[PullResult | None] = asyncio.get_running_loop().create_future()
        if not self._start(answered):
            await self._puller.connect()
            if not self._start(answered):
                raise ConnectionLost(f"broker {self.process_queue.queue.broker_name} closed the connection")
        return await answered

    def _start(self, answered: "asyncio.Future[PullResult | None]") -> bool:
        """Send the next pull; return False if there is no connection."""
        held = self.process_queue
        held.last_pull_at = begun = self._instance.clock.monotonic()
        subscription = self._subscription()
        commit_offset = held.commit_offset if self._commits_with_pull else None
        pull = _Pull(self._answer, answered, subscription, held.next_offset, begun)
        return self._puller.start(pull, subscription, held.next_offset, commit_offset)

    def _answer(self, pull: "_Pull", response: ReceivedResponse) -> None:
        """Deliver the messages of a response, and send the next pull; the task of `run` gets all else."""
        held = self.process_queue
        result = None
        if not held.is_dropped:
            result = self._puller.result(response, pull.subscription, pull.offset)
            if result.status is PullStatus.FOUND:
                self._succeeded()
                self._took(result, pull)
                if not held.is_dropped and not self.is_full() and self._start(pull.answered):
                    return
                result = None
        pull.answered.set_result(result)

    def _succeeded(self) -> None:
        self._backoff.reset()
        self._puller.note_success()

    def _took(self, result: PullResult, pull: "_Pull") -> None:
        held = self.process_queue
        self._astray_s = 0.0
        held.put(result.messages, result.next_begin_offset)
        if result.messages:
            self._pulled(held.queue.topic, len(result.messages), self._instance.clock.monotonic() - pull.begun)
            self._deliver(held, result.messages)

    async def _back_off(self, error: Exception) -> None:
        if isinstance(error, BrokerRefused) and error.code == ResponseCode.FLOW_CONTROL:
            await pause(_FLOW_CONTROL_S)
            return
        self._puller.note_failure(error)
        if isinstance(error, BrokerRefused) and error.code in (
            ResponseCode.SUBSCRIPTION_NOT_EXIST,
            ResponseCode.SUBSCRIPTION_NOT_LATEST,
            ResponseCode.FILTER_DATA_NOT_EXIST,
            ResponseCode.FILTER_DATA_NOT_LATEST,
        ):
            # The broker was restarted and does not know this group yet.
            await self._instance.heartbeat_all()
        await self._backoff.pause()
