"""Worker of Django's tasks: pops messages, and runs each task in a thread."""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Final

from django.db import DatabaseError, close_old_connections

from sprocket.client.pop.popped_message import PoppedMessage
from sprocket.client.rebalance.start_offset import ConsumeFrom
from sprocket.common.errors import SprocketError
from sprocket.contrib.django.backend import SprocketBackend
from sprocket.contrib.django.execution import NotATask, execute

logger = logging.getLogger(__name__)

_SEND_LEFT_S: Final = 30.0


class Worker:
    """Worker of `queues` with `threads` threads; `worker_id` stands in the results of its tasks."""

    def __init__(self, backend: SprocketBackend, queues: Sequence[str], threads: int, worker_id: str) -> None:
        self._backend = backend
        self._queues = queues
        self._threads = threads
        self._worker_id = worker_id
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="sprocket-task")

    async def run(self) -> None:
        """Run tasks until SIGTERM; those that run by then end first.  Raises SprocketError."""
        backend = self._backend
        for queue in self._queues:
            await asyncio.to_thread(backend.open, queue)
        settings = replace(backend.pops, pop_threshold_for_queue=self._threads, pop_batch_nums=min(self._threads, 32))
        sweep = asyncio.get_running_loop().create_task(self._send_left())
        try:
            async with backend.new_connection() as mq:
                consumers = [
                    mq.simple_consumer(
                        backend.topic(queue), [backend.topic(queue), backend.later_topic(queue)],
                        consume_from=ConsumeFrom.FIRST, settings=settings,
                    )
                    for queue in self._queues
                ]  # fmt: skip
                await asyncio.gather(*(one.run(self._handle, concurrency=self._threads) for one in consumers))
        finally:
            sweep.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await sweep
            self._pool.shutdown()
            await asyncio.to_thread(backend.close)

    async def _handle(self, message: PoppedMessage) -> None:
        name, deliveries = message.body.decode(errors="replace"), message.reconsume_times
        try:
            await self._in_thread(lambda: execute(self._backend, name, deliveries, self._worker_id))
        except NotATask as error:
            # No worker will ever run it.
            await message.dead_letter(str(error))

    async def _send_left(self) -> None:
        while True:
            try:
                await self._in_thread(self._backend.send_left)
            except (SprocketError, DatabaseError) as error:
                logger.warning("event=unsent_tasks_not_sent reason=%r", str(error))
            await asyncio.sleep(_SEND_LEFT_S)

    async def _in_thread(self, what: Callable[[], object]) -> None:
        await asyncio.get_running_loop().run_in_executor(self._pool, _with_connections, what)


def _with_connections(what: Callable[[], object]) -> None:
    """Call `what` with database connections that work, as Django does for each request."""
    close_old_connections()
    try:
        what()
    finally:
        close_old_connections()
