"""A member of an orderly group that does what a stock client does, a step at a time and on the model's clock.

Source: RocketMQ 5.3.3, `RebalancePushImpl`, `RebalanceImpl.lock`, `lockAll`, `ConsumeMessageOrderlyService`,
`ProcessQueue`, `DefaultMQPushConsumerImpl.pullMessage`.
"""

from dataclasses import dataclass, field

from sprocket.client.pull.record_decoder import decode_records
from sprocket.common.clock import Clock
from sprocket.remoting.bodies.client import ConsumerIdList, LockBatchRequestBody, LockBatchResponseBody, MessageQueue
from sprocket.remoting.codec.fastjson import dumps, loads
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.headers.client import (
    GetConsumerListByGroupRequestHeader,
    LockBatchMqRequestHeader,
    UnlockBatchMqRequestHeader,
    UnregisterClientRequestHeader,
)
from sprocket.remoting.headers.offset import (
    QueryConsumerOffsetRequestHeader,
    QueryConsumerOffsetResponseHeader,
    UpdateConsumerOffsetRequestHeader,
)
from sprocket.remoting.headers.pull import PullMessageRequestHeader, PullMessageResponseHeader
from tests.broker.rig import GROUP, TOPIC, TestClient

# `ProcessQueue.REBALANCE_LOCK_MAX_LIVE_TIME`, `REBALANCE_LOCK_INTERVAL`; of heartbeats and rebalances
LOCK_VALID_S, LOCK_INTERVAL_S, HEARTBEAT_S, REBALANCE_S = 30.0, 20.0, 30.0, 20.0
_COMMIT_AND_SUBSCRIPTION, _SUBSCRIPTION = 5, 4


@dataclass
class Taken:
    """One queue that a member has taken: what is pulled and not handled yet, and up to where it has handled."""

    next_pull: int
    handled: int
    is_locked: bool = False
    locked_at: float = 0.0
    pulled: list[tuple[int, bytes]] = field(default_factory=list)  # (offset, body), in order

    def may_handle(self, now: float) -> bool:
        return self.is_locked and now - self.locked_at <= LOCK_VALID_S


class OrderedMember:
    """`client` is its connection; None from a restart of the broker until it connects again."""

    def __init__(self, client_id: str, address: str, clock: Clock) -> None:
        self.client_id = client_id
        self._clock = clock
        self.taken: dict[int, Taken] = {}
        self.is_frozen = False
        self.reconnect(address)

    def reconnect(self, address: str) -> None:
        """The broker is at `address`, and hears of the member with its next heartbeat."""
        self.client = TestClient(address)
        self.heartbeat_at = self.rebalance_at = self.lock_at = self._clock.monotonic()

    async def is_told(self) -> bool:
        """Return whether it was told since it last asked that the group has changed."""
        # The broker tells members a turn later: what it told comes before this answer.
        await self.members()
        told = any(request.code == RequestCode.NOTIFY_CONSUMER_IDS_CHANGED for request in self.client.asked)
        self.client.asked.clear()
        return told

    def is_cut_off(self) -> bool:
        """Whether its connection has ended."""
        return self.client.remoting.open_channel(self.client.address) is None

    async def heartbeat(self) -> None:
        self.heartbeat_at = self._clock.monotonic() + HEARTBEAT_S
        await self.client.heartbeat(self.client_id, TOPIC)

    # Whose is what

    async def members(self) -> list[str]:
        header = GetConsumerListByGroupRequestHeader(consumer_group=GROUP)
        answer = await self.client.ask(RequestCode.GET_CONSUMER_LIST_BY_GROUP, header)
        if answer.code != ResponseCode.SUCCESS:
            return []
        return sorted(loads(answer.body, ConsumerIdList).consumer_id_list)

    def share(self, members: list[str], queues: int) -> list[int]:
        """`AllocateMessageQueueAveragely`."""
        index, base, extra = members.index(self.client_id), *divmod(queues, len(members))
        begin = index * base + min(index, extra)
        return list(range(begin, begin + base + (index < extra)))

    async def lock(self, queues: list[int]) -> list[int]:
        """Those that the broker says it holds now."""
        body = dumps(self._lock_body(queues))
        answer = await self.client.ask_well(RequestCode.LOCK_BATCH_MQ, LockBatchMqRequestHeader(), body)
        locked = loads(answer.body, LockBatchResponseBody).lock_ok_mq_set
        assert {(queue.topic, queue.broker_name) for queue in locked} <= {(TOPIC, "broker-a")}
        return sorted(queue.queue_id for queue in locked)

    def _lock_body(self, queues: list[int]) -> LockBatchRequestBody:
        wanted = [MessageQueue(TOPIC, "broker-a", queue_id) for queue_id in queues]
        return LockBatchRequestBody(GROUP, self.client_id, mq_set=wanted)

    def note_locked(self, locked: list[int]) -> None:
        """What a renewal of all locks says."""
        for queue_id, taken in self.taken.items():
            taken.is_locked = queue_id in locked
            if taken.is_locked:
                taken.locked_at = self._clock.monotonic()

    async def unlock(self, queues: list[int]) -> None:
        body = dumps(self._lock_body(queues))
        await self.client.ask_well(RequestCode.UNLOCK_BATCH_MQ, UnlockBatchMqRequestHeader(), body)

    async def unregister(self) -> None:
        header = UnregisterClientRequestHeader(client_id=self.client_id, consumer_group=GROUP)
        await self.client.ask_well(RequestCode.UNREGISTER_CLIENT, header)

    # Messages

    async def committed(self, queue_id: int) -> int:
        """Where the group is; 0 where it has not begun."""
        header = QueryConsumerOffsetRequestHeader(
            consumer_group=GROUP, topic=TOPIC, queue_id=queue_id, set_zero_if_not_found=True
        )
        answer = await self.client.ask(RequestCode.QUERY_CONSUMER_OFFSET, header)
        if answer.code == ResponseCode.QUERY_NOT_FOUND:
            return 0
        return answer.header(QueryConsumerOffsetResponseHeader).offset

    async def commit(self, queue_id: int) -> None:
        header = UpdateConsumerOffsetRequestHeader(
            consumer_group=GROUP, topic=TOPIC, queue_id=queue_id, commit_offset=self.taken[queue_id].handled
        )
        await self.client.ask_well(RequestCode.UPDATE_CONSUMER_OFFSET, header)

    async def pull(self, queue_id: int, most: int) -> list[tuple[int, bytes]]:
        """Pull, with what is handled as a commit unless it is 0; offsets and bodies of what came."""
        taken = self.taken[queue_id]
        header = PullMessageRequestHeader(
            consumer_group=GROUP, topic=TOPIC, queue_id=queue_id, queue_offset=taken.next_pull, max_msg_nums=most,
            sys_flag=_COMMIT_AND_SUBSCRIPTION if taken.handled else _SUBSCRIPTION, commit_offset=taken.handled,
            suspend_timeout_millis=0, subscription="*", sub_version=0, expression_type="TAG",
        )  # fmt: skip
        answer = await self.client.ask(RequestCode.PULL_MESSAGE, header)
        found = []
        if answer.code == ResponseCode.SUCCESS:
            messages = decode_records(answer.body, MessageQueue(TOPIC, "broker-a", queue_id))
            found = [(message.queue_offset, message.body) for message in messages]
        taken.next_pull = answer.header(PullMessageResponseHeader).next_begin_offset
        taken.pulled += found
        return found
