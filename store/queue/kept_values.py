"""Cache of the values of properties in the records of a queue, for the next filter on the same properties.

Many groups filter one topic by the same few properties, each with its own expression.  Held pulls check the newest
records once for each group.  Only the compiled engine keeps values.
"""

from typing import Any, Final

from store.log.commit_log import CommitLog
from store.queue.consume_queue import ConsumeQueue
from store.queue.record_filter import Entries, engine

# Entries of a block, the unit of reads and of eviction; as in the compiled engine.
BLOCK_ENTRIES: Final = 512
# A block is 12 KiB, so all blocks are 6 MiB.
_MAX_BLOCKS: Final = 512


class KeptValues:
    """Cache of values by queue, properties and queue offset; evicts the oldest used."""

    def __init__(self, log: CommitLog) -> None:
        self._log = log
        self._blocks: dict[tuple[str, int, tuple[bytes, ...], int], Any] = {}  # each a `ValueBlock`

    def chosen(
        self, queue: ConsumeQueue, offset: int, entries: Entries, chooser: Any, limit: int
    ) -> tuple[list[int], int]:
        """Return the numbers of up to `limit` of `entries` that `chooser` wants, and the number of searched entries.

        `entries` begin at `offset`.  None are searched if the record of the first one is not in the log.
        """
        number, at = divmod(offset, BLOCK_ENTRIES)
        name = (queue.topic, queue.queue_id, chooser.names, number)
        log, blocks = self._log, self._blocks
        block = blocks.pop(name, None)
        if block is None or block.revision != log.revision:
            assert engine is not None  # it has made `chooser`
            block = engine.ValueBlock(log.revision)
        segment, base, end = log.segment_at(int(entries["physical_offset"][0]))
        found: tuple[list[int], int] = chooser.choose(
            entries, segment, base, min(end, log.wrote_offset), limit, block, at
        )
        blocks[name] = block
        if len(blocks) > _MAX_BLOCKS:
            del blocks[next(iter(blocks))]
        return found
