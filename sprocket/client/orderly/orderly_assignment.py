"""The queues of an orderly consumer: taken when they are locked, released after their handler.

Source: RocketMQ 5.3.3, `RebalancePushImpl.removeUnnecessaryMessageQueue`, `tryRemoveOrderMessageQueue`,
`RebalanceImpl.updateProcessQueueTableInRebalance`.
Different here: a released queue stays locked, and its lock renewed, while its handler runs; the reference unlocks after
20 s.  A queue whose lock was lost starts again at the committed offset.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable

from sprocket.client.connection.client_instance import ClientInstance
from sprocket.client.connection.wakeup import Wakeup
from sprocket.client.orderly.orderly_queue import OrderlyQueue
from sprocket.client.orderly.queue_locks import LOCK_INTERVAL_S, QueueLocks
from sprocket.client.pull.process_queue import ProcessQueue
from sprocket.client.pull.pull import PullLoop
from sprocket.client.rebalance.assignment import Assignment
from sprocket.client.rebalance.listener import Notifier
from sprocket.client.rebalance.offset_store import OffsetStore
from sprocket.client.rebalance.start_offset import StartOffset
from sprocket.client.send_result import queue_name
from sprocket.client.settlement import Settlement
from sprocket.remoting.bodies.client import MessageQueue

logger = logging.getLogger(__name__)

# How long `close` waits for handlers.
_CLOSE_WAIT_S = 15.0


class OrderlyAssignment(Assignment):
    """An `Assignment` whose queues are locked on their brokers; `new_queue` makes the consumption of one."""

    def __init__(
        self,
        instance: ClientInstance,
        store: OffsetStore,
        start: StartOffset,
        new_loop: Callable[[ProcessQueue], PullLoop],
        is_wanted: Callable[[str], bool],
        consumer: Settlement | None = None,
        notifier: Notifier | None = None,
        *,
        locks: QueueLocks,
        new_queue: Callable[[ProcessQueue, Callable[[], None]], OrderlyQueue],
        rebalance: Callable[[], None],
    ) -> None:
        super().__init__(instance, store, start, new_loop, is_wanted, consumer, notifier)
        self._locks = locks
        self._new_queue = new_queue
        self._rebalance = rebalance
        self._consumed: dict[MessageQueue, OrderlyQueue] = {}
        self._leaving: dict[MessageQueue, asyncio.Task[None]] = {}
        self._renew_due = Wakeup()

    def consumed(self, queue: MessageQueue) -> OrderlyQueue | None:
        return self._consumed.get(queue)

    async def _begin(self, queue: MessageQueue) -> bool:
        if queue in self._leaving or queue not in await self._locks.lock([queue]):
            return False
        # The offset is read under the lock, so the previous owner has committed.
        is_begun = await super()._begin(queue)
        if queue not in self._loops:
            await self._locks.unlock([queue])
        return is_begun

    def _pull(self, queue: MessageQueue, offset: int, *, is_confirmed: bool = True) -> None:
        previous = self._consumed.get(queue)
        super()._pull(queue, offset, is_confirmed=is_confirmed)
        held = self._loops[queue].process_queue
        orderly = self._consumed[queue] = self._new_queue(held, lambda: self._lost(held))
        if previous is not None:
            previous.end()
        orderly.start(self._instance.spawn, previous)

    async def _give_up(self, queues: Iterable[MessageQueue]) -> None:
        for queue in queues:
            loop, task = self._loops.pop(queue), self._tasks.pop(queue)
            task.cancel()
            self._instance.outages.succeeded(("pull", queue))
            self._leaving[queue] = self._instance.spawn(self._leave(loop.process_queue, self._consumed[queue]))

    async def _leave(self, held: ProcessQueue, orderly: OrderlyQueue) -> None:
        queue = held.queue
        orderly.end()
        await orderly.ended()
        # A dropped queue was reset, or another member has it.
        offset = None if held.is_dropped else held.commit_offset
        held.drop()
        if offset is not None and queue not in await self._store.persist({queue: offset}):
            self._unsaved[queue] = offset
        await self._locks.unlock([queue])
        self._forget(held)
        del self._leaving[queue]
        logger.info("event=queue_given_up queue=%s offset=%s", queue_name(queue), offset)

    def _lost(self, held: ProcessQueue) -> None:
        """Drop the queue, which another member may have: handle and commit nothing more of it."""
        queue = held.queue
        held.drop()
        loop = self._loops.get(queue)
        if loop is not None and loop.process_queue is held:
            logger.warning("event=queue_lock_lost queue=%s", queue_name(queue))
            del self._loops[queue]
            self._tasks.pop(queue).cancel()
            if self._notifier is not None:
                self._instance.spawn(self._notifier.revoked([queue]))
            self._rebalance()

    def _forget(self, held: ProcessQueue) -> None:
        orderly = self._consumed.get(held.queue)
        if orderly is not None and orderly.process_queue is held:
            del self._consumed[held.queue]

    async def renew(self) -> None:
        """Renew the locks every 20 s, also of queues that are being released."""
        while True:
            await self._renew_due.wait(LOCK_INTERVAL_S)
            await self.renew_once()

    async def renew_once(self) -> None:
        """Renew all locks; drop queues that another member has locked."""
        queues = {*self._loops, *self._leaving}
        await self._locks.lock(queues)
        for loop in list(self._loops.values()):
            held = loop.process_queue
            if held.queue in queues and not self._locks.is_held(held.queue):
                self._lost(held)
                orderly = self._consumed.get(held.queue)
                if orderly is not None:
                    orderly.end()

    def wake(self) -> None:
        super().wake()
        for orderly in self._consumed.values():
            orderly.wake()

    async def close(self) -> None:
        """Stop pulling, wait for handlers, commit, unlock."""
        await super().close()
        if self._leaving:
            _, late = await asyncio.wait(self._leaving.values(), timeout=_CLOSE_WAIT_S)
            if late:
                logger.warning("event=handlers_not_awaited queues=%d", len(late))

    @property
    def is_in_handler(self) -> bool:
        """Whether the caller is a handler of one of the queues."""
        current = asyncio.current_task()
        return any(orderly.runs_in(current) for orderly in self._consumed.values())
