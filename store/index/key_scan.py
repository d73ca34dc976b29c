"""Scanner for the keys of a batch of records: the entries that the index holds.

A message is indexed under its unique key, then under each of its KEYS, which blanks separate.  If two properties have
one name the last one counts, as in `sprocket.remoting.message.properties.parse`.  A rolled back transaction is not
indexed.  Source: RocketMQ 5.3.3, `IndexService.buildIndex`, `CommitLog.checkMessageAndReturnSize`.

Properties are searched in arrays, as `store.scan.tags_scan` searches for tags.  Unusual records are parsed singly.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from sprocket.remoting.codec.java_hash import java_hash_code
from sprocket.remoting.codec.java_text import java_text
from sprocket.remoting.message.properties import KEYS, NAME_END_OCTET, UNIQ_KEY, VALUE_END_OCTET, encoded_name, parse
from sprocket.remoting.message.record import SysFlag
from store.index.java_hashes import Hashes, java_hashes
from store.index.property_pattern import texts_like_first
from store.scan.distinct_names import WORD_BYTES, Integers, words_at
from store.scan.property_scan import byte_of, candidates, octet_bits, separator_bits
from store.scan.record_batch import RecordBatch
from store.scan.record_fields import store_timestamps

Flags = npt.NDArray[np.bool_]

KEY_SEPARATOR: Final = "#"  # between topic and key
_ROLLBACK: Final = int(SysFlag.TRANSACTION_ROLLBACK)
_BLANK: Final = ord(" ")
_UNIQ_WORD: Final = np.uint64(int.from_bytes(UNIQ_KEY.encode(), "little"))
_KEYS_WORD: Final = np.uint64(int.from_bytes(encoded_name(KEYS), "little"))
_KEYS_MASK: Final = np.uint64((1 << 8 * 5) - 1)
# The first letters of both names have these bits; few other letters do.
_LETTER_MASK: Final = ord("K") & ord("U") | 0xE0
_LETTER_BITS: Final = ord("K") & ord("U")
# Properties are grouped by the room that they need; longer ones are parsed one by one.
_ROOMS: Final = (128, 256, 1024, 4096)
# A record with more keys, or with a longer one, is parsed.
_MAX_KEYS: Final = 64
_MAX_KEY_BYTES: Final = 512


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


@dataclass(slots=True)
class _Texts:
    """Keys in the log: the record of each, its number among the record's keys, its end, and its length in bytes."""

    records: Integers
    numbers: Integers
    ends: Integers
    lengths: Integers


def index_hashes(hashes: Hashes) -> npt.NDArray[np.int32]:
    """Return Java's hashes of keys as the index holds them: the absolute value, 0 if it has none.

    Source: RocketMQ 5.3.3, `IndexFile.indexKeyHashMethod`.
    """
    return np.maximum(np.abs(hashes.view(np.int32)), 0)


def index_hash(topic: str, key: str) -> int:
    """Return `index_hashes` of one key."""
    value = abs(java_hash_code(topic + KEY_SEPARATOR + key))
    return value if value < 1 << 31 else 0


def keys_of(properties: bytes) -> list[str]:
    """Return a message's keys in the order in which they are indexed."""
    found = parse(java_text(properties))
    unique = found.get(UNIQ_KEY)
    keys = [key for key in found.get(KEYS, "").split(" ") if key]
    return keys if unique is None else [unique, *keys]


def entries_of(batch: RecordBatch) -> IndexEntries:
    """Return the index entries of a batch of records."""
    texts, is_alone = _texts(batch)
    prefixes = np.array([java_hash_code(topic + KEY_SEPARATOR) & 0xFFFF_FFFF for topic in batch.topics], np.uint32)
    hashes = java_hashes(batch.data, texts.ends, texts.lengths, prefixes[batch.topic_index[texts.records]])
    records, numbers, key_hashes = texts.records, texts.numbers, index_hashes(hashes)
    alone = np.flatnonzero(is_alone & (batch.sys_flags & _ROLLBACK != _ROLLBACK)).tolist()
    if alone:
        parsed = [(record, keys_of(batch.properties(record))) for record in alone]
        own = [(record, number, index_hash(batch.topics[batch.topic_index[record]], key))
               for record, keys in parsed for number, key in enumerate(keys)]  # fmt: skip
        columns = np.array(own, np.int64).reshape(-1, 3)
        records = np.concatenate((records, columns[:, 0]))
        numbers = np.concatenate((numbers, columns[:, 1]))
        key_hashes = np.concatenate((key_hashes, columns[:, 2].astype(np.int32)))
    places = records << 32 | numbers
    if (places[1:] < places[:-1]).any():
        order = np.argsort(places)
        records, key_hashes = records[order], key_hashes[order]
    return IndexEntries(key_hashes, (batch.positions + batch.base)[records], store_timestamps(batch)[records])


