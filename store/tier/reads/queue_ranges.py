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

    `listed` are the queues, by segment key, of the segments that have more than the manifest lists.  Topics for which
    `serves` is false are left out.  Of what `before` has already, the same segment entries, nothing is done again.
    """

    def __init__(
        self,
        manifest: Manifest,
        listed: Mapping[str, Sequence[QueueRange]],
        serves: Callable[[str], bool] = lambda topic: True,
        before: "QueueRanges | None" = None,
    ) -> None:
        self.manifest = manifest
        known = 0 if before is None else _known(before.manifest.segments, manifest.segments)
        self._pieces: dict[tuple[str, int], list[Piece]] = dict(before._pieces) if before is not None and known else {}
        own = set[tuple[str, int]]()  # queues whose lists are not those of `before`
        for segment in manifest.segments[known:]:
            for queue in listed[segment.key] if segment.queues is None else segment.queues:
                if not serves(queue.topic):
                    continue
                key = queue.topic, queue.queue_id
                if key not in own:
                    own.add(key)
                    self._pieces[key] = list(self._pieces.get(key, ()))
                pieces = self._pieces[key]
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


def _known(before: Sequence[SegmentEntry], now: Sequence[SegmentEntry]) -> int:
    """Return how many segments `before` has; 0 unless `now` begins with them."""
    is_begin = len(before) <= len(now) and all(one is other for one, other in zip(before, now, strict=False))
    return len(before) if is_begin else 0
