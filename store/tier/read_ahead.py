"""How many blocks to load before they are asked for: none for a single read, more and more for one that goes on."""

from collections import OrderedDict
from collections.abc import Hashable
from typing import Final

# Readers that are remembered; one that was forgotten begins again without blocks ahead.
_MAX_STREAMS: Final = 10_000


class ReadAhead:
    """The policy: each read that begins where the last one of its stream ended doubles the number of blocks ahead.

    `max_blocks` bounds that number.
    """

    def __init__(self, max_blocks: int) -> None:
        self._max_blocks = max_blocks
        # Stream -> where its last read ended, blocks ahead of it.
        self._streams: OrderedDict[Hashable, tuple[int, int]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._streams)

    def resize(self, max_blocks: int) -> None:
        """Change the limit."""
        self._max_blocks = max_blocks

    def blocks_after(self, stream: Hashable, begin: int, end: int) -> int:
        """Note a read from offset `begin` to before `end`, and return how many blocks to load after it."""
        expected, ahead = self._streams.pop(stream, (-1, 0))
        ahead = min(max(1, 2 * ahead), self._max_blocks) if begin == expected else 0
        self._streams[stream] = end, ahead
        if len(self._streams) > _MAX_STREAMS:
            self._streams.popitem(last=False)
        return ahead
