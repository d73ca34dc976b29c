"""Locks of logical queues: which broker gives them, also while a queue moves.

The broker that leads a queue gives its locks.  A client that locked it at the broker that led before may hold it for
another 60 s.  For that time the former leader must agree, because it knows that client.  RocketMQ's brokers lock any
queue for any client, so two may consume a queue that moves.
"""

import asyncio
import logging
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from msgspec.structs import replace

from broker.client.queue_locks import LOCK_MAX_LIVE_S
from broker.out.other_brokers import OtherBrokers
from broker.plan.table import Refused
from broker.topic.logical_queue import StaticTopics, led_items
from sprocket.common.clock import Clock
from sprocket.common.errors import SprocketError
from sprocket.common.logs.peer_lines import peer_lines
from sprocket.remoting.bodies.client import LockBatchRequestBody, LockBatchResponseBody, MessageQueue
from sprocket.remoting.codec.body_limits import ANSWERS
from sprocket.remoting.codec.fastjson import dumps, loads
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.headers.client import LockBatchMqRequestHeader, UnlockBatchMqRequestHeader

logger = logging.getLogger(__name__)


Asking = Mapping[str, list[MessageQueue]]
"""Queues by the name of the broker that led them before."""


class Lockable(NamedTuple):
    """Queues that this broker may lock: at once, and if their former leaders agree."""

    now: list[MessageQueue]
    asking: Asking


class LogicalLocks:
    """Rules for locks of logical queues.  Lives in the event loop's thread."""

    def __init__(self, static: StaticTopics, brokers: OtherBrokers, clock: Clock) -> None:
        self._static = static
        self._brokers = brokers
        self._clock = clock
        # When the first lock of a queue was asked for since it moved here, monotonic s; by topic, id and generation.
        self._since: dict[tuple[str, int, int], float] = {}

    def lockable(self, queues: Iterable[MessageQueue]) -> Lockable:
        """Return what may be locked; of static topics only queues that this broker leads."""
        now: list[MessageQueue] = []
        asking: dict[str, list[MessageQueue]] = {}
        for queue in queues:
            detail = self._static.get(queue.topic)
            items = () if detail is None else led_items(detail, queue.queue_id)
            # Without a logical offset, the former leader may still lead.
            if isinstance(items, Refused) or (items and not items[-1].is_decided):
                continue
            if len(items) > 1 and self._is_new(queue, items[-1].gen) and items[-2].bname != items[-1].bname:
                asking.setdefault(items[-2].bname, []).append(queue)
            else:
                now.append(queue)
        return Lockable(now, asking)

    def _is_new(self, queue: MessageQueue, gen: int) -> bool:
        """Whether a lock of the former leader may still count."""
        now = self._clock.monotonic()
        return now - self._since.setdefault((queue.topic, queue.queue_id, gen), now) <= LOCK_MAX_LIVE_S

    async def agreed(self, body: LockBatchRequestBody, asking: Asking) -> list[MessageQueue]:
        """Return the queues that former leaders have locked for the client, too; none of one that does not answer."""
        answers = await asyncio.gather(*(self._lock(name, body, queues) for name, queues in asking.items()))
        return [queue for answer in answers for queue in answer]

    async def unlock(self, body: LockBatchRequestBody, asking: Asking) -> None:
        """Unlock queues at their former leaders, too."""
        await asyncio.gather(*(self._unlock(name, body, queues) for name, queues in asking.items()))

    async def _lock(self, name: str, body: LockBatchRequestBody, queues: list[MessageQueue]) -> list[MessageQueue]:
        asked = dumps(replace(body, only_this_broker=True, mq_set=queues))
        try:
            response = await self._brokers.ask(name, RequestCode.LOCK_BATCH_MQ, LockBatchMqRequestHeader(), asked)
            if response.code != ResponseCode.SUCCESS:
                raise SprocketError(f"code {response.code}: {response.remark}")
            locked = loads(response.body, LockBatchResponseBody, ANSWERS).lock_ok_mq_set
        except SprocketError as error:
            peer_lines.warning(logger, "", "event=former_leader_lock_failed broker=%s reason=%r", name, str(error))
            return []
        return [queue for queue in queues if queue in locked]

    async def _unlock(self, name: str, body: LockBatchRequestBody, queues: list[MessageQueue]) -> None:
        asked = dumps(replace(body, only_this_broker=True, mq_set=queues))
        try:
            await self._brokers.ask(name, RequestCode.UNLOCK_BATCH_MQ, UnlockBatchMqRequestHeader(), asked)
        except SprocketError as error:
            peer_lines.warning(logger, "", "event=former_leader_unlock_failed broker=%s reason=%r", name, str(error))
