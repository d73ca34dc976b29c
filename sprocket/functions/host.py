"""One function in this process: the partitions that its group gives to it, each with a runner.

The changelog's queues are the partitions.  They are divided and locked like the queues of an orderly consumer, which
here reads nothing itself.  The locks spare work; that each input has one effect does not depend on them.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from sprocket.client.connection.backoff import Backoff
from sprocket.client.connection.client_instance import ClientInstance, ClientSettings
from sprocket.client.consume.message_back import MessageBack
from sprocket.client.errors import ClientError, TopicNotFound
from sprocket.client.grpc.address import endpoints
from sprocket.client.grpc.refused import needs_name_server
from sprocket.client.orderly_consumer import OrderlyConsumer
from sprocket.client.producer import Producer
from sprocket.client.rebalance.listener import ConsumerListener
from sprocket.client.rebalance.offset_store import RemoteBrokerOffsetStore
from sprocket.client.send.send_request import SendSettings
from sprocket.client.send_result import queue_name
from sprocket.common.errors import SprocketError
from sprocket.functions.declaration import Function
from sprocket.functions.ports import INPUTS, LOADS, BrokerOutlets, QueueChangelog, QueueInputs, QueueReader
from sprocket.functions.runner import Counts, Fenced, PartitionRunner
from sprocket.remoting.bodies.client import MessageQueue

logger = logging.getLogger(__name__)

_COMMIT_OFFSETS_S: Final = 5.0
_STOP_LIMIT_S: Final = 15.0


class FunctionHost(ConsumerListener):
    """Runner of `function` with the connections of `settings`; `failed` is called when it cannot go on."""

    def __init__(
        self, function: Function, settings: ClientSettings, failed: Callable[[SprocketError], None],
        instance_name: str | None = None,
    ) -> None:  # fmt: skip
        """A process that is started again with its `instance_name` has the locks of the one that was killed.

        Raises IllegalArgument for grpc:// addresses: the protocol has no conditions on sends, and no locks.
        """
        if endpoints(settings.namesrv) is not None:
            raise needs_name_server("functions")
        self.function = function
        self.counts = Counts()
        self._failed = failed
        self._instance = ClientInstance(settings)
        own = replace(settings, instance_name=instance_name)
        self._owner = OrderlyConsumer(function.group, function.changelog, client=own, listener=self)
        # The changelog's sends carry a condition, the outputs an id.
        self._changelogs = Producer(function.group, client=settings)
        self._outputs = Producer(function.group, client=settings, settings=SendSettings(idempotent=True))
        back = MessageBack(self._instance, function.group, 0)
        self._outlets = BrokerOutlets(
            self._outputs, back, self._reader, self._instance.clock.wall_ms, self.counts.failed
        )  # fmt: skip
        self._running: dict[MessageQueue, _Running] = {}
        self._committing: asyncio.Task[None] | None = None

    @property
    def partitions(self) -> int:
        """How many partitions run here."""
        return len(self._running)

    async def start(self) -> None:
        """Take part in the function's group.  Raises ClientError, also for topics that are not there."""
        await self._instance.open()
        try:
            await self._check_topics()
            await self._changelogs.start()
            await self._outputs.start()
            if self.function.output is not None:
                await self._outputs.queues(self.function.output)
            await self._owner.start()
        except BaseException:
            await self.close()
            raise
        self._committing = asyncio.create_task(self._commit_offsets())

    async def close(self) -> None:
        """End the partitions after the inputs in work, and leave the group."""
        if self._committing is not None:
            self._committing.cancel()
        await self._owner.close()  # it revokes all partitions first
        await self.on_revoked(list(self._running))
        await self._persist()
        for part in (self._changelogs, self._outputs):
            await part.close()
        await self._instance.close()

    async def _check_topics(self) -> None:
        """Raises ClientError unless each input queue has its partition, and joined inputs have the same queues."""
        function = self.function
        try:
            partitions = {self._numbered(one) for one in (await self._instance.route(function.changelog)).subscribe}
        except TopicNotFound:
            raise ClientError(f"{function.changelog} is not there; deploy the function again") from None
        seen: dict[str, set[tuple[str, int]]] = {}
        for topic in function.inputs:
            seen[topic] = {self._numbered(one) for one in (await self._instance.route(topic)).subscribe}
            if missing := seen[topic] - partitions:
                raise ClientError(f"{function.changelog} lacks the queues {sorted(missing)}; deploy the function again")
        if len({frozenset(queues) for queues in seen.values()}) > 1:
            counts = {topic: len(queues) for topic, queues in seen.items()}
            raise ClientError(f"the inputs are joined by key, so they need the same queues; they have {counts}")

    @staticmethod
    def _numbered(queue: MessageQueue) -> tuple[str, int]:
        return queue.broker_name, queue.queue_id

    def _reader(self, queue: MessageQueue) -> QueueReader:
        return QueueReader(self._instance, self.function.group, queue, INPUTS)

    # Partitions

    def on_assigned(self, queues: list[MessageQueue]) -> None:
        """Run partitions."""
        self._owner.pause(*queues)  # the runner reads the changelog
        for queue in queues:
            if queue not in self._running and queue.topic == self.function.changelog:
                self._running[queue] = _Running(queue, self)

    async def on_revoked(self, queues: list[MessageQueue]) -> None:
        """End partitions; their locks are kept until then."""
        ending = [self._running.pop(queue) for queue in queues if queue in self._running]
        await asyncio.gather(*(running.end() for running in ending))

    def new_runner(self, partition: MessageQueue) -> tuple[PartitionRunner, QueueInputs]:
        """Return the runner of a partition, which is not loaded, and its inputs."""
        function, group = self.function, self.function.group
        readers = {
            topic: self._reader(MessageQueue(topic, partition.broker_name, partition.queue_id))
            for topic in function.inputs
        }
        inputs = QueueInputs(readers, function.consume_from)
        changelog = QueueChangelog(QueueReader(self._instance, group, partition, LOADS), self._changelogs)
        place = f"{partition.broker_name}/{partition.queue_id}"
        runner = PartitionRunner(
            function, place, changelog, inputs, self._outlets, self.counts, self._instance.clock
        )  # fmt: skip
        return runner, inputs

    def give_up(self, error: Exception) -> None:
        """Report an error that is a bug, not a failure of a broker."""
        self._failed(ClientError(f"function {self.function.name} of group {self.function.group}: {error!r}"))

    # Offsets of the group: nothing depends on them, but `mqadmin consumerProgress` shows the lag

    async def _commit_offsets(self) -> None:
        while True:
            await asyncio.sleep(_COMMIT_OFFSETS_S)
            await self._persist()

    async def _persist(self) -> None:
        store = RemoteBrokerOffsetStore(self._instance, self.function.group)
        for running in list(self._running.values()):
            if running.committed:
                await store.persist(running.committed)


