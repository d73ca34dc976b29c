"""An index that goes on from the one before is that of the whole manifest, and leaves the one before as it was."""

import random

import pytest

from store.tier.manifest import Manifest, QueueRange, SegmentEntry, empty
from store.tier.reads.queue_ranges import QueueRanges

_QUEUES = [(topic, queue_id) for topic in ("Orders", "Returns") for queue_id in range(2)]


def segment(number: int, queues: list[QueueRange] | None) -> SegmentEntry:
    return SegmentEntry(
        start=number * 100, end=number * 100 + 100, key=f"segments/{number}-0-test-{number}", size_bytes=1, sha256="",
        log_sha256="", footer_bytes=1, footer_sha256="", records=1, dropped=0, first_store_ms=1, last_store_ms=1,
        epoch=0, created_ms=1, topics=["Orders", "Returns"], queues=queues,
    )  # fmt: skip


def pieces(ranges: QueueRanges) -> list[object]:
    return [ranges.topics, *(list(ranges.readable(*queue, now_ms=0)) for queue in _QUEUES)]


@pytest.mark.parametrize("seed", range(20))
def test_segments_come_and_go(seed: int) -> None:
    chance, ends = random.Random(seed), dict.fromkeys(_QUEUES, 0)
    listed: dict[str, list[QueueRange]] = {}
    manifest: Manifest = empty("", "", 100, 1)
    ranges = QueueRanges(manifest, listed)
    for number in range(30):
        if manifest.segments and chance.random() < 0.2:
            manifest = manifest.without([chance.choice(manifest.segments).key], 1)
        elif chance.random() < 0.1:
            manifest = manifest.with_reserves(2, {}, 1)
        else:
            queues = []
            for queue in chance.sample(_QUEUES, chance.randrange(4)):
                first = 0 if chance.random() < 0.1 else ends[queue]  # a topic that was deleted begins again
                ends[queue] = first + chance.randrange(1, 9)
                queues.append(QueueRange(*queue, first, ends[queue]))
            entry = segment(number, queues if chance.random() < 0.7 else None)
            if entry.queues is None:
                listed[entry.key] = queues
            manifest = manifest.with_segment(entry, 1)
        before, was = ranges, pieces(ranges)
        ranges = QueueRanges(manifest, listed, before=before)
        assert pieces(ranges) == pieces(QueueRanges(manifest, listed))
        assert pieces(before) == was
