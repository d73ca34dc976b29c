"""The queues that a consumer has, and the commits of their offsets.

Source: RocketMQ 5.3.3, `RebalanceImpl.updateProcessQueueTableInRebalance`, `RebalancePushImpl`.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping

from sprocket.client.connection.client_instance import ClientInstance
from sprocket.client.connection.wakeup import pause
from sprocket.client.errors import ClientError
from sprocket.client.message import ReceivedMessage
from sprocket.client.pull.process_queue import ProcessQueue
from sprocket.client.pull.pull import PullLoop
from sprocket.client.rebalance.listener import Notifier
from sprocket.client.rebalance.offset_store import OffsetStore
from sprocket.client.rebalance.start_offset import StartOffset
from sprocket.client.send_result import queue_name
from sprocket.client.settlement import Settlement
from sprocket.remoting.bodies.client import MessageQueue

logger = logging.getLogger(__name__)


class Assignment:
    """Process queues by queue, each with its pull loop in a task."""

    def __init__(
        self,
        instance: ClientInstance,
        store: OffsetStore,
        start: StartOffset,
        new_loop: Callable[[ProcessQueue], PullLoop],
        is_wanted: Callable[[str], bool],
        consumer: Settlement | None = None,
        notifier: Notifier | None = None,
    ) -> None:
        """`is_wanted` says whether a topic is still subscribed to; `consumer` settles the messages.

        `notifier` hears of queues that come and go.
        """
        self._notifier = notifier
        self._instance = instance
        self._store = store
        self._start = start
        self._new_loop = new_loop
        self._is_wanted = is_wanted
        self._consumer = consumer
        self._loops: dict[MessageQueue, PullLoop] = {}
        self._tasks: dict[MessageQueue, asyncio.Task[None]] = {}
        # Offsets of released queues whose commit failed: they count if this consumer gets the queue again.
        self._unsaved: dict[MessageQueue, int] = {}
        self._persisting = asyncio.Lock()
        self._assigning: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)  # by topic
        self._is_closed = False

    @property
    def queues(self) -> list[MessageQueue]:
        return sorted(self._loops)

    def held(self) -> Iterator[ProcessQueue]:
        """Return the process queue of each queue."""
        return (loop.process_queue for loop in list(self._loops.values()))

    async def assign(self, topic: str, queues: set[MessageQueue], grace_s: float = 0.0) -> tuple[bool, bool]:
        """Make `queues` the queues of `topic`.  Return whether all of them are consumed, and whether any changed.

        New queues start after `grace_s`, in which their previous owner releases them and commits.
        """
        async with self._assigning[topic]:
            if self._is_closed:
                return True, False
            if not self._is_wanted(topic):
                queues = set()
            held = {queue for queue in self._loops if queue.topic == topic}
            gone, new = held - queues, sorted(queues - held)
            if gone:
                if self._notifier is not None:
                    await self._notifier.revoked(list(gone))
                await self._give_up({queue for queue in gone if queue in self._loops})
            if new:
                await pause(grace_s)
            starts = await asyncio.gather(*(self._begin(queue) for queue in new))
            if self._notifier is not None:
                await self._notifier.assigned([queue for queue in new if queue in self._loops])
            return all(starts), bool(gone) or any(starts)

    async def _begin(self, queue: MessageQueue) -> bool:
        try:
            offset, must_commit = await self._start.of(queue)
        except ClientError as error:
            if self._instance.outages.failed(("begin", queue), error):
                logger.warning("event=queue_not_begun queue=%s reason=%r", queue_name(queue), str(error))
            return False
        self._instance.outages.succeeded(("begin", queue))
        unsaved = self._unsaved.pop(queue, -1)
        if unsaved > offset:
            # The broker lost a commit in a crash, or never got it.
            offset, must_commit = unsaved, True
        if not self._is_closed and self._is_wanted(queue.topic):
            logger.info("event=queue_begun queue=%s offset=%d", queue_name(queue), offset)
            self._pull(queue, offset, is_confirmed=must_commit)
            if must_commit:
                # Not after the first pull: a group that leaves before it would begin at the queue's new end next time.
                await self._store.persist({queue: offset})
        return True

    def _pull(self, queue: MessageQueue, offset: int, *, is_confirmed: bool = True) -> None:
        held = ProcessQueue(queue, offset, self._consumer, is_confirmed=is_confirmed)
        loop = self._loops[queue] = self._new_loop(held)
        self._tasks[queue] = self._instance.spawn(self._run(loop))

    async def _run(self, loop: PullLoop) -> None:
        held = loop.process_queue
        if not await loop.run():
            return
        # The offset was illegal: drop the pulled messages and commit the broker's offset.
        logger.warning("event=offset_moved queue=%s offset=%d", queue_name(held.queue), held.next_offset)
        held.drop()
        await self._store.persist({held.queue: held.next_offset})
        if self._loops.get(held.queue) is loop and not self._is_closed:
            self._pull(held.queue, held.next_offset)

    async def _give_up(self, queues: set[MessageQueue]) -> None:
        """Stop consuming `queues` and commit their offsets; their next owner gets unacknowledged messages."""
        offsets = {}
        for queue in queues:
            loop, task = self._loops.pop(queue), self._tasks.pop(queue)
            # A dropped queue was reset: its new offset is being committed.
            offset = None if loop.process_queue.is_dropped else loop.process_queue.commit_offset
            loop.process_queue.drop()
            task.cancel()
            if offset is not None:
                offsets[queue] = offset
            logger.info("event=queue_given_up queue=%s offset=%s", queue_name(queue), offset)
            self._instance.outages.succeeded(("pull", queue))
        saved = await self._store.persist(offsets)
        self._unsaved.update({queue: offset for queue, offset in offsets.items() if queue not in saved})

    def acknowledge(self, message: ReceivedMessage) -> bool:
        """Count `message` as consumed; False if it was counted before, or if this consumer lost the queue."""
        source = message.source
        if source is None or not source.acknowledge(message):
            return False
        if source.is_waiting:
            loop = self._loops.get(source.queue)
            if loop is not None and not loop.is_full():
                loop.room.set()
        return True

    async def reset(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Continue from `offsets` in the queues that this consumer has; pulled messages are dropped."""
        async with self._persisting:
            moved = {queue: offset for queue, offset in offsets.items() if queue in self._loops}
            for queue in moved:
                self._loops[queue].process_queue.drop()
                self._tasks[queue].cancel()
            await self._store.persist(moved)
            for queue, offset in moved.items():
                if queue in self._loops and not self._is_closed:
                    logger.warning("event=offset_reset queue=%s offset=%d", queue_name(queue), offset)
                    self._pull(queue, offset)

    def wake(self) -> None:
        """Pull again: queues may no longer be paused."""
        for loop in self._loops.values():
            loop.room.set()

    async def persist(self) -> None:
        """Commit the offsets of all queues, even unchanged ones: a broker may have lost them in a crash."""
        async with self._persisting:
            offsets = {}
            for queue, loop in self._loops.items():
                offset = loop.process_queue.commit_offset
                if offset is not None:
                    offsets[queue] = offset
            if offsets:
                await self._store.persist(offsets)

    async def close(self) -> None:
        """Stop pulling and commit acknowledged offsets."""
        self._is_closed = True
        if self._notifier is not None:
            await self._notifier.revoked(list(self._loops))
        async with self._persisting:
            await self._give_up(set(self._loops))
