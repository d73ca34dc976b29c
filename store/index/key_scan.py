"""Scanner for the keys of a batch of records: the entries that the index holds.

A message is indexed under its unique key, then under each of its KEYS, which blanks separate.  If two properties have
one name the last one counts, as in `sprocket.remoting.message.properties.find_last`.  A rolled back transaction is not
indexed.  Source: RocketMQ 5.3.3, `IndexService.buildIndex`, `CommitLog.checkMessageAndReturnSize`.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from sprocket.engine.choice import native
from sprocket.remoting.codec.java_hash import java_hash_code
from sprocket.remoting.codec.java_text import java_text
from sprocket.remoting.message.properties import KEYS, UNIQ_KEY, encoded_name, find_last
from sprocket.remoting.message.record import SysFlag
from store.scan.columns import Integers
from store.scan.record_batch import RecordBatch
from store.scan.record_fields import store_timestamps

KEY_SEPARATOR: Final = "#"  # between topic and key
_UNIQUE: Final = encoded_name(UNIQ_KEY)
_KEYS: Final = encoded_name(KEYS)
_ROLLBACK: Final = int(SysFlag.TRANSACTION_ROLLBACK)
# The compiled engine, None with pure Python.
_engine: Final = native("store.scan.scan_native")
# Keys of one call of the engine, at most.
_CALL_KEYS: Final = 64 * 1024

# The record of each of some keys, the hash, and the number of records that are done.
_Hashes = tuple[Integers, npt.NDArray[np.int32], int]


@dataclass(slots=True)
class IndexEntries:
    """Entries in the order in which they are indexed: `key_hashes` as in the index, times in ms."""

    key_hashes: npt.NDArray[np.int32]
    physical_offsets: Integers
    store_timestamps: Integers

    def __len__(self) -> int:
        return self.key_hashes.size

    def between(self, start: int, end: int) -> "IndexEntries":
        """Return entries ``[start, end)``."""
        part = slice(start, end)
        return IndexEntries(self.key_hashes[part], self.physical_offsets[part], self.store_timestamps[part])


def index_hash(topic: str, key: str) -> int:
    """Return the hash of a key as the index holds it: the absolute value of Java's, 0 if it has none.

    Source: RocketMQ 5.3.3, `IndexFile.indexKeyHashMethod`.
    """
    value = abs(java_hash_code(topic + KEY_SEPARATOR + key))
    return value if value < 1 << 31 else 0


def keys_of(properties: bytes) -> list[str]:
    """Return a message's keys in the order in which they are indexed."""
    unique, several = find_last(properties, _UNIQUE), find_last(properties, _KEYS) or b""
    keys = [java_text(key) for key in several.split(b" ") if key]
    return keys if unique is None else [java_text(unique), *keys]


def entries_of(batch: RecordBatch) -> IndexEntries:
    """Return the index entries of a batch of records."""
    pieces = [(piece.key_hashes, piece.physical_offsets, piece.store_timestamps) for piece, _ in pieces_of(batch)]
    return IndexEntries(*(np.concatenate(column) for column in zip(*pieces, strict=True)))


def pieces_of(batch: RecordBatch) -> Iterator[tuple[IndexEntries, int]]:
    """Yield the index entries of a batch in pieces, each with the number of the last record that is done with it.

    Their sum is `entries_of`; there is at least one.  A record's entries are in one piece.  A piece has less than
    twice `_CALL_KEYS` entries: a record may have 16,000, so those of a batch may take GB.
    """
    chosen = np.flatnonzero(batch.sys_flags & _ROLLBACK != _ROLLBACK)
    offsets, timestamps = batch.positions + batch.base, store_timestamps(batch)
    found: list[tuple[Integers, npt.NDArray[np.int32]]] = []
    for owners, hashes, done in (_hashes if _engine is None else _compiled_hashes)(batch, chosen):
        found.append((owners, hashes))
        is_last = done == chosen.size
        if is_last or sum(piece.size for piece, _ in found) >= _CALL_KEYS:
            records, key_hashes = (np.concatenate(column) for column in zip(*found, strict=True))
            found = []
            last = len(batch) - 1 if is_last else int(chosen[done - 1])
            yield IndexEntries(key_hashes, offsets[records], timestamps[records]), last


def _hashes(batch: RecordBatch, chosen: Integers) -> Iterator[_Hashes]:
    owners: list[int] = []
    hashes: list[int] = []
    for done, record in enumerate(chosen.tolist()):
        if len(owners) >= _CALL_KEYS:
            yield np.array(owners, np.int64), np.array(hashes, np.int32), done
            owners, hashes = [], []
        topic = batch.topics[batch.topic_index[record]]
        for key in keys_of(batch.properties(record)):
            owners.append(record)
            hashes.append(index_hash(topic, key))
    yield np.array(owners, np.int64), np.array(hashes, np.int32), chosen.size


def _compiled_hashes(batch: RecordBatch, chosen: Integers) -> Iterator[_Hashes]:
    """Do `_hashes` with the engine, except for records with keys that are not ASCII."""
    assert _engine is not None
    prefixes = np.array([java_hash_code(topic + KEY_SEPARATOR) for topic in batch.topics], np.int32)
    begins, ends = batch.properties_at[chosen], (batch.positions + batch.sizes)[chosen]
    columns = begins, ends, prefixes[batch.topic_index[chosen]]
    owners, hashes = np.empty(_CALL_KEYS, np.int64), np.empty(_CALL_KEYS, np.int32)
    done = 0
    while True:
        keys, done = _engine.index_hashes(batch.data, columns, done, chosen.size, owners, hashes, _CALL_KEYS)
        if keys or done == chosen.size:
            yield chosen[owners[:keys]], hashes[:keys].copy(), done
        else:
            done += 1
            for records, key_hashes, _ in _hashes(batch, chosen[done - 1 : done]):
                yield records, key_hashes, done
        if done == chosen.size:
            return
