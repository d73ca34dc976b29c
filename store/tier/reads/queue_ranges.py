"""Where the archive has the messages of each queue: an index over one manifest.  Pure, and never changed."""

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from store.tier.manifest import Manifest, QueueRange, SegmentEntry


class Piece(NamedTuple):
    """The messages of one queue in one segment: queue offsets from `first` to before `end`, perhaps with gaps."""

    first: int
    end: int
    segment: SegmentEntry


class QueueRanges:
    """The pieces of each queue, in order.

    `listed` are the queues, by segment key, of the segments that have more than the manifest lists.  A segment whose
    queues are not known yet is left out, and so are topics for which `serves` is false.
    """

    def __init__(
        self, manifest: Manifest, listed: Mapping[str, Sequence[QueueRange]], serves: Callable[[str], bool]
    ) -> None:
        self.manifest = manifest
        self._pieces: dict[tuple[str, int], list[Piece]] = {}
        for segment in manifest.segments:
            for queue in segment.queues if segment.queues is not None else listed.get(segment.key, ()):
                if not serves(queue.topic):
                    continue
                pieces = self._pieces.setdefault((queue.topic, queue.queue_id), [])
                if pieces and queue.first < pieces[-1].end:
                    pieces.clear()  # the topic was deleted, and created again
                pieces.append(Piece(queue.first, queue.end, segment))
        # Names of all topics with messages in the archive.
        self.topics = frozenset(topic for topic, _ in self._pieces)

    def __contains__(self, key: tuple[str, int]) -> bool:
        return key in self._pieces

    def ends(self) -> dict[tuple[str, int], int]:
        """Return the offset after the last message of each queue."""
        return {key: pieces[-1].end for key, pieces in self._pieces.items()}

    def readable(self, topic: str, queue_id: int, now_ms: int) -> Sequence[Piece]:
        """Return the pieces that consumers may still read, oldest first."""
        pieces = self._pieces.get((topic, queue_id))
        if not pieces:
            return ()
        is_readable = self.manifest.is_readable
        if is_readable(pieces[0].segment, topic, now_ms):
            return pieces
        # Store times may step back, so the oldest readable piece is not found by bisection.
        first = next((n for n, piece in enumerate(pieces) if is_readable(piece.segment, topic, now_ms)), len(pieces))
        return pieces[first:]

    def min_offset(self, topic: str, queue_id: int, now_ms: int) -> int | None:
        """Return the first readable queue offset; None if there is none."""
        pieces = self.readable(topic, queue_id, now_ms)
        return pieces[0].first if pieces else None

    def piece_at(self, topic: str, queue_id: int, offset: int, now_ms: int) -> Piece | None:
        """Return the first readable piece with messages at or after `offset`; None if there is none."""
        pieces = self.readable(topic, queue_id, now_ms)
        number = bisect_right(pieces, offset, key=lambda piece: piece.end)
        return pieces[number] if number < len(pieces) else None
