"""Current lag of groups: ``config/consumerOffset.json`` compared with the ConsumeQueues, without Spark."""

from bisect import bisect_right
from pathlib import Path
from typing import Final

import msgspec

from spark.files.consume_queue import can_be_file_name
from spark.files.segment import Segment, segment_paths
from spark.files.store_directory import COMMIT_LOG, StoreDirectory
from spark.queues.offset_queue import OffsetQueue, open_queue
from spark.queues.positions import QueueId
from spark.report.findings import GroupLag
from spark.report.topic_kinds import TopicKind, kind_of
from sprocket.common.errors import ProtocolError
from sprocket.common.files.regular_file import read_regular
from sprocket.remoting.codec import fastjson
from sprocket.remoting.message.topic_names import SYSTEM_GROUP_PREFIX

FILE: Final = Path("config") / "consumerOffset.json"


class OffsetFile(msgspec.Struct):
    """``config/consumerOffset.json``.  Source: RocketMQ 5.3.3, `ConsumerOffsetManager`."""

    offset_table: dict[str, dict[int, int]] = msgspec.field(name="offsetTable", default_factory=dict)


def committed_lags(store: StoreDirectory) -> tuple[list[GroupLag], str | None]:
    """Return the lag of every group on every topic of `store`, largest first, and the reason if it is unknown.

    The broker writes the file every few seconds, so messages consumed since then count as lag.  As in RocketMQ, lag is
    the queue's end minus the committed offset; a queue without a committed offset does not count.
    """
    path = store.root / FILE
    try:
        table = fastjson.loads(read_regular(path), OffsetFile).offset_table
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
    lag = 0
    times = []
    for queue_id, offset in offsets.items():
        queue = _opened(store, QueueId(store.broker_name, topic, queue_id))
        end = queue.bounds(queue.begin, queue.end)[1] if queue is not None else 0
        if queue is not None and offset < end:
            lag += end - offset
            times.append(_stored_at(store, queue, offset))
    oldest_ms = min((time for time in times if time is not None), default=None)
    return GroupLag(store.broker_name, group, topic, len(offsets), lag, oldest_ms)


def _opened(store: StoreDirectory, queue: QueueId) -> OffsetQueue | None:
    """Return the queue, None if it does not exist: the topic was deleted, or has no message yet."""
    try:
        return open_queue(store.root, queue) if can_be_file_name(queue.topic) else None
    except (FileNotFoundError, NotADirectoryError):
        return None


def _stored_at(store: StoreDirectory, queue: OffsetQueue, offset: int) -> int | None:
    """Return the store timestamp (ms) of the first message at or after this queue offset; None if it has expired."""
    physical_offset, size = queue.entry(queue.number_at(offset))
    paths = segment_paths(store.root / COMMIT_LOG)
    index = bisect_right(paths, physical_offset, key=lambda each: each[0]) - 1
    if not size or index < 0:
        return None
    start, path = paths[index]
    with Segment(path, start) as segment:
        position = physical_offset - start
        return segment.store_timestamp(position) if segment.span(position) is not None else None