class _Running:
    """One partition in this process: it is loaded again whenever it loses its way."""

    def __init__(self, queue: MessageQueue, host: FunctionHost) -> None:
        self._queue = queue
        self._host = host
        self._runner: PartitionRunner | None = None
        self._is_ending = False
        self._task = asyncio.create_task(self._run())

    @property
    def committed(self) -> dict[MessageQueue, int]:
        """The positions that the changelog has, by input queue."""
        if self._runner is None:
            return {}
        made = self._runner.partition.committed_positions
        broker_name, queue_id = self._queue.broker_name, self._queue.queue_id
        return {MessageQueue(topic, broker_name, queue_id): offset for topic, offset in made.items()}

    async def end(self) -> None:
        """Wait for the input in work, for a while."""
        self._is_ending = True
        if self._runner is not None:
            self._runner.stop()
        done, _ = await asyncio.wait([self._task], timeout=_STOP_LIMIT_S)
        if not done:
            logger.warning("event=function_not_awaited partition=%s", queue_name(self._queue))
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        backoff = Backoff(0.1, 5.0)
        name, counts = queue_name(self._queue), self._host.counts
        while not self._is_ending:
            runner, inputs = self._host.new_runner(self._queue)
            self._runner = runner
            try:
                await runner.run()
            except (Fenced, SprocketError, ExceptionGroup) as error:
                counts["reloads"] += 1
                counts.failed(str(error))
                logger.warning("event=partition_loaded_again partition=%s reason=%r", name, str(error))
            except Exception as error:
                logger.exception("event=partition_failed partition=%s", name)
                self._host.give_up(error)
                return
            finally:
                await inputs.close()
            if runner.partition.commits:
                backoff.reset()
            if not self._is_ending:
                await backoff.pause()
