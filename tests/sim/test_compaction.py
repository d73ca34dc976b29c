"""Readers of a compacted topic end with the last message of each key, through compactions, retention and crashes.

A dict by key is the model.  Power fails after any operation on the disk while the store compacts or removes segments;
what is left must have everything that was confirmed and on the disk.
"""

import random
from typing import Final

import pytest

from sprocket.common.errors import StoreError
from store.message_store import MessageStore
from tests.clock import ManualClock
from tests.sim.crash_sweep import subsets_of
from tests.sim.sim_disk import Operation, SimDisk
from tests.sim.sim_store import SimStore, small_config
from tests.store.compaction.compacting import TOPIC, apply, price, read
from tests.store.reading import records_of
from tests.store.rig import message
from tests.tiers import seeds

_QUEUES: Final = 2
_KEYS: Final = 24
_COMPACT: Final = "store-compact"
_CLEAN: Final = "store-clean"
_HOUR_S: Final = 3600.0

Table = dict[bytes, bytes]


class CompactedRun:
    """A store, the tables that its readers must have, and readers that fall behind."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.config = small_config(
            sync_flush=bool(seed % 2), segment_bytes=8 * 1024, file_reserved_time=2, clean_resource_interval=1000,
            # A map of 16 keys, so that a compaction may need several passes.
            max_offset_map_size=self.chance.choice((4096, 1 << 20)), disk_space_warning_level_ratio=100,
            compaction_delete_retention=self.chance.choice((0, 1 << 40)),
        )  # fmt: skip
        self.clock = ManualClock()
        self.sim = SimStore(SimDisk(seed), self.config, self.clock)
        self._begin()
        self.tables: list[Table] = [{} for _ in range(_QUEUES)]
        self.behind: list[tuple[int, Table]] = [(0, {}) for _ in range(_QUEUES)]
        self.points = self._bodies = 0

    @property
    def store(self) -> MessageStore:
        return self.sim.store

    def _begin(self) -> None:
        self.sim.open()
        self.store.compaction.set_topics([TOPIC])

    # Steps

    def send(self) -> None:
        for _ in range(self.chance.randrange(1, 30)):
            queue_id, key = self.chance.randrange(_QUEUES), f"k{self.chance.randrange(_KEYS)}"
            self._bodies += 1
            body = b"" if self.chance.random() < 0.2 else str(self._bodies).encode() * self.chance.randrange(1, 20)
            self.store.append([price(key, body, queue_id)])
            self.tables[queue_id].pop(key.encode(), None)
            if body:
                self.tables[queue_id][key.encode()] = body
        self.sim.flush()

    def fill(self) -> None:
        for _ in range(self.chance.randrange(1, 6)):
            self.store.append([message("Other", body=b"x" * 1500)])
        self.sim.flush()

    def compact(self) -> None:
        self.store.compaction.hurry()
        for _ in range(6):
            self.sim.step(_COMPACT)

    def clean(self) -> None:
        self.store.cleaner.clean_now()
        for _ in range(6):
            self.clock.advance(_HOUR_S)
            self.sim.step(_CLEAN)

    def reopen(self) -> None:
        self.store.shutdown()
        self.sim = SimStore(self.sim.disk, self.config, self.clock)
        self._begin()

    def read_on(self) -> None:
        """A reader that is behind reads some messages of a queue."""
        queue_id = self.chance.randrange(_QUEUES)
        offset, table = self.behind[queue_id]
        if offset < self.store.max_offset(TOPIC, queue_id):
            result = self.store.get(TOPIC, queue_id, offset, self.chance.randrange(1, 9), 1 << 20)
            self.behind[queue_id] = result.next_offset, apply(table, records_of(result.slices))

    # Checks

    def check(self, store: MessageStore) -> None:
        for queue_id, table in enumerate(self.tables):
            assert apply({}, read(store, queue_id)) == table, queue_id

    def check_behind(self) -> None:
        """A reader that was behind has everything once it has read to the end, unless it missed deletions."""
        if self.config.compaction_delete_retention:
            for queue_id, (offset, table) in enumerate(self.behind):
                assert apply(dict(table), read(self.store, queue_id, offset)) == self.tables[queue_id]

    def crash_after(self, operation: Operation) -> None:
        """Check what a loss of power would leave now, in several ways."""
        self.points += 1
        for subset in subsets_of(operation.number, 3):
            sim = SimStore(self.sim.disk.crash(subset), self.config, ManualClock(self.clock.wall_ms()))
            sim.open()
            sim.store.compaction.set_topics([TOPIC])
            try:
                self.check(sim.store)
            except (AssertionError, StoreError) as error:
                raise AssertionError(f"after {operation} {subset}") from error

    def play(self, steps: int, *, crashes: bool) -> None:
        pick = [self.send, self.send, self.fill, self.compact, self.compact, self.clean, self.reopen, self.read_on]
        for _ in range(steps):
            step = self.chance.choice(pick)
            if crashes and step in (self.compact, self.clean):
                self.sim.disk.after = self.crash_after
            step()
            self.sim.disk.after = None
            self.check(self.store)
        self.check_behind()


@pytest.mark.parametrize("seed", seeds(40, quick=3))
def test_readers_have_the_last_message_of_each_key(seed: int) -> None:
    run = CompactedRun(seed)
    run.play(60, crashes=False)
    assert run.store.compaction.failed == 0


@pytest.mark.parametrize("seed", [100 + number for number in seeds(20, quick=1)])
def test_power_fails_while_the_store_compacts(seed: int) -> None:
    run = CompactedRun(seed)
    run.play(25, crashes=True)
    assert run.store.compaction.failed == 0
