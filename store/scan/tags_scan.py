"""Search for the tags of a batch of records.

A record's tag is the value of its first property TAGS, as in `sprocket.remoting.message.properties.find`.  The fronts
of all properties are searched in one pass; records for which the front does not suffice are decoded one by one.
"""

from typing import Final

import numpy as np
import numpy.typing as npt

from sprocket.remoting.message.properties import VALUE_END_OCTET, find
from store.record.record import TAGS_NAME, TagsCodes
from store.scan.distinct_names import WORD_BYTES, Integers, Words, distinct, words_at
from store.scan.record_batch import RecordBatch

_NAME_WORD: Final = np.uint64(int.from_bytes(TAGS_NAME, "little"))
_NAME_MASK: Final = np.uint64((1 << 8 * len(TAGS_NAME)) - 1)
# Bytes of each record's properties that are searched in one pass.
_WINDOW_BYTES: Final = 256
# Bytes searched at once: intermediate arrays then fit the processor's cache.
_BLOCK_BYTES: Final = 64 * 1024
# Longer tags are read one by one.
_MAX_TAG_BYTES: Final = 32
# To find the first separator in a word: the word's bytes that equal it become zero, then the lowest zero byte shows.
_ONES: Final = np.uint64(0x0101_0101_0101_0101)
_SEPARATORS: Final = np.uint64(VALUE_END_OCTET) * _ONES
_TOPS: Final = np.uint64(0x8080_8080_8080_8080)
_ONE: Final = np.uint64(1)


def tags_codes_of(batch: RecordBatch, tags_codes: TagsCodes) -> Integers:
    """Return each record's tags code for the ConsumeQueue, except for the topic of scheduled messages."""
    codes = np.zeros(len(batch), np.int64)
    if not len(batch):
        return codes
    limits = batch.positions + batch.sizes
    records, starts, is_alone = _first_tags(batch, limits)
    lengths = _lengths(batch.data, starts, limits[records])
    tags, index = distinct(batch.data, starts, np.maximum(lengths, 0))
    is_known = (lengths >= 0) & (index >= 0)
    by_tag = np.array([tags_codes.of_tag(tag) for tag in tags], np.int64)
    codes[records] = by_tag[index]
    is_alone[records[~is_known]] = True
    for record in np.flatnonzero(is_alone).tolist():
        codes[record] = tags_codes.of_tag(find(batch.properties(record), TAGS_NAME) or b"")
    return codes


def _first_tags(batch: RecordBatch, limits: Integers) -> tuple[Integers, Integers, npt.NDArray[np.bool_]]:
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
    is_first = np.ones(records.size, np.bool_)
    is_first[1:] = records[1:] != records[:-1]
    names, records = names[is_first], records[is_first]
    is_alone = properties_bytes > width
    is_alone[records] = False
    # Near the end of the segment the front has too few bytes.
    is_alone |= properties_at + width > len(data)
    return records, names + len(TAGS_NAME), is_alone


def candidates(data: memoryview, properties_at: Integers, width: int, letter: int) -> tuple[Integers, Integers]:
    """Return records and columns, in order, where a property begins whose name begins with the byte `letter`.

    A column counts from the first byte of the record's properties and is less than `width`.
    """
    windows: npt.NDArray[np.void] = np.ndarray((len(data) - width + 1,), f"V{width}", data, 0, (1,))
    last = windows.size - 1
    rows = max(1, _BLOCK_BYTES // width)
    found = []
    for at in range(0, properties_at.size, rows):
        octets = windows[np.minimum(properties_at[at : at + rows], last)].view(np.uint8)
        begins = octets == letter
        is_first_column = begins[::width].copy()
        begins[1:] &= octets[:-1] == VALUE_END_OCTET
        begins[::width] = is_first_column
        found.append(np.flatnonzero(begins) + at * width)
    records, columns = np.divmod(np.concatenate(found), width)
    return records, columns


def _lengths(data: memoryview, starts: Integers, limits: Integers) -> Integers:
    """Return the bytes from each of `starts` to the next separator or the limit; -1 above the maximum length."""
    words = words_at(data)
    rest = limits - starts
    lengths = np.where(rest > _MAX_TAG_BYTES, -1, rest)
    # Most tags end in their first word: only the others are searched further.
    open_ended = np.arange(starts.size)
    for at in range(0, _MAX_TAG_BYTES, WORD_BYTES):
        found = first_separator(words[np.minimum(starts[open_ended] + at, words.size - 1)])
        is_found = found < WORD_BYTES
        ended = open_ended[is_found]
        lengths[ended] = np.minimum(at + found[is_found], rest[ended])
        open_ended = open_ended[~is_found]
        if not open_ended.size:
            break
    return lengths


def separator_bits(words: Words) -> Words:
    """Return words whose lowest set bit is the top bit of the first separator; 0 if there is none."""
    differences = words ^ _SEPARATORS
    return (differences - _ONES) & ~differences & _TOPS


def first_separator(words: Words) -> Integers:
    """Return the index of the first separator in each word; 8 if there is none."""
    bits = separator_bits(words)
    lowest = bits & (~bits + _ONE)
    # The bits below the lowest set bit, which is the top bit of its byte; without one, all 64.
    return np.bitwise_count(lowest - _ONE).astype(np.int64) >> 3
