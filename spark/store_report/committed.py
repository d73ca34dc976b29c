"""How far groups are behind now: ``config/consumerOffset.json`` against the ConsumeQueues.  No Spark."""

from bisect import bisect_right
from pathlib import Path
from typing import Final

import msgspec

from remoting import fastjson
from spark.consume_queue import ConsumeQueue, open_queues
from spark.segment import Segment, segment_paths
from spark.store_directory import COMMIT_LOG, StoreDirectory
from spark.store_report.findings import GroupLag
from spark.store_report.topic_kinds import SYSTEM_GROUP_PREFIX, TopicKind, kind_of
from sprocket.common.errors import ProtocolError

FILE: Final = Path("config") / "consumerOffset.json"


class OffsetFile(msgspec.Struct):
    """``config/consumerOffset.json``.  Source: RocketMQ 5.3.3, `ConsumerOffsetManager`."""

    offset_table: dict[str, dict[int, int]] = msgspec.field(name="offsetTable", default_factory=dict)


def committed_lags(store: StoreDirectory) -> tuple[list[GroupLag], str | None]:
    """The lag of every group on every topic of `store`, largest first, and why there are none to tell.

    The broker writes the file every few seconds, so what was consumed since counts as lag.  As RocketMQ has it, lag is
    the queue's end less the committed offset; a queue that a group has committed nothing of does not count.
    """
    path = store.root / FILE
    try:
        table = fastjson.loads(path.read_bytes(), OffsetFile).offset_table
    except FileNotFoundError:
        return [], f"{store.broker_name}: there is no {FILE}"
    except (OSError, ProtocolError) as error:
        return [], f"{store.broker_name}: {FILE} cannot be read: {error}"
    lags = []
    for name, offsets in table.items():
        topic, _, group = name.partition("@")
        if group and not group.startswith(SYSTEM_GROUP_PREFIX) and kind_of(topic) is not TopicKind.SYSTEM:
            lags.append(_lag(store, group, topic, offsets))
    return sorted(lags, key=lambda each: (-each.lag, each.group, each.topic)), None


def _lag(store: StoreDirectory, group: str, topic: str, offsets: dict[int, int]) -> GroupLag:
    queues = [queue for queue in open_queues(store.root, topic) if queue.queue_id in offsets]
    behind = [(queue, offsets[queue.queue_id]) for queue in queues if offsets[queue.queue_id] < queue.end]
    times = [_stored_at(store, queue, max(offset, queue.begin)) for queue, offset in behind]
    return GroupLag(
        store.broker_name,
        group,
        topic,
        len(offsets),
        sum(queue.end - offset for queue, offset in behind),
        min((time for time in times if time is not None), default=None),
    )


def _stored_at(store: StoreDirectory, queue: ConsumeQueue, offset: int) -> int | None:
    """When the message at this queue offset was stored, ms; None if its record is gone."""
    physical_offset, size = queue.entry(offset)
    paths = segment_paths(store.root / COMMIT_LOG)
    index = bisect_right(paths, physical_offset, key=lambda each: each[0]) - 1
    if not size or index < 0:
        return None
    start, path = paths[index]
    with Segment(path, start) as segment:
        position = physical_offset - start
        return segment.store_timestamp(position) if segment.span(position) is not None else None
