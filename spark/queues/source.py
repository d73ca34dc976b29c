"""Queues of several brokers for a query: the protocols, and the queues in store directories.

On the driver, a `QueueSource` lists the readable ranges; in a task, a `ReadTask` reads some of them.
"""

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Final, Protocol

from spark.decode.decoder import DecodeOptions
from spark.files.segment_lease import LeaseKeeper, SegmentLease, wants_lease
from spark.files.store_directory import StoreDirectory, find_stores
from spark.files.store_rights import store_rights
from spark.queues.data_loss import LostRange, report_loss
from spark.queues.entries import OnLoss
from spark.queues.positions import QueueId
from spark.queues.ranges import QueueRange, QueueSelection, StoreQueues
from spark.queues.reader import read_ranges
from spark.rows.chunk_rows import Rows
from spark.rows.filters import RowFilter
from sprocket.common.errors import ConfigError

logger = logging.getLogger(__name__)

# Minimum number of messages for another task.
_TASK_MESSAGES: Final = 4096


@dataclass(frozen=True)
class Snapshot:
    """Readable ranges at one moment: [begin, end) of each queue, and the brokers that were asked.

    `behind` are queues that may have had more messages: a slave reported their end, or consumers may not see more yet.
    `closed` are existing queues that may not be read now.
    """

    broker_names: tuple[str, ...] = ()
    ranges: dict[QueueId, tuple[int, int]] = field(default_factory=dict)
    behind: frozenset[QueueId] = frozenset()
    closed: frozenset[QueueId] = frozenset()


class ReadTask(Protocol):
    """Ranges for one task, which receives them by pickle."""

    @property
    def ranges(self) -> Sequence[QueueRange]: ...

    def read(
        self, columns: Sequence[str], rows: RowFilter, decode: DecodeOptions, on_loss: OnLoss
    ) -> Iterator[Rows]: ...


class QueueSource(Protocol):
    """Queues of a query, on its driver."""

    def snapshot(self, strict: bool = True) -> Snapshot:
        """Return what is readable now; without `strict`, only of the brokers that respond."""

    def at_time(self, queue: QueueId, milliseconds: int, step_back_ms: int, *, is_end: bool = False) -> int:
        """Return the offset of the first message of `queue` stored at `milliseconds` or later, its end without one.

        This is right if no store timestamp is more than `step_back_ms` below an earlier one of the queue.  Set `is_end`
        if a read ends there: unreadable messages are then before the result, otherwise after it.
        """

    def tasks(self, packs: Sequence[Sequence[QueueRange]]) -> Sequence[ReadTask]:
        """Return a task for each list of ranges."""

    def close(self) -> None: ...


@dataclass(frozen=True)
class DirectoryTask:
    """Ranges of queues in store directories."""

    stores: tuple[StoreDirectory, ...]
    ranges: Sequence[QueueRange]
    leases: tuple[SegmentLease, ...] = ()

    def read(self, columns: Sequence[str], rows: RowFilter, decode: DecodeOptions, on_loss: OnLoss) -> Iterator[Rows]:
        stores = {store.broker_name: store for store in self.stores}
        keeper = LeaseKeeper(self.leases)
        for broker_name, group in groupby(self.ranges, key=lambda each: each.queue.broker_name):
            options = replace(decode, broker_name=broker_name)
            with store_rights():
                for found in read_ranges(stores[broker_name], list(group), columns, rows, options, on_loss):
                    keeper.keep()
                    yield found


