"""How many blocks to load before they are asked for: none for a single read, more and more for one that goes on."""

from collections import OrderedDict
from collections.abc import Hashable
from typing import Final

# Readers that are remembered; one that was forgotten begins again without blocks ahead.
MAX_STREAMS: Final = 10_000


class ReadAhead:
    """The policy: each read that begins where the last one of its stream ended doubles the number of blocks ahead.

    `max_blocks` bounds that number.
    """

    def __init__(self, max_blocks: int) -> None:
        self._max_blocks = max_blocks
        # Stream -> where its last read ended, blocks ahead of it, and the place for which they were loaded.
        self._streams: OrderedDict[Hashable, tuple[int, int, object]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._streams)

    def resize(self, max_blocks: int) -> None:
        """Change the limit."""
        self._max_blocks = max_blocks

    def blocks_after(self, stream: Hashable, begin: int, end: int) -> int:
        """Note a read from offset `begin` to before `end`, and return how many blocks to load after it."""
        expected, ahead, place = self._streams.pop(stream, (-1, 0, None))
        grown = min(max(1, 2 * ahead), self._max_blocks) if begin == expected else 0
        self._streams[stream] = end, grown, None if grown != ahead else place
        if len(self._streams) > MAX_STREAMS:
            self._streams.popitem(last=False)
        return grown

    def is_new(self, stream: Hashable, place: object) -> bool:
        """Return whether the blocks ahead of a stream are to be loaded: it came to another place, or they are more."""
        end, ahead, known = self._streams[stream]
        self._streams[stream] = end, ahead, place
        return known != place
