"""Ids of idempotent messages in the log.

A copy that the broker makes of a message in a retry topic keeps its properties.  So messages of retry topics do not
count.  A dead letter has no id, unless it was sent to the dead-letter topic with one.  A delayed message counts where
it waits: its copies do not have the id (`store/timer`, `broker/timer`).
"""

from collections.abc import Iterator
from typing import Final

from broker.idempotence.id_window import FirstSend
from sprocket.remoting.codec.java_text import java_text
from sprocket.remoting.message.properties import (
    IDEMPOTENCE_ID,
    REAL_QUEUE_ID,
    REAL_TOPIC,
    TIMER_OUT_MS,
    UNIQ_KEY,
    encoded_name,
    find_last,
)
from sprocket.remoting.message.record import SysFlag
from sprocket.remoting.message.topic_names import (
    NOT_ALLOWED_SEND_TOPICS,
    RETRY_PREFIX,
    SCHEDULE_TOPIC,
    SYSTEM_TOPIC_PREFIX,
    TIMER_TOPIC,
)
from store.scan.record_batch import RecordBatch

NAME: Final = encoded_name(IDEMPOTENCE_ID)
UNIQUE_KEY_NAME: Final = encoded_name(UNIQ_KEY)
# Topics in which messages wait for their delivery.
WAITING_TOPICS: Final = (SCHEDULE_TOPIC, TIMER_TOPIC)
# Of an id and of the unique key of an idempotent message: both are kept in memory.
MAX_ID_BYTES: Final = 128
_REAL_TOPIC: Final = encoded_name(REAL_TOPIC)
_REAL_QUEUE_ID: Final = encoded_name(REAL_QUEUE_ID)
_OUT_MS: Final = encoded_name(TIMER_OUT_MS)
_COPIES: Final = (RETRY_PREFIX, SYSTEM_TOPIC_PREFIX)
_INNER_BATCH: Final = int(SysFlag.INNER_BATCH)


def first_send(
    topic: str,
    queue_id: int,
    queue_offset: int,
    physical_offset: int,
    size_bytes: int,
    properties: bytes,
    stored_ms: int,
) -> FirstSend:
    """Return the place of a stored message."""
    unique_key = java_text((find_last(properties, UNIQUE_KEY_NAME) or b"")[:MAX_ID_BYTES])
    sent_queue_id, slot_ms = queue_id, 0
    if topic in WAITING_TOPICS:
        sent_queue_id = _number(properties, _REAL_QUEUE_ID)
        slot_ms = _number(properties, _OUT_MS) if topic == TIMER_TOPIC else 0
    return FirstSend(
        topic, queue_id, queue_offset, physical_offset, size_bytes, unique_key, stored_ms, sent_queue_id, slot_ms
    )


def _number(properties: bytes, name: bytes) -> int:
    found = find_last(properties, name)
    return int(found) if found is not None and found.isdigit() else 0


def ids_in(batch: RecordBatch, end_offset: int) -> Iterator[tuple[str, str, FirstSend]]:
    """Yield (topic, id, place) of the idempotent messages of `batch` before the physical offset `end_offset`.

    The topic is the one that the message was sent to.
    """
    for record in batch.records_with(NAME):
        physical_offset = batch.base + int(batch.positions[record])
        if physical_offset >= end_offset:
            continue
        stored_topic = batch.topics[batch.topic_index[record]]
        properties = batch.properties(record)
        topic = stored_topic
        if stored_topic in WAITING_TOPICS:
            topic = java_text(find_last(properties, _REAL_TOPIC) or b"")
        if not topic or topic in NOT_ALLOWED_SEND_TOPICS or topic.startswith(_COPIES):
            continue
        id_ = find_last(properties, NAME)
        if not id_ or len(id_) > MAX_ID_BYTES or batch.sys_flags[record] & _INNER_BATCH:
            continue
        place = first_send(
            stored_topic, int(batch.queue_ids[record]), int(batch.queue_offsets[record]), physical_offset,
            int(batch.sizes[record]), properties, batch.store_timestamp(record),
        )  # fmt: skip
        yield topic, java_text(id_), place
