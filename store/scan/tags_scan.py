"""Search for the tags of a batch of records.

A record's tag is the last value of its property TAGS, as in `sprocket.remoting.message.properties.find_last`.  Short
properties are searched in one pass for all records; records with longer ones are decoded one by one.
Source: RocketMQ 5.3.3, `CommitLog.checkMessageAndReturnSize`.
"""

from typing import Final

import numpy as np
import numpy.typing as npt

from sprocket.remoting.message.properties import find_last
from store.record.record import TAGS_NAME, TagsCodes
from store.scan.distinct_names import WORD_BYTES, Integers, distinct, words_at
from store.scan.property_scan import byte_of, candidates, separator_bits
from store.scan.record_batch import RecordBatch

_NAME_WORD: Final = np.uint64(int.from_bytes(TAGS_NAME, "little"))
_NAME_MASK: Final = np.uint64((1 << 8 * len(TAGS_NAME)) - 1)
# Bytes of properties, at most, that are searched in one pass.
_WINDOW_BYTES: Final = 256
# Longer tags are read one by one.
_MAX_TAG_BYTES: Final = 32


def tags_codes_of(batch: RecordBatch, tags_codes: TagsCodes) -> Integers:
    """Return each record's tags code for the ConsumeQueue, except for the topic of scheduled messages."""
    codes = np.zeros(len(batch), np.int64)
    if not len(batch):
        return codes
    limits = batch.positions + batch.sizes
    records, starts, is_alone = _last_tags(batch, limits)
    lengths = _lengths(batch.data, starts, limits[records])
    tags, index = distinct(batch.data, starts, np.maximum(lengths, 0))
    # Without a value, one before it may count.
    is_known = (lengths > 0) & (index >= 0)
    by_tag = np.array([tags_codes.of_tag(tag) for tag in tags], np.int64)
    codes[records] = by_tag[index]
    is_alone[records[~is_known]] = True
    for record in np.flatnonzero(is_alone).tolist():
        codes[record] = tags_codes.of_tag(find_last(batch.properties(record), TAGS_NAME) or b"")
    return codes


def _last_tags(batch: RecordBatch, limits: Integers) -> tuple[Integers, Integers, npt.NDArray[np.bool_]]:
    """Return the records with a tag, the begins of their tags, and for every record whether it must be read alone."""
    data, properties_at = batch.data, batch.properties_at
    properties_bytes = limits - properties_at
    width = max(1, min(int(properties_bytes.max()), _WINDOW_BYTES, len(data)))
    words = words_at(data)
    records, columns = candidates(data, properties_at, width, TAGS_NAME[0])
    names = properties_at[records] + columns
    is_name = (words[np.minimum(names, words.size - 1)] & _NAME_MASK) == _NAME_WORD
    is_name &= columns + len(TAGS_NAME) <= properties_bytes[records]
    names, records = names[is_name], records[is_name]
    is_last = np.ones(records.size, np.bool_)
    is_last[:-1] = records[1:] != records[:-1]
    names, records = names[is_last], records[is_last]
    # Near the end of the segment the window has too few bytes.
    is_alone = (properties_bytes > width) | (properties_at + width > len(data))
    return records, names + len(TAGS_NAME), is_alone


def _lengths(data: memoryview, starts: Integers, limits: Integers) -> Integers:
    """Return the bytes from each of `starts` to the next separator or the limit; -1 above the maximum length."""
    words = words_at(data)
    rest = limits - starts
    lengths = np.where(rest > _MAX_TAG_BYTES, -1, rest)
    # Most tags end in their first word: only the others are searched further.
    open_ended = np.arange(starts.size)
    for at in range(0, _MAX_TAG_BYTES, WORD_BYTES):
        found = byte_of(separator_bits(words[np.minimum(starts[open_ended] + at, words.size - 1)]))
        is_found = found < WORD_BYTES
        ended = open_ended[is_found]
        lengths[ended] = np.minimum(at + found[is_found], rest[ended])
        open_ended = open_ended[~is_found]
        if not open_ended.size:
            break
    return lengths
