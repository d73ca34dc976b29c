"""Pulling: one request for the messages of a queue, and the loop that keeps its process queue filled.

Source: RocketMQ 5.3.3, `PullAPIWrapper`, `DefaultMQPushConsumerImpl.pullMessage`, `PullSysFlag`.
"""

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
from sprocket.client.consume.process_queue import ProcessQueue
from sprocket.client.consume.record_decoder import decode_records
from sprocket.client.errors import BrokerNotFound, BrokerRefused, ClientError, refusal
from sprocket.client.message import ReceivedMessage, queue_name
from sprocket.common.errors import SprocketError
from sprocket.remoting.bodies.client import MessageQueue, SubscriptionData
from sprocket.remoting.bodies.route import MASTER_ID
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.headers.pull import PullMessageRequestHeader, PullMessageResponseHeader

logger = logging.getLogger(__name__)

_COMMIT_OFFSET = 0x1
_SUSPEND = 0x2
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
    """Sender of a group's pulls, each to the broker that the last response suggested."""

    def __init__(self, instance: ClientInstance, group: str, settings: PullSettings) -> None:
        self._instance = instance
        self._group = group
        self.settings = settings
        self._suggested: dict[MessageQueue, int] = {}

    async def pull(
        self, queue: MessageQueue, subscription: SubscriptionData, offset: int, commit_offset: int | None
    ) -> PullResult:
        """Send one pull, which the broker holds until a message arrives or the suspend time is over.

        The broker also commits `commit_offset`, unless it is None.  Raises BrokerNotFound, BrokerRefused,
        ConnectFailed, ConnectionLost, RemotingTimeout, ProtocolError.
        """
        wanted_id = self._suggested.get(queue, MASTER_ID)
        address, broker_id = await self._address(queue, wanted_id)
        suspend_s = self.settings.suspend_timeout_s
        if broker_id != wanted_id:
            suspend_s = min(suspend_s, _STAND_IN_S)
        sys_flag = _SUSPEND
        if commit_offset and broker_id == MASTER_ID:
            sys_flag |= _COMMIT_OFFSET
        settings = self.settings
        header = PullMessageRequestHeader(
            consumer_group=self._group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            queue_offset=offset,
            max_msg_nums=settings.pull_batch_size,
            sys_flag=sys_flag,
            commit_offset=commit_offset or 0,
            suspend_timeout_millis=round(suspend_s * 1000),
            sub_version=subscription.sub_version,
            expression_type=subscription.expression_type,
            max_msg_bytes=settings.pull_batch_size_in_bytes,
            broker_name=queue.broker_name,
        )
        try:
            response = await self._instance.remoting.invoke(
                address, RequestCode.PULL_MESSAGE, header, timeout_s=settings.suspend_consumer_timeout_s
            )
            status = _STATUS.get(response.code)
            if status is None:
                raise refusal(response.code, response.remark, address)
        except ClientError:
            # The slave is unreachable or refuses: ask the master, which suggests a broker.
            self._suggested.pop(queue, None)
            raise
        answer = response.header(PullMessageResponseHeader)
        self._suggested[queue] = answer.suggest_which_broker_id
        messages: list[ReceivedMessage] = []
        if status is PullStatus.FOUND:
            messages = decode_records(response.body, queue, answer.offset_delta or 0, offset)
            if subscription.tags_set:
                # The broker filters by the tags' hashes, the client by the tags.
                wanted = subscription.tags_set
                messages = [message for message in messages if message.tags in wanted]
        return PullResult(status, answer.next_begin_offset, answer.min_offset, answer.max_offset, messages)

    async def _address(self, queue: MessageQueue, wanted_id: int) -> tuple[str, int]:
        address, broker_id = subscribe_address(self._instance.broker_addresses(queue.broker_name), wanted_id)
        if not address:
            await self._instance.refresh_route(queue.topic)
            address, broker_id = subscribe_address(self._instance.broker_addresses(queue.broker_name), wanted_id)
            if not address:
                raise BrokerNotFound(queue.broker_name)
        return address, broker_id


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
        monotonic = self._instance.clock.monotonic
        while not held.is_dropped:
            if self.is_full():
                held.waits(True)
                await self.room.wait()
                held.waits(False)
                continue
            held.last_pull_at = begun = monotonic()
            try:
                commit_offset = held.commit_offset if self._commits_with_pull else None
                result = await self._puller.pull(held.queue, self._subscription(), held.next_offset, commit_offset)
            except (SprocketError, msgspec.ValidationError) as error:
                await self._back_off(error)
                continue
            self._backoff.reset()
            over = self._instance.outages.succeeded(("pull", held.queue))
            if over is not None:
                logger.info("event=pull_recovered queue=%s after_s=%.1f failures=%d", queue_name(held.queue), *over)
            if held.is_dropped:
                return False
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
            if result.messages:
                self._pulled(held.queue.topic, len(result.messages), monotonic() - begun)
                self._deliver(held, result.messages)
        return False

    async def _back_off(self, error: Exception) -> None:
        queue = self.process_queue.queue
        if isinstance(error, BrokerRefused) and error.code == ResponseCode.FLOW_CONTROL:
            await pause(_FLOW_CONTROL_S)
            return
        if self._instance.outages.failed(("pull", queue), error):
            logger.warning("event=pull_failed queue=%s reason=%r", queue_name(queue), str(error))
        if isinstance(error, BrokerRefused) and error.code in (
            ResponseCode.SUBSCRIPTION_NOT_EXIST,
            ResponseCode.SUBSCRIPTION_NOT_LATEST,
            ResponseCode.FILTER_DATA_NOT_EXIST,
            ResponseCode.FILTER_DATA_NOT_LATEST,
        ):
            # The broker was restarted and does not know this group yet.
            await self._instance.heartbeat_all()
        self._instance.request_refresh(queue.topic)
        await self._backoff.pause()
