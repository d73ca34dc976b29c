"""The compiled twin of `store.index.key_scan.entries_of`, with its signature."""

from typing import Final

import numpy as np
import numpy.typing as npt

from sprocket.remoting.codec.java_hash import java_hash_code
from store.index import key_scan_native as index_keys
from store.index.key_scan import KEY_SEPARATOR, IndexEntries, index_hash, keys_of
from store.scan.compiled import integers
from store.scan.record_batch import RecordBatch
from store.scan.record_fields import store_timestamps

# Most records have a unique key, and at most one more.
_KEYS_PER_RECORD: Final = 2


def entries_of(batch: RecordBatch) -> IndexEntries:
    """Return the index entries of a batch of records."""
    key_hashes, records = [np.empty(0, np.int32)], [np.empty(0, np.int64)]
    positions, sizes, properties_at, topic_index = map(
        integers, (batch.positions, batch.sizes, batch.properties_at, batch.topic_index)
    )
    sys_flags = np.ascontiguousarray(batch.sys_flags, np.int32)
    prefixes = np.array([java_hash_code(topic + KEY_SEPARATOR) & 0xFFFF_FFFF for topic in batch.topics], np.uint32)
    number, room = 0, _KEYS_PER_RECORD * len(batch) + index_keys.MAX_KEYS
    while number < len(batch):
        found = np.empty(room, np.int32), np.empty(room, np.int64)
        count, number = index_keys.key_hashes_of(
            batch.data, positions, sizes, properties_at, sys_flags, topic_index, prefixes, number, *found
        )
        key_hashes.append(found[0][:count])
        records.append(found[1][:count])
        if number < len(batch) and room - count >= index_keys.MAX_KEYS:
            # There was room for this record, so it is unusual.
            own = _key_hashes(batch, number)
            key_hashes.append(own)
            records.append(np.full(own.size, number))
            number += 1
    of = np.concatenate(records)
    return IndexEntries(np.concatenate(key_hashes), (batch.positions + batch.base)[of], store_timestamps(batch)[of])


def _key_hashes(batch: RecordBatch, record: int) -> npt.NDArray[np.int32]:
    topic = batch.topics[batch.topic_index[record]]
    return np.array([index_hash(topic, key) for key in keys_of(batch.properties(record))], np.int32)
