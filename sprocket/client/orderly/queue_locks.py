"""Locks of queues on their brokers: only one member of a group at a time consumes a queue.

Source: RocketMQ 5.3.3, `RebalanceImpl.lock`, `lockAll`, `unlock`; `ProcessQueue` for the times.
Different here: the age of a lock counts from its request, not from the response, on the monotonic clock.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Iterable

import msgspec

from sprocket.client.connection.client_instance import ClientInstance
from sprocket.common.errors import SprocketError
from sprocket.remoting.bodies.client import LockBatchRequestBody, LockBatchResponseBody, MessageQueue
from sprocket.remoting.codec.fastjson import dumps, loads
from sprocket.remoting.codes import RequestCode
from sprocket.remoting.headers.client import LockBatchMqRequestHeader, UnlockBatchMqRequestHeader

logger = logging.getLogger(__name__)

# rocketmq.client.rebalance.lockInterval, lockMaxLiveTime.  Brokers keep a lock for 60 s.
LOCK_INTERVAL_S = 20.0
LOCK_MAX_LIVE_S = 30.0
_TIMEOUT_S = 1.0


class QueueLocks:
    """The locks that one member of `group` holds."""

    def __init__(self, instance: ClientInstance, group: str) -> None:
        self._instance = instance
        self._group = group
        self._locked_at: dict[MessageQueue, float] = {}

    def is_held(self, queue: MessageQueue) -> bool:
        """Return whether `queue` may be consumed now: the lock was taken or renewed within `LOCK_MAX_LIVE_S`."""
        locked_at = self._locked_at.get(queue)
        return locked_at is not None and self._instance.clock.monotonic() - locked_at <= LOCK_MAX_LIVE_S

    def locked_at(self, queue: MessageQueue) -> float | None:
        """Return when the lock was taken or renewed, monotonic s; None without a lock."""
        return self._locked_at.get(queue)

    async def lock(self, queues: Iterable[MessageQueue]) -> set[MessageQueue]:
        """Take or renew locks.  Return the queues that brokers confirm; a lock that another member holds is lost."""
        requests = [self._lock_at(broker_name, part) for broker_name, part in self._by_broker(queues).items()]
        return {queue for part in await asyncio.gather(*requests) for queue in part}

    async def _lock_at(self, broker_name: str, queues: list[MessageQueue]) -> set[MessageQueue]:
        asked_at = self._instance.clock.monotonic()
        body = dumps(self._body(queues))
        try:
            response = await self._instance.invoke_master(
                broker_name, RequestCode.LOCK_BATCH_MQ, LockBatchMqRequestHeader(), body, timeout_s=_TIMEOUT_S
            )
            self._instance.expect_success(response, broker_name)
            answer = loads(response.body, LockBatchResponseBody).lock_ok_mq_set
            locked = {self._instance.names.bare_queue(queue) for queue in answer}
        except (SprocketError, msgspec.ValidationError) as error:
            # No other member can have them yet: a held lock stays valid until its time is over.
            if self._instance.outages.failed(("lock", broker_name), error):
                logger.warning("event=lock_failed group=%s broker=%s reason=%r", self._group, broker_name, str(error))
            return set()
        self._instance.outages.succeeded(("lock", broker_name))
        for queue in queues:
            if queue in locked:
                self._locked_at[queue] = asked_at
            else:
                self._locked_at.pop(queue, None)
        return locked.intersection(queues)

    async def unlock(self, queues: Iterable[MessageQueue]) -> None:
        """Unlock `queues`; if a broker cannot be reached, its locks expire after 60 s."""
        for queue in queues:
            self._locked_at.pop(queue, None)
        await asyncio.gather(*(self._unlock_at(name, part) for name, part in self._by_broker(queues).items()))

    async def _unlock_at(self, broker_name: str, queues: list[MessageQueue]) -> None:
        body = dumps(self._body(queues))
        try:
            await self._instance.invoke_master(
                broker_name, RequestCode.UNLOCK_BATCH_MQ, UnlockBatchMqRequestHeader(), body, timeout_s=_TIMEOUT_S
            )
        except SprocketError as error:
            logger.warning("event=unlock_failed group=%s broker=%s reason=%r", self._group, broker_name, str(error))

    def _body(self, queues: Iterable[MessageQueue]) -> LockBatchRequestBody:
        names = self._instance.names
        whole = [names.whole_queue(queue) for queue in queues]
        return LockBatchRequestBody(names.whole(self._group), self._instance.client_id, mq_set=whole)

    def _by_broker(self, queues: Iterable[MessageQueue]) -> dict[str, list[MessageQueue]]:
        by_broker: defaultdict[str, list[MessageQueue]] = defaultdict(list)
        for queue in queues:
            by_broker[self._instance.broker_name_of(queue)].append(queue)
        return by_broker
