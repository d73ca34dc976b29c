"""Preview of a reset: where a group is in each queue, and where it would be.  Pure."""

from collections.abc import Mapping
from dataclasses import dataclass

from sprocket.remoting.bodies.client import MessageQueue
from sprocket.remoting.bodies.stats import OffsetWrapper, TopicOffset


@dataclass(frozen=True)
class PreviewRow:
    """One queue; `committed` is None without an offset.  `change` is positive if messages are skipped."""

    broker: str
    queue_id: int
    min_offset: int
    max_offset: int
    committed: int | None
    target: int
    change: int


def preview_rows(
    committed: Mapping[MessageQueue, OffsetWrapper],
    extents: Mapping[MessageQueue, TopicOffset],
    wanted: Mapping[MessageQueue, int],
) -> list[PreviewRow]:
    """Return a row for each queue whose target is known."""
    rows = []
    for queue, target in sorted(wanted.items()):
        one, extent = committed.get(queue), extents[queue]
        now = one.consumer_offset if one is not None and one.consumer_offset >= 0 else None
        target = min(max(target, extent.min_offset), extent.max_offset)
        change = 0 if now is None else target - now
        rows.append(
            PreviewRow(queue.broker_name, queue.queue_id, extent.min_offset, extent.max_offset, now, target, change)
        )
    return rows