class DirectoryQueues:
    """Queues of every store that `paths` name; each snapshot finds new stores."""

    def __init__(self, paths: Sequence[str], selection: QueueSelection, lease_ms: int = 0) -> None:
        """Open the source.  `lease_ms` is the time of a lease on segments to read, ms; 0: no leases."""
        self._paths = paths
        self._selection = selection
        self._lease_ms = lease_ms
        self._stores: dict[str, StoreQueues] = {}

    @store_rights()
    def snapshot(self, strict: bool = True) -> Snapshot:
        """Raise ConfigError if the name of a store changed, because its queues would be read again from the start."""
        stores = find_stores(self._paths)
        self._check_names(stores)
        self._stores = {
            store.broker_name: self._known(store) or StoreQueues(store, self._selection) for store in stores
        }
        ranges: dict[QueueId, tuple[int, int]] = {}
        behind: set[QueueId] = set()
        for queues in self._stores.values():
            ranges.update(queues.ranges())
            behind |= queues.held_back
        return Snapshot(tuple(sorted(self._stores)), ranges, frozenset(behind))

    def at_time(self, queue: QueueId, milliseconds: int, step_back_ms: int, *, is_end: bool = False) -> int:
        return self._stores[queue.broker_name].at_time(queue, milliseconds, step_back_ms, is_end=is_end)

    def tasks(self, packs: Sequence[Sequence[QueueRange]]) -> list[DirectoryTask]:
        """Raise ConfigError for a range of a broker whose store is missing."""
        names = {each.queue.broker_name for pack in packs for each in pack}
        if not names <= self._stores.keys():
            self._stores = {
                store.broker_name: StoreQueues(store, self._selection) for store in find_stores(self._paths)
            }
        away = sorted(names - self._stores.keys())
        if away:
            raise ConfigError(
                f"the batch reads {', '.join(away)}, and path {','.join(self._paths)} has no store of that name now: "
                "bring its directory back and start again"
            )
        leases = {name: self._lease(name, packs) for name in names}
        return [self._task(pack, leases) for pack in packs]

    def _task(self, ranges: Sequence[QueueRange], leases: Mapping[str, SegmentLease | None]) -> DirectoryTask:
        names = sorted({each.queue.broker_name for each in ranges})
        held = tuple(lease for name in names if (lease := leases[name]) is not None)
        return DirectoryTask(tuple(self._stores[name].store for name in names), ranges, held)

    def _lease(self, broker_name: str, packs: Sequence[Sequence[QueueRange]]) -> SegmentLease | None:
        """Take a lease from the first segment of the read on; None if it cannot expire or the lease fails."""
        queues = self._stores[broker_name]
        root = queues.store.root
        if not self._lease_ms or not wants_lease(root):
            return None
        first = queues.first_segment([each for pack in packs for each in pack if each.queue.broker_name == broker_name])
        lease = None if first is None else SegmentLease(root, first, self._lease_ms)
        return lease if lease is not None and lease.hold() else None

    def close(self) -> None:
        """Do nothing: no file stays open."""

    def _check_names(self, stores: Sequence[StoreDirectory]) -> None:
        names = {known.store.root: name for name, known in self._stores.items()}
        for store in stores:
            before = names.get(store.root, store.broker_name)
            if before != store.broker_name:
                raise ConfigError(
                    f"{store.root} was {before!r}, and is {store.broker_name!r} among the stores that path names now: "
                    f"write it as {before}={store.root}, and the others beside it"
                )

    def _known(self, store: StoreDirectory) -> StoreQueues | None:
        known = self._stores.get(store.broker_name)
        return known if known is not None and known.store == store else None


def packed(ranges: Iterable[QueueRange], tasks: int, at_least: bool = False) -> list[list[QueueRange]]:
    """Return `ranges` divided into `tasks` lists with equal numbers of messages; ranges are cut where needed.

    There are fewer lists if there are fewer messages or, unless `at_least`, if the lists would be short.
    """
    every = [each for each in ranges if len(each)]
    total = sum(map(len, every))
    if not total:
        return []
    count = min(tasks, total if at_least else -(-total // _TASK_MESSAGES))
    packs: list[list[QueueRange]] = [[]]
    done = 0
    for each in every:
        begin = each.begin
        while begin < each.end:
            if done == total * len(packs) // count:
                packs.append([])
            end = min(each.end, begin + total * len(packs) // count - done)
            packs[-1].append(QueueRange(each.queue, begin, end))
            done += end - begin
            begin = end
    return packs


def read_task(
    task: ReadTask, columns: Sequence[str], rows: RowFilter, decode: DecodeOptions, fail_on_data_loss: bool
) -> Iterator[Rows]:
    """Yield the rows of `task`.  Lost messages raise MessagesLost with `fail_on_data_loss`; else they are logged."""
    skipped = 0

    def on_loss(lost: list[LostRange]) -> None:
        nonlocal skipped
        skipped += report_loss(lost, fail_on_data_loss)

    yield from task.read(columns, rows, decode, on_loss)
    if skipped:
        logger.warning("event=messages_skipped count=%d", skipped)
