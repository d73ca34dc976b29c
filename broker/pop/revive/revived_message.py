"""Conversion of an unacknowledged message: into a message of the group's retry topic, or a later checkpoint.

Source: RocketMQ 5.3.3, `PopReviveService.reviveRetry`, `rePutCK`.
"""

import re
from typing import Final

from broker.pop.records import PopCheckPoint
from broker.topic.retry_topics import retry_topic
from sprocket.remoting.message.properties import VALUE_END_BYTES, encoded_name, find_last, terminated
from sprocket.remoting.message.topic_names import RETRY_PREFIX
from store.record.record import PendingMessage, Record, TagsCodes

# ckRewriteIntervalsInSeconds: delay of a checkpoint after its first failure, its second, and so on.
REWRITE_INTERVALS_S: Final = (
    10, 20, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200,
)  # fmt: skip
_FIRST_POP_TIME: Final = encoded_name("1ST_POP_TIME")
_JAVA_INT: Final = re.compile(r"[+-]?[0-9]{1,10}")
# Used for a count that is no number.
_UNKNOWN_COUNT: Final = 127


def topic_of(checkpoint: PopCheckPoint, is_v2: bool) -> str:
    """Return the retry topic of the checkpoint's messages; messages from a retry topic stay in it."""
    if checkpoint.t.startswith(RETRY_PREFIX):
        return checkpoint.t
    return retry_topic(checkpoint.t, checkpoint.c, is_v2)


def revived(
    record: Record, checkpoint: PopCheckPoint, topic: str, queue_id: int, born_host: bytes, codes: TagsCodes
) -> PendingMessage:
    """Return `record` for a queue of `topic`, with the time of its first pop; a delivery counts unless `sp` says no."""
    properties = bytes(record.properties)
    if record.reconsume_times == 0 or find_last(properties, _FIRST_POP_TIME) is None:
        properties = _with(properties, _FIRST_POP_TIME, str(checkpoint.pt).encode())
    return PendingMessage(
        topic,
        queue_id,
        record.body,
        properties,
        codes.of(topic, properties, 0),
        record.flag,
        record.sys_flag,
        record.born_timestamp,
        born_host,
        record.reconsume_times + (not checkpoint.sp),
    )


def _with(properties: bytes, name: bytes, value: bytes) -> bytes:
    before = find_last(properties, name)
    if before is not None:
        at = properties.rindex(name + before) + len(name)
        return properties[:at] + value + properties[at + len(before) :]
    return b"".join((terminated(properties), name, value, VALUE_END_BYTES))


def rewrite_count(checkpoint: PopCheckPoint) -> int:
    """Return how often the checkpoint was written again."""
    if checkpoint.rp is None:
        return 0
    count = int(checkpoint.rp) if _JAVA_INT.fullmatch(checkpoint.rp) else _UNKNOWN_COUNT
    return count if -(1 << 31) <= count < 1 << 31 else _UNKNOWN_COUNT


def is_given_up(checkpoint: PopCheckPoint, skips: bool) -> bool:
    """Return whether the checkpoint failed so often that it is dropped (skipWhenCKRePutReachMaxTimes)."""
    return skips and rewrite_count(checkpoint) >= len(REWRITE_INTERVALS_S)


def rewritten(checkpoint: PopCheckPoint, offset: int, now: int) -> PopCheckPoint:
    """Return a checkpoint of the message at queue `offset`, delayed if its time is over; `now` in ms."""
    count = rewrite_count(checkpoint)
    invisible_ms = checkpoint.it
    if checkpoint.revive_time <= now:
        invisible_ms += REWRITE_INTERVALS_S[min(max(count, 0), len(REWRITE_INTERVALS_S) - 1)] * 1000
    return PopCheckPoint(
        so=offset, pt=checkpoint.pt, it=invisible_ms, n=1, q=checkpoint.q, t=checkpoint.t, c=checkpoint.c, d=[0],
        bn=checkpoint.bn, rp=str(count + 1), sp=checkpoint.sp,
    )  # fmt: skip
