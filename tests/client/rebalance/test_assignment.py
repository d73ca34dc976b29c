"""Queues that are given up while something else happens to their offsets."""

import asyncio
from collections.abc import Mapping
from typing import Any

from sprocket import MessageQueue
from sprocket.client.connection.outages import Outages
from sprocket.client.pull.process_queue import ProcessQueue
from sprocket.client.rebalance.assignment import Assignment
from sprocket.client.rebalance.start_offset import Start
from tests.waiting import until

QUEUE = MessageQueue("T", "a", 0)


class Store:
    """Offsets on a broker that takes its time."""

    def __init__(self) -> None:
        self.asked: list[int] = []
        self.committed = 50
        self.may_answer = asyncio.Event()

    async def read(self, queue: MessageQueue) -> int:
        return self.committed

    async def of(self, queue: MessageQueue) -> Start:
        return Start(self.committed, must_commit=False)

    async def persist(self, offsets: Mapping[MessageQueue, int]) -> set[MessageQueue]:
        for offset in offsets.values():
            self.asked.append(offset)
            self.committed = offset
        await self.may_answer.wait()
        return set(offsets)


class Loop:
    """A pull loop that has come to 60 and waits."""

    def __init__(self, held: ProcessQueue) -> None:
        self.process_queue = held
        held.put([], 60)

    async def run(self) -> bool:
        await asyncio.Event().wait()
        return False


class Instance:
    outages = Outages(lambda: 0.0)

    def spawn(self, work: Any) -> "asyncio.Task[None]":
        return asyncio.get_running_loop().create_task(work)


async def test_queue_that_goes_while_its_offset_is_reset_keeps_the_new_one() -> None:
    store: Any = Store()
    instance: Any = Instance()
    new_loop: Any = Loop
    assignment = Assignment(instance, store, store, new_loop, lambda topic: True)
    await assignment.assign("T", {QUEUE})
    resetting = asyncio.create_task(assignment.reset({QUEUE: 10}))
    await until(lambda: bool(store.asked))
    leaving = asyncio.create_task(assignment.assign("T", set()))
    await until(lambda: not assignment.queues)
    store.may_answer.set()
    await asyncio.gather(resetting, leaving)
    assert store.asked == [10]