def _texts(batch: RecordBatch) -> tuple[_Texts, Flags]:
    """Return the keys found in arrays, and for each record whether it must be parsed."""
    limits = batch.positions + batch.sizes
    wanted = batch.sys_flags & _ROLLBACK != _ROLLBACK
    is_alone = np.zeros(len(batch), np.bool_)
    uniques, keys = [], []
    properties_bytes = limits - batch.properties_at
    pieces = []
    if len(batch):
        first, text_places = texts_like_first(batch, properties_bytes)
        chosen = np.flatnonzero(first & wanted)
        for number, start, end in text_places:
            ends = batch.properties_at[chosen] + end
            pieces.append(_Texts(chosen, np.full(chosen.size, number), ends, np.full(chosen.size, end - start)))
        wanted &= ~first
    for room in _ROOMS if wanted.any() else ():
        chosen = wanted & (properties_bytes <= room) & (batch.properties_at + room <= len(batch.data))
        if chosen.any():
            records = np.flatnonzero(chosen)
            unique, several = _values(batch, records, limits[records], room)
            uniques.append(unique)
            keys.append(several)
            wanted &= ~chosen
            if not wanted.any():
                break
    is_alone |= wanted
    pieces.append(_split(batch, limits, *_joined(uniques), 0, is_alone, by_blanks=False))
    pieces.append(_split(batch, limits, *_joined(keys), 1, is_alone, by_blanks=True))
    texts = _Texts(*(np.concatenate([getattr(piece, name) for piece in pieces]) for name in _Texts.__slots__))
    if is_alone.any():
        kept = ~is_alone[texts.records]
        texts = _Texts(texts.records[kept], texts.numbers[kept], texts.ends[kept], texts.lengths[kept])
    return texts, is_alone


def _joined(pairs: list[tuple[Integers, Integers]]) -> tuple[Integers, Integers]:
    if not pairs:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    return np.concatenate([pair[0] for pair in pairs]), np.concatenate([pair[1] for pair in pairs])


def _values(
    batch: RecordBatch, records: Integers, limits: Integers, room: int
) -> tuple[tuple[Integers, Integers], tuple[Integers, Integers]]:
    """Return the `records` with a unique key and where it begins, and the same for KEYS."""
    data, properties_at = batch.data, batch.properties_at[records]
    width = max(WORD_BYTES + 1, min(room, int((limits - properties_at).max())))
    rows, columns = candidates(data, properties_at, width, _LETTER_BITS, _LETTER_MASK)
    names = properties_at[rows] + columns
    words = words_at(data)
    name_words = words[np.minimum(names, words.size - 1)]
    octets = np.frombuffer(data, np.uint8)
    is_unique = (name_words == _UNIQ_WORD) & (octets[np.minimum(names + WORD_BYTES, octets.size - 1)] == NAME_END_OCTET)
    is_keys = (name_words & _KEYS_MASK) == _KEYS_WORD
    found = []
    for chosen, name_bytes in ((is_unique, WORD_BYTES + 1), (is_keys, 5)):
        where, starts = rows[chosen], names[chosen] + name_bytes
        # A value of at least one byte; the last one of a record counts.
        has_value = starts < limits[where]
        has_value &= octets[np.minimum(starts, octets.size - 1)] != VALUE_END_OCTET
        where, starts = where[has_value], starts[has_value]
        is_last = np.ones(where.size, np.bool_)
        is_last[:-1] = where[1:] != where[:-1]
        found.append((records[where[is_last]], starts[is_last]))
    return found[0], found[1]


def _split(
    batch: RecordBatch,
    limits: Integers,
    records: Integers,
    starts: Integers,
    number: int,
    is_alone: Flags,
    *,
    by_blanks: bool,
) -> _Texts:
    """Return the keys of the values that begin at `starts`, numbered from `number`.  Mark records to parse."""
    pieces = [(records[:0], records[:0], starts[:0], starts[:0])]
    octets = np.frombuffer(batch.data, np.uint8)
    for _ in range(_MAX_KEYS):
        if not records.size:
            break
        ends = _ends(batch.data, starts, limits[records], by_blanks=by_blanks)
        is_found = ends >= 0
        is_alone[records[~is_found]] = True
        records, starts, ends = records[is_found], starts[is_found], ends[is_found]
        lengths = ends - starts
        some = lengths > 0
        pieces.append((records[some], np.full(int(some.sum()), number), ends[some], lengths[some]))
        number += 1
        # After a blank there is another key.
        more = ends < limits[records]
        more[more] = octets[ends[more]] == _BLANK
        records, starts = records[more], ends[more] + 1
    is_alone[records] = True
    return _Texts(*(np.concatenate(column) for column in zip(*pieces, strict=True)))


def _ends(data: memoryview, starts: Integers, limits: Integers, *, by_blanks: bool) -> Integers:
    """Return where the text at each of `starts` ends: at a separator or the limit; -1 if the text is too long."""
    words = words_at(data)
    ends = np.where(limits - starts > _MAX_KEY_BYTES, -1, limits)
    rest = np.arange(starts.size)
    at = starts
    for _ in range(_MAX_KEY_BYTES // WORD_BYTES):
        word = words[np.minimum(at, words.size - 1)]
        bits = separator_bits(word)
        if by_blanks:
            bits |= octet_bits(word, _BLANK)
        is_found = bits != 0
        if is_found.any():
            ended = rest[is_found]
            ends[ended] = np.minimum(at[is_found] + byte_of(bits[is_found]), limits[ended])
            rest, at = rest[~is_found], at[~is_found]
        at = at + WORD_BYTES
        if not rest.size or (at >= limits[rest]).all():
            break
    return ends
