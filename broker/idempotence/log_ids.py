"""Ids of idempotent messages in the log.

A copy that the broker makes of a message keeps its properties.  So only messages in topics that producers send to
count: not those of retry and dead-letter topics, nor messages that wait for their delivery.
"""

from collections.abc import Iterator
from typing import Final

import numpy as np

from broker.idempotence.id_window import FirstSend
from sprocket.remoting.message.properties import IDEMPOTENCE_ID, UNIQ_KEY, encoded_name, find_last
from sprocket.remoting.message.record import SysFlag
from sprocket.remoting.message.topic_names import DLQ_PREFIX, NOT_ALLOWED_SEND_TOPICS, RETRY_PREFIX, SYSTEM_TOPIC_PREFIX
from store.scan.record_batch import RecordBatch
from store.scan.value_scan import ValueScan

NAME: Final = encoded_name(IDEMPOTENCE_ID)
UNIQUE_KEY_NAME: Final = encoded_name(UNIQ_KEY)
# Of an id and of the unique key of an idempotent message: both are kept in memory.
MAX_ID_BYTES: Final = 128
_SCAN: Final = ValueScan(NAME)
_COPIES: Final = (RETRY_PREFIX, DLQ_PREFIX, SYSTEM_TOPIC_PREFIX)
_INNER_BATCH: Final = int(SysFlag.INNER_BATCH)


def ids_in(batch: RecordBatch, end_offset: int) -> Iterator[tuple[str, str, FirstSend]]:
    """Yield (topic, id, place) of the idempotent messages of `batch` before the physical offset `end_offset`."""
    if not len(batch):
        return
    positions = batch.positions
    found = np.flatnonzero(_SCAN.keys(batch.data, batch.properties_at, positions + batch.sizes))
    for record in found.tolist():
        physical_offset = batch.base + int(positions[record])
        topic = batch.topics[batch.topic_index[record]]
        if physical_offset >= end_offset or topic in NOT_ALLOWED_SEND_TOPICS or topic.startswith(_COPIES):
            continue
        properties = batch.properties(record)
        id_ = find_last(properties, NAME)
        if not id_ or len(id_) > MAX_ID_BYTES or batch.sys_flags[record] & _INNER_BATCH:
            continue
        unique_key = (find_last(properties, UNIQUE_KEY_NAME) or b"")[:MAX_ID_BYTES]
        yield (
            topic,
            id_.decode("utf-8", "replace"),
            FirstSend(
                int(batch.queue_ids[record]), int(batch.queue_offsets[record]), physical_offset,
                int(batch.sizes[record]), unique_key.decode("utf-8", "replace"), batch.store_timestamp(record),
            ),
        )  # fmt: skip
