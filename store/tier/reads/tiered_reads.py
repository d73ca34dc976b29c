"""Reads of what the broker's own store no longer has: which reads are served from the object store, and their answers.

A pull waits for its messages.  A pop takes what is in memory, and is told when more is.  A read that fails, or takes
too long, is answered as one that should be tried again, after a pause, and concerns nobody else.

What was read stays in memory, never on the disk, up to tieredStoreReadCacheSize: the space of the disk belongs to the
log, and what was sent once to a group that catches up is rarely wanted again.

Source: RocketMQ 5.3.3, `TieredMessageStore.fetchFromCurrentStore`, `MessageStoreFetcherImpl`.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Final, Protocol, TypeVar

from sprocket.common.clock import Clock
from sprocket.common.errors import StoreError
from sprocket.common.logs.peer_lines import peer_lines
from store.config.store_config import StoreConfig
from store.config.tier_read_config import TieredStorageLevel
from store.queue.get_result import Boundary, GetResult, GetStatus
from store.retention.rules import RetentionClock
from store.tier.manifest import Manifest
from store.tier.object_store import Damaged, ObjectStoreError, Unavailable
from store.tier.reads.archive_view import ArchiveView
from store.tier.reads.block_cache import BlockCache
from store.tier.reads.fetches import Fetches, FetchLimits
from store.tier.reads.queue_reads import ReadLimits, Run, TierRead, following, messages, offset_by_time, store_time
from store.tier.reads.read_ahead import ReadAhead
from store.tier.reads.record_reads import offsets_of_key, record_at
from store.tier.reads.steps import StepReads, Steps
from store.tier.reads.turns import Room

logger = logging.getLogger(__name__)
T = TypeVar("T")

# A read that failed is answered no earlier than this after it began: clients ask again at once.
_PAUSE_S: Final = 1.0
_BLOCK_BYTES: Final = 1 << 20
# Reader of what an operator asks for.
_QUERIES: Final = "query"
_NEVER: Final = (1 << 63) - 1

Respond = Callable[[GetResult], None]
Refuse = Callable[[Exception], None]


class LocalStore(Protocol):
    """The broker's own store, a `MessageStore`."""

    def min_offset(self, topic: str, queue_id: int, /) -> int: ...

    def max_offset(self, topic: str, queue_id: int, /) -> int: ...

    def gap(self, topic: str, queue_id: int, /) -> range: ...

    def entry(self, topic: str, queue_id: int, offset: int, /) -> tuple[int, int, int] | None: ...

    def is_in_memory(self, physical_offset: int, /) -> bool: ...

    def offset_by_time(self, topic: str, queue_id: int, timestamp_ms: int, boundary: Boundary, /) -> int: ...

    def earliest_store_time(self, topic: str, queue_id: int, /) -> int: ...


