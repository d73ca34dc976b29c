"""One term: the life of a broker's parts in one role, from the start of the store to its shutdown.

A broker without controllers has one term.  With controllers each change of the role ends a term and begins another one,
by the same steps as a stop and a start, while ports, connections and accounts stay (`broker.process_parts`).
Source of the order: RocketMQ 5.3.3, `BrokerController.start`, `shutdown`.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from broker.flushed_log import log_flushed
from broker.offset.consumer_offsets import ConsumerOffsets
from broker.parts import BrokerParts
from broker.periodic import Periodic
from sprocket.common.errors import DiskFailed, StoreError
from sprocket.common.failpoints import failpoint
from sprocket.common.next_turn import in_turns
from sprocket.common.pause_gc import pause_gc
from store.message_store import MessageStore

logger = logging.getLogger(__name__)

Step = Callable[[], Awaitable[None] | None]
_START_STORE_OPEN: Final = failpoint("server.start_store_open")
_STOP_TOPICS_SAVED: Final = failpoint("server.stop_topics_saved")


class Term:
    """Life of `parts`.  Lives in the event loop's thread; each method is called once, in their order here.

    `offsets` is the consumer offsets of the last term, None for those in the file.
    """

    def __init__(
        self, parts: BrokerParts, *, is_store_open: bool = False, offsets: ConsumerOffsets | None = None
    ) -> None:
        self.parts = parts
        self._last_offsets = offsets
        self._store = parts.core.store
        self._is_store_open = is_store_open
        self.periodic: list[Periodic] = [work for service in parts.services for work in service.periodic()]

    # Start

    def check(self) -> None:
        """Check the configuration.  Raises ConfigError."""
        self.parts.core.config.store.check()
        for service in self.parts.services:
            service.check()

    async def bind(self) -> None:
        """Bind the ports of services.  Raises ConfigError."""
        for service in self.parts.services:
            await service.bind()

    async def open(self, begin: Callable[[int], None] | None, load_lasting: Callable[[], None]) -> None:
        """Recover the store, unless it is open since the last term, and load the tables.

        `begin` gets the log's end before anything is appended.  `load_lasting` reads files that may only be read by the
        holder of the store's lock.
        """
        parts, core = self.parts, self.parts.core
        core.namespace_table.load()
        core.topics.load()  # first: the store needs the types of queues
        core.mappings.load()
        if not self._is_store_open:
            await asyncio.to_thread(self._store.start)
            self._is_store_open = True
            _START_STORE_OPEN()
        if begin is not None:
            begin(self._store.wrote_offset)
        parts.retention.start()
        load_lasting()
        core.groups.load()
        core.offsets.share_names(self._store.light_name)
        if self._last_offsets is None:
            with pause_gc():
                core.offsets.load()
        else:
            core.offsets.take_over(self._last_offsets)
        parts.deliveries.schedule.offsets.load()
        # A slave has yet to receive the rest of the log.
        if core.role.serves_group and core.offsets.clamp(self._store.max_offset):
            core.offsets.persist_changes()
        parts.deliveries.transactions.load(writes=not core.role.is_slave)
        for service in parts.services:
            service.load()

    async def listen(self) -> None:
        """Serve the ports of services.  Raises ConfigError."""
        for service in self.parts.services:
            await service.listen()

    def start(self) -> None:
        """Start all work, and go online."""
        for table in self.parts.tables.awaited:
            table.start()
        for service in self.parts.services:
            service.start()
        for work in self.periodic:
            work.start()
        self.parts.pre_online.start()

    # Stop

    async def leave(self, *, stays_registered: bool) -> None:
        """Go offline, unless the broker `stays_registered`: then another term follows at once."""
        await self.parts.pre_online.stop()
        if stays_registered:
            await self.parts.registration.pause()
        else:
            # Until every name server has removed this broker, new clients are still served.
            await self.parts.registration.stop()
        await self.parts.core.client.close()

    async def stop_services(self) -> None:
        """Let services answer what they hold, then begin no new work, and write the log to the disk."""
        self.parts.active_services.stop()
        for service in reversed(self.parts.services):
            await in_turns(service.answer_held(), self.parts.core.clock.monotonic)
        # Without a turn of the loop between: none works while one that it needs has stopped.
        for service in reversed(self.parts.services):
            service.stop()
        self.flush()

    async def stop_work(self) -> None:
        """Wait for the end of all work, and answer held pulls."""
        for work in self.periodic:
            await work.stop()
        await in_turns(self.parts.pulls.held.answer_all(), self.parts.core.clock.monotonic)
        self.parts.pulls.held.close()
        for table in self.parts.tables.awaited:
            await table.stop()

    def flush(self) -> None:
        """Write the log to the disk, unless that failed before."""
        if self._store.failure is None:
            self._store.flush()

    def save(self, *, changes_only: bool = False) -> None:
        """Write topics and groups, or only their changes, and the changes of all other tables.  Raises `StoreError`."""
        self.parts.core.mappings.persist_changes()
        for table in (self.parts.core.topics, self.parts.core.groups):
            if changes_only:
                table.persist_changes()
            else:
                table.persist()
        _STOP_TOPICS_SAVED()
        self.parts.deliveries.transactions.commit_offsets()
        for service in self.parts.services:
            service.save()

    def close(self) -> None:
        """Shut the store down.  Senders that still wait get an error."""
        self._is_store_open = False
        self._store.shutdown()

    async def end(self, *, keeps_store: bool) -> MessageStore | None:
        """End the term because another one follows: its senders are answered, and all it knows is on the disk.

        Consumer offsets are written later, by the next term, which gets this term's table.

        With `keeps_store` return the open store; else it is shut down.  Raises `StoreError`: without its files the next
        term would go back to older tables.
        """
        await self.leave(stays_registered=True)
        await log_flushed(self._store)
        await self.stop_services()
        await self.stop_work()
        self.parts.core.waits.close()
        self.flush()
        self.parts.core.offsets.hand_on()
        if self._store.failure is None:
            self.save(changes_only=True)
        if self.parts.slave is not None:
            self.parts.slave.following.leave()
        # In this thread: senders get their answers.  A shutdown takes longer, and calls nobody any more.
        self._store.leave(StoreError("the broker's role changes: send again"))
        if not keeps_store:
            self._is_store_open = False
            await asyncio.to_thread(self._store.shutdown)
        if self._store.failure is not None:
            raise DiskFailed(str(self._store.failure))
        return self._store if keeps_store else None

    def abandon(self) -> list[Step]:
        """Return the steps that release everything after a failed start, whatever of it was done."""
        parts = self.parts
        steps: list[Step] = [
            parts.pre_online.stop,
            parts.registration.stop,
            parts.core.client.close,
            parts.active_services.stop,
            *(service.stop for service in reversed(parts.services)),
            *(work.stop for work in self.periodic),
            parts.pulls.held.close,
        ]
        return steps

    def abandon_store(self) -> list[Step]:
        """Return the last steps of `abandon`, after which nobody is connected any more."""
        return [self.parts.core.waits.close, *([self.close] if self._is_store_open else [])]
