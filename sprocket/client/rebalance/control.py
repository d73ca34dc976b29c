"""Control of a consumer's queues: positions, lag, seek, pause, assign."""

import asyncio
from collections.abc import Iterable
from datetime import datetime

from sprocket.client import arguments
from sprocket.client.consume.inbox import Inbox
from sprocket.client.errors import IllegalArgument
from sprocket.client.pull.process_queue import ProcessQueue
from sprocket.client.rebalance.assignment import Assignment
from sprocket.client.rebalance.rebalance import Rebalance
from sprocket.client.rebalance.start_offset import StartOffset
from sprocket.remoting.bodies.client import MessageQueue, SubscriptionData
from sprocket.remoting.message.topic_names import RETRY_PREFIX


class QueueControl:
    """Part of a consumer that reads and moves its place in its queues.

    Where a method takes a topic, None stands for all topics of the subscription, without the group's retry topic.
    """

    _is_started: bool
    _assignment: Assignment
    _start_offset: StartOffset
    _rebalance: Rebalance
    _subscriptions: dict[str, SubscriptionData]
    _inbox: Inbox

    def __init__(self) -> None:
        self._paused: set[MessageQueue] = set()

    async def _first_use(self) -> None:
        raise NotImplementedError

    async def subscribe(self, topic: str) -> None:
        """Subscribe to a topic."""
        raise NotImplementedError

    def _of(self, topic: str | None) -> list[ProcessQueue]:
        held = self._assignment.held() if self._is_started else iter(())
        if topic is None:
            return [queue for queue in held if not queue.queue.topic.startswith(RETRY_PREFIX)]
        return [queue for queue in held if queue.queue.topic == topic]

    @property
    def assignment(self) -> list[MessageQueue]:
        """The queues that this consumer has now, sorted."""
        return sorted(held.queue for held in self._of(None))

    def position(self, topic: str | None = None) -> dict[MessageQueue, int]:
        """Return for each queue the offset of the next message that the application gets."""
        return {held.queue: held.position for held in self._of(topic)}

    def committed(self, topic: str | None = None) -> dict[MessageQueue, int]:
        """Return the group's offset in each queue of this consumer: everything before it is acknowledged.

        The brokers have it within `persist_consumer_offset_interval_s`.
        """
        return {held.queue: held.commit_offset for held in self._of(topic) if held.commit_offset is not None}

    async def lag(self, topic: str | None = None) -> dict[MessageQueue, int]:
        """Return for each queue of this consumer how many messages are not acknowledged yet.

        Raises BrokerNotFound, BrokerRefused, ConnectFailed, ConnectionLost, RemotingTimeout.
        """
        await self._first_use()
        held = self._of(topic)
        ends = await asyncio.gather(*(self._start_offset.end_of(queue.queue) for queue in held))
        return {queue.queue: max(end - queue.first_unacknowledged, 0) for queue, end in zip(held, ends, strict=True)}

    async def seek(self, queue: MessageQueue, offset: int) -> None:
        """Continue `queue` at `offset`, which is committed; messages in work no longer count.

        Raises IllegalArgument for a queue that this consumer does not have.
        """
        await self._first_use()
        arguments.whole("offset", offset, 0)
        if queue not in self._assignment.queues:
            raise IllegalArgument(f"{queue} is not assigned to this consumer; `assignment` lists its queues")
        await self._assignment.reset({queue: offset})

    async def seek_to_time(self, when: datetime, topic: str | None = None) -> dict[MessageQueue, int]:
        """Continue every queue at its first message that was stored at `when` or later; return the offsets.

        `when` has a time zone.  Raises IllegalArgument, and as `lag`.
        """
        arguments.moment_ms("when", when)
        await self._first_use()
        queues = [held.queue for held in self._of(topic)]
        offsets = await asyncio.gather(*(self._start_offset.at_time(queue, when) for queue in queues))
        found = dict(zip(queues, offsets, strict=True))
        await self._assignment.reset(found)
        return found

    @property
    def paused(self) -> list[MessageQueue]:
        """The queues that are paused, sorted."""
        return sorted(self._paused)

    def pause(self, *queues: MessageQueue) -> None:
        """Deliver nothing of `queues` until `resume`; without queues, of all that this consumer has.

        Messages that the application has already may be acknowledged.  The consumer keeps the queues.
        """
        wanted = queues or tuple(self.assignment)
        for queue in wanted:
            arguments.choice("queue", queue, MessageQueue, "pass queues of `assignment`")
        self._paused.update(wanted)
        self._inbox.hold(self._paused)

    def resume(self, *queues: MessageQueue) -> None:
        """Deliver messages of `queues` again; without queues, of all that are paused."""
        self._paused.difference_update(queues or tuple(self._paused))
        self._inbox.hold(self._paused)
        if self._is_started:
            self._assignment.wake()

    async def assign(self, queues: Iterable[MessageQueue]) -> None:
        """Take exactly `queues`, whatever other members have; their topics are subscribed to if they are not.

        Rebalance no longer changes them.  Members that share a group must all use `assign`, or none.
        """
        wanted = set(queues)
        for queue in wanted:
            arguments.choice("queue", queue, MessageQueue, "pass queues as Producer.queues(topic) lists them")
        await self._first_use()
        for topic in sorted({queue.topic for queue in wanted} - set(self._subscriptions)):
            await self.subscribe(topic)
        self._rebalance.fix(wanted)
        await self._rebalance.once()
