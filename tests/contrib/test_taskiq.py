"""Tasks of taskiq through a real broker: run, acknowledged, delayed, delivered again after a death."""

import asyncio
from collections.abc import Iterator

import pytest

from sprocket import IllegalArgument
from sprocket.testing import Broker

pytest.importorskip("taskiq", reason="taskiq is not installed: pip install 'sprocket-mq[taskiq]'")

from taskiq import InMemoryBroker, TaskiqResult  # after the check
from taskiq.exceptions import SendTaskError
from taskiq.receiver import Receiver

from sprocket.contrib.taskiq import SprocketBroker


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with Broker(tmp_path_factory.mktemp("taskiq")) as broker:
        yield broker


class Worker:
    """One worker of taskiq in this process, as `taskiq worker` runs it: stopped by its event, in order."""

    def __init__(self, servers: Broker, topic: str) -> None:
        self.broker = SprocketBroker(servers.namesrv, topic=topic, group=f"{topic}-workers")
        self.broker.with_result_backend(InMemoryBroker().result_backend)
        self.seen: asyncio.Queue[int] = asyncio.Queue()
        self.finish = asyncio.Event()

        @self.broker.task(task_name="note")
        async def note(number: int) -> int:
            self.seen.put_nowait(number)
            return number * 2

        self.note = note

    async def __aenter__(self) -> "Worker":
        await self.broker.startup()
        receiver = Receiver(self.broker, max_async_tasks=10, run_startup=False)
        self.receiver = asyncio.create_task(receiver.listen(self.finish))
        return self

    async def __aexit__(self, *exc: object) -> None:
        self.finish.set()
        await self.receiver
        await self.broker.shutdown()


async def test_a_task_runs_and_its_result_comes_back(servers: Broker) -> None:
    servers.create_topic("Run")
    async with Worker(servers, "Run") as worker:
        task = await worker.note.kiq(21)
        result: TaskiqResult[int] = await task.wait_result(timeout=60)
    assert result.return_value == 42
    # A second worker of the group gets nothing: the task was acknowledged.
    async with Worker(servers, "Run") as again:
        await again.note.kiq(1)
        assert await asyncio.wait_for(again.seen.get(), 60) == 1
        assert again.seen.empty()


async def test_a_delayed_task_runs_after_a_later_one(servers: Broker) -> None:
    servers.create_topic("Late", 1)
    async with Worker(servers, "Late") as worker:
        await worker.note.kicker().with_labels(delay=3).kiq(1)
        await worker.note.kiq(2)
        assert [await asyncio.wait_for(worker.seen.get(), 60) for _ in range(2)] == [2, 1]
        with pytest.raises(SendTaskError) as raised:
            await worker.note.kicker().with_labels(delay="soon").kiq(3)
    assert isinstance(raised.value.__cause__, IllegalArgument)
    assert str(raised.value.__cause__) == "label delay = 'soon' of task note: pass seconds"


async def test_a_task_without_acknowledgement_is_delivered_again(servers: Broker) -> None:
    servers.create_topic("Again", 1)
    first = Worker(servers, "Again").broker
    await first.startup()
    await Worker(servers, "Again").note.kicker().with_broker(first).kiq(7)
    received = await asyncio.wait_for(anext(first.listen()), 60)
    assert b"note" in received.data
    await first.shutdown()
    async with Worker(servers, "Again") as second:
        assert await asyncio.wait_for(second.seen.get(), 60) == 7