class TieredReads:
    """Reads from the archive of one broker group.  Lives in the event loop's thread.

    `view` is None while there is no object store; then no read is served here.
    """

    def __init__(
        self, config: Callable[[], StoreConfig], store: LocalStore, clock: Clock, view: ArchiveView | None
    ) -> None:
        self._config = config
        self._store = store
        self._clock = clock
        self._ages = RetentionClock(clock)
        self._view = view
        settings = config()
        self.cache = BlockCache(settings.tiered_store_read_cache_size)
        self.fetches = Fetches(self.cache, _limits(settings))
        self._ahead = ReadAhead(settings.read_ahead_message_size_threshold // _BLOCK_BYTES)
        if view is not None:
            self._steps = StepReads(view.load, self.cache, self.fetches)
        self._tasks: set[asyncio.Task[None]] = set()
        self._footers: asyncio.Task[None] | None = None
        self._loading: set[tuple[str, str, int]] = set()
        self.messages = 0
        self.failed_reads = 0

    def configure(self) -> None:
        """Obey changed keys."""
        settings = self._config()
        self.cache.resize(settings.tiered_store_read_cache_size)
        self.fetches.configure(_limits(settings))
        self._ahead.resize(settings.read_ahead_message_size_threshold // _BLOCK_BYTES)

    def close(self) -> None:
        """End all reads."""
        for task in list(self._tasks):
            task.cancel()
        self.fetches.close()

    async def adopt(self, manifest: Manifest) -> None:
        """Read by a newer manifest from now on.  Raises an `ObjectStoreError` if a footer that it needs is not read."""
        if self._view is not None:
            if not self._view.manifest.written_ms:
                # This machine's clock may be ahead: nobody is moved before people had time to see that.
                self._ages = RetentionClock(self._clock, manifest.written_ms or None)
            await self._view.adopt(manifest)
            if self._footers is None or self._footers.done():
                self._footers = self._spawn(self._fetch_footers(self._view))

    async def _fetch_footers(self, view: ArchiveView) -> None:
        with suppress(ObjectStoreError):  # a read that needs one fetches it, and is told
            await view.fetch_footers()

    def nothing_archived(self) -> None:
        """Note that there is no archive yet."""
        if self._view is not None:
            self._view.nothing_archived()

    # Which reads

    def archived_ends(self) -> dict[tuple[str, int], int]:
        """Return the offset after the last archived message of each queue."""
        return {} if self._view is None else self._view.ranges.ends()

    def serves(self, topic: str, queue_id: int, offset: int) -> bool:
        """Return whether the messages of a queue from `offset` on are read from the object store."""
        if self._view is None:
            return False
        level, store = self._config().tiered_storage_level, self._store
        if level is TieredStorageLevel.DISABLE or not self._may_have(topic, queue_id):
            return False
        low, high = store.min_offset(topic, queue_id), store.max_offset(topic, queue_id)
        is_gone = offset < low or low == high or offset in store.gap(topic, queue_id)
        if not self._view.is_known:
            # Of a queue that other brokers write, nothing is known here.
            is_theirs = self._view.serves is not None and self._view.serves(topic)
            return is_theirs or (0 <= offset < high and is_gone)
        if not is_gone and level is TieredStorageLevel.NOT_IN_MEM:
            entry = store.entry(topic, queue_id, offset)
            is_gone = entry is not None and not store.is_in_memory(entry[0])
        if not is_gone and level is not TieredStorageLevel.FORCE:
            return False
        return (
            0 <= offset < high and self._view.ranges.piece_at(topic, queue_id, offset, self._ages.now_ms()) is not None
        )

    def _may_have(self, topic: str, queue_id: int) -> bool:
        """Return whether the archive has messages of a queue, or it is not known yet what it has."""
        return (topic, queue_id) in self._archive.ranges or not self._archive.is_known

    @property
    def forces(self) -> bool:
        """Whether every read of archived messages is served here, so that no kernel may serve it."""
        return self._view is not None and self._config().tiered_storage_level is TieredStorageLevel.FORCE

    def has(self, topic: str, queue_id: int) -> bool:
        """Return whether consumers can read messages of a queue from the object store."""
        return self._archived_min(topic, queue_id) is not None

    def has_topic(self, topic: str) -> bool:
        """Return whether the archive has messages of a topic."""
        return self._view is not None and topic in self._view.ranges.topics

    def min_offset(self, topic: str, queue_id: int) -> int:
        """Return the offset of the oldest message that a consumer can read, here or in the broker's store."""
        low = self._store.min_offset(topic, queue_id)
        archived = self._archived_min(topic, queue_id)
        return low if archived is None else min(low, archived)

    def _archived_min(self, topic: str, queue_id: int) -> int | None:
        if self._view is None or self._config().tiered_storage_level is TieredStorageLevel.DISABLE:
            return None
        if self._view.is_known:
            low = self._view.ranges.min_offset(topic, queue_id, self._ages.now_ms())
        else:
            # It may have all that the broker's own store no longer has: so nobody is moved, and no offset is idle.
            low = 0 if self._store.min_offset(topic, queue_id) > 0 else None
        # A queue that starts at 0 again, because its topic was deleted, has nothing there yet.
        return low if low is not None and low < self._store.max_offset(topic, queue_id) else None

    # Messages

    def read(self, read: TierRead, respond: Respond, refuse: Refuse) -> None:
        """Read messages, then call `respond`; `refuse` with what makes the read impossible: damage in the archive."""
        if self._archive.is_known:
            found = self._steps.run_now(self._messages(read))
            if found is not None:
                respond(self._noted(read, *found))
                return
        self._spawn(self._read(read, respond, refuse))

    def read_now(self, read: TierRead, ready: Callable[[], None]) -> GetResult | None:
        """Return messages that are in memory.  If there are none yet, load them, and call `ready` then."""
        found = self._steps.run_now(self._messages(read)) if self._archive.is_known else None
        if found is not None:
            return self._noted(read, *found)
        key = read.group, read.topic, read.queue_id
        if key not in self._loading:
            self._loading.add(key)
            self._spawn(self._load(read, ready))
        return None

    async def _read(self, read: TierRead, respond: Respond, refuse: Refuse) -> None:
        try:
            respond(await self._found(read))
        except Exception as error:
            refuse(error)

    async def _load(self, read: TierRead, ready: Callable[[], None]) -> None:
        try:
            await self._found(read)
        except StoreError:
            await asyncio.sleep(_PAUSE_S)  # noted already
        finally:
            self._loading.discard((read.group, read.topic, read.queue_id))
        ready()

    async def _found(self, read: TierRead) -> GetResult:
        """Return the messages of a read; MESSAGE_WAS_REMOVING, which stands for: try again, if the store fails."""
        began_s = self._clock.monotonic()
        try:
            return self._noted(read, *await self._timely(read.group, self._messages(read)))
        except Damaged as error:
            self._note_failure(read, error)
            raise
        except ObjectStoreError as error:
            self._note_failure(read, error)
        await asyncio.sleep(max(0.0, _PAUSE_S - (self._clock.monotonic() - began_s)))
        limits = self._read_limits(read)
        status = GetStatus.MESSAGE_WAS_REMOVING
        return GetResult(status, read.offset, limits.min_offset, limits.max_offset, [], 0, 0, False)

    async def _timely(self, reader: str, steps: Steps[T]) -> T:
        """Return the result of `steps`.  Raises `Unavailable` after the time for a read, and other errors."""
        if not self._archive.is_known:
            raise Unavailable("the manifest of the archive was not read yet")
        timeout_ms = self._config().tiered_store_read_timeout
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                return await self._steps.run(reader, steps)
        except TimeoutError as error:
            raise Unavailable(f"the object store has not answered for {timeout_ms} ms") from error

    def _messages(self, read: TierRead) -> Steps[tuple[GetResult, Run | None]]:
        return messages(self._archive.ranges, read, self._ages.now_ms(), self._read_limits(read))

    def _read_limits(self, read: TierRead) -> ReadLimits:
        settings, store, topic, queue_id = self._config(), self._store, read.topic, read.queue_id
        high, low = store.max_offset(topic, queue_id), store.min_offset(topic, queue_id)
        gap = store.gap(topic, queue_id)
        if read.offset in gap:
            low = gap.stop
        return ReadLimits(
            settings.max_transfer_count_on_message_in_memory, settings.max_transfer_bytes_on_message_in_memory,
            settings.max_filter_message_size, self.min_offset(topic, queue_id), _NEVER if low == high else low, high,
        )  # fmt: skip

    def _noted(self, read: TierRead, result: GetResult, run: Run | None) -> GetResult:
        """Count what was read, and load what comes next."""
        self.messages += result.message_count
        stream = read.group, read.topic, read.queue_id
        most = self._ahead.blocks_after(stream, read.offset, result.next_offset)
        if run is not None and most and self._config().read_ahead_cache_enable and self._is_new(stream, run, result):
            now_ms = self._ages.now_ms()
            for wanted in following(self._archive.ranges, run, result.next_offset, now_ms, most + 1):
                if not self._steps.ahead(read.group, wanted):
                    break
        return result

    def _is_new(self, stream: tuple[str, str, int], run: Run, result: GetResult) -> bool:
        """Return whether a stream has come to another block, so that there is something to load ahead."""
        number = run.first_at(result.next_offset)
        place = run.block_at(run.place_of(number)).start if number < len(run.units) else run.piece.end
        return self._ahead.is_new(stream, place)

    def _note_failure(self, read: TierRead, error: StoreError) -> None:
        self.failed_reads += 1
        peer_lines.warning(
            logger, "", "event=tiered_read_failed group=%s topic=%s queue=%d offset=%d reason=%r",
            read.group, read.topic, read.queue_id, read.offset, str(error),
        )  # fmt: skip

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    # Single records, and times

    @property
    def is_on(self) -> bool:
        """Whether there is an archive to look into."""
        return self._view is not None and self._config().tiered_storage_level is not TieredStorageLevel.DISABLE

    async def record_at(self, physical_offset: int) -> memoryview | None:
        """Return the archived record that begins at a physical offset; None if none does.

        Raises an `ObjectStoreError`.
        """
        if not self.is_on:
            return None
        return await self._timely(_QUERIES, self._record_at(physical_offset))

    def _record_at(self, physical_offset: int) -> Steps[memoryview | None]:
        return record_at(self._archive.manifest, physical_offset, self._ages.now_ms())

    async def records_of_key(
        self, topic: str, key: str, begin_ms: int, end_ms: int, before: int, max_messages: int
    ) -> list[memoryview]:
        """Return archived records that may have a key, oldest first, from before a physical offset of the log.

        Raises an `ObjectStoreError`.
        """
        if not self.is_on or before <= 0:
            return []
        manifest, now_ms = self._archive.manifest, self._ages.now_ms()
        offsets = await self._timely(
            _QUERIES, offsets_of_key(manifest, topic, key, begin_ms, end_ms, before, max_messages, now_ms)
        )
        found = [await self._timely(_QUERIES, self._record_at(offset)) for offset in sorted(offsets)]
        return [record for record in found if record is not None]

    async def offset_by_time(self, topic: str, queue_id: int, timestamp_ms: int, boundary: Boundary) -> int:
        """Return the offset of a time as `MessageStore.offset_by_time` does, over all that a consumer can read.

        Raises an `ObjectStoreError`.
        """
        store = self._store
        local, gap = store.offset_by_time(topic, queue_id, timestamp_ms, boundary), store.gap(topic, queue_id)
        first_ms = store.earliest_store_time(topic, queue_id)
        is_local = 0 <= first_ms < timestamp_ms or (boundary is Boundary.UPPER and 0 <= first_ms <= timestamp_ms)
        may_be_in_gap = gap.start < gap.stop <= local
        if (is_local and not may_be_in_gap) or self._archived_min(topic, queue_id) is None:
            return local
        steps = offset_by_time(self._archive.ranges, topic, queue_id, timestamp_ms, boundary, self._ages.now_ms())
        found = await self._timely(_QUERIES, steps)
        if found is None:
            return local if boundary is Boundary.LOWER else self.min_offset(topic, queue_id)
        if may_be_in_gap:
            return min(max(found, gap.start), local)
        return found if first_ms < 0 else min(found, local)

    async def earliest_store_time(self, topic: str, queue_id: int) -> int:
        """Return the store time of the oldest message that a consumer can read, ms; -1 without one.

        Raises an `ObjectStoreError`.
        """
        low = self.min_offset(topic, queue_id)
        if self._archived_min(topic, queue_id) != low:
            return self._store.earliest_store_time(topic, queue_id)
        steps = store_time(self._archive.ranges, topic, queue_id, low, self._ages.now_ms())
        return await self._timely(_QUERIES, steps)

    @property
    def _archive(self) -> ArchiveView:
        assert self._view is not None, "there is no archive"
        return self._view


def _limits(settings: StoreConfig) -> FetchLimits:
    return FetchLimits(
        Room(settings.tiered_store_max_reads_per_group, settings.read_ahead_message_size_threshold),
        Room(settings.tiered_store_max_reads, settings.tiered_store_read_cache_size),
        settings.tiered_store_read_timeout / 1000,
    )
