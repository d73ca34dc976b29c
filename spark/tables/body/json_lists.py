"""Fast reading of lists of whole numbers in JSON text: they are cut out before it is parsed, and read many at once.

A JSON reader handles each number alone, which takes most of the time if a body is full of numbers.  So the elements of
``"samples": [1, 2, 3]`` are cut out; ``"samples": []`` stays, and the reader checks the rest of the text.  The reader
gets the whole text if it has a name with an escape, a list in a list, a number of more than 16 digits, or a blank
anywhere but one after a comma or colon.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Positions = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]
Words = npt.NDArray[np.uint64]

_OPEN, _CLOSE, _COMMA, _BLANK, _MINUS, _ZERO = (ord(each) for each in "[], -0")
# A shorter text is parsed faster than its lists are found.
_MIN_BYTES: Final = 32 * 1024
# Min share of the text that is worth cutting out.
_MIN_SHARE: Final = 0.2
_PLAIN_NAME: Final = re.compile(r"[A-Za-z0-9_]+")
# An escape can spell a letter of a name.
_ESCAPED_LETTER: Final = b"\\u00"
_WORD: Final = 8
_BLOCK: Final = 8192  # numbers; their intermediate results fit the processor's cache
# The digits of a word are its last bytes.  A mask clears the bytes before them.
_MASKS: Final = np.array([-1 << 8 * (_WORD - size) for size in range(1, _WORD + 1)], np.int64).view(np.uint64)


@dataclass(frozen=True)
class TakenOut:
    """A text without the elements of its lists (`rest`), and those elements by field.

    `rows` are the rows that have a list, `counts` the lengths of these lists, `values` their elements in order.
    """

    rest: pa.Buffer
    rows: dict[str, Positions]
    counts: dict[str, Positions]
    values: dict[str, npt.NDArray[np.int64]]

    def column(self, field: pa.Field, empty: pa.ListArray) -> pa.ListArray | None:
        """Return the column of `field`: the lists, which were read `empty`, with their elements.

        None if they are not the lists that were cut out.  Raises ArrowInvalid for a number that the type cannot hold.
        """
        rows, count = self.rows[field.name], len(empty)
        is_valid = np.zeros(count, bool)
        is_valid[rows] = True
        found = empty.is_valid().to_numpy(zero_copy_only=False)
        if (np.diff(rows) < 1).any() or not np.array_equal(found, is_valid) or len(empty.flatten()):
            return None
        offsets = np.zeros(count + 1, np.int32)
        offsets[rows + 1] = self.counts[field.name]
        np.cumsum(offsets, out=offsets)
        elements = pa.array(self.values[field.name]).cast(field.type.value_type)
        mask = None if is_valid.all() else pa.array(~is_valid)
        return pa.ListArray.from_arrays(pa.array(offsets), elements, type=field.type, mask=mask)


class NumberLists:
    """Names of the `fields` of a schema that are lists of whole numbers."""

    def __init__(self, fields: pa.Schema) -> None:
        self.names = [each.name for each in fields if _is_eligible(each)]

    def take_out(self, text: pa.Buffer, begins: Positions) -> TakenOut | None:
        """Cut the lists out of `text`, whose bodies begin at `begins`; None if it saves too little or is not safe."""
        if not self.names or text.size < _MIN_BYTES:
            return None
        found = _Found.find(np.frombuffer(text, np.uint8), self.names)
        if found is None or not found.is_worth_it or not self._are_all(text.to_pybytes(), found):
            return None
        rest, elements = found.cut(text)
        rows = np.searchsorted(begins, found.begins, "right") - 1
        taken = TakenOut(rest, {}, {}, {})
        for index, name in enumerate(self.names):
            own = np.flatnonzero(found.fields == index)
            numbers = whole_numbers(elements.take(pa.array(own)))
            if numbers is None:
                return None
            taken.values[name], taken.counts[name] = numbers
            taken.rows[name] = rows[own]
        return taken

    def _are_all(self, text: bytes, found: "_Found") -> bool:
        """Return whether every member with these names is a list that was found, or null."""
        if _ESCAPED_LETTER in text:
            return False
        for index, name in enumerate(self.names):
            quoted = f'"{name}"'.encode()
            missing = text.count(quoted) - int(np.count_nonzero(found.fields == index))
            if missing and missing != text.count(quoted + b":null") + text.count(quoted + b": null"):
                return False
        return True


@dataclass(frozen=True)
class _Found:
    """Lists at [`begins`, `ends`), without their brackets, and the number of the field that each one is."""

    text: Bytes
    begins: Positions
    ends: Positions
    fields: npt.NDArray[np.int64]

    @classmethod
    def find(cls, text: Bytes, names: Sequence[str]) -> Self | None:
        """Find the lists of the fields `names` in `text`; None without any, or if one contains a list."""
        opens, closes = np.flatnonzero(text == _OPEN), np.flatnonzero(text == _CLOSE)
        fields = np.full(opens.size, -1)
        for index, name in enumerate(names):
            for colon in (": [", ":["):
                fields[_ends_with(text, opens, f'"{name}"{colon}'.encode())] = index
        own = np.flatnonzero(fields >= 0)
        at = np.searchsorted(closes, opens[own])
        if not own.size or at[-1] == closes.size:
            return None
        ends = closes[at]
        if (np.append(opens[1:], text.size)[own] < ends).any():
            return None
        return cls(text, opens[own] + 1, ends, fields[own])

    @property
    def is_worth_it(self) -> bool:
        return int((self.ends - self.begins).sum()) > self.text.size * _MIN_SHARE

    def cut(self, text: pa.Buffer) -> tuple[pa.Buffer, pa.Array]:
        """Return `text` without the elements of the lists, and the elements, one binary for each list."""
        offsets = np.empty(2 * self.begins.size + 2, np.int32)
        offsets[0], offsets[-1] = 0, self.text.size
        offsets[1:-1:2], offsets[2:-1:2] = self.begins, self.ends
        pieces = pa.Array.from_buffers(pa.binary(), offsets.size - 1, [None, pa.py_buffer(offsets), text])
        rest = pieces.take(pa.array(np.arange(0, len(pieces), 2))).buffers()[2]
        return rest, pieces.take(pa.array(np.arange(1, len(pieces), 2)))


def whole_numbers(lists: pa.Array) -> tuple[npt.NDArray[np.int64], Positions] | None:
    """Return the numbers in `lists`, binary such as ``1, -2,3``, and the number of elements of each.

    None if a list contains anything else, or a number of more than 16 digits.
    """
    counts = np.zeros(len(lists), np.int64)
    filled = np.flatnonzero(pc.binary_length(lists).to_numpy())
    if not filled.size:
        return np.empty(0, np.int64), counts
    lists = lists.take(pa.array(filled))
    joined = pc.binary_join(pa.ListArray.from_arrays([0, len(lists)], lists), b",")[0].as_buffer()
    text = np.full(joined.size + 2 * _WORD + 1, _COMMA, np.uint8)
    text[2 * _WORD : -1] = np.frombuffer(joined, np.uint8)
    ends = np.flatnonzero(text[2 * _WORD :] == _COMMA) + 2 * _WORD
    lasts = np.cumsum(pc.binary_length(lists).to_numpy().astype(np.int64) + 1) - 1 + 2 * _WORD
    counts[filled] = np.diff(np.searchsorted(ends, lasts) + 1, prepend=0)
    begins = np.empty_like(ends)
    begins[0], begins[1:] = 2 * _WORD, ends[:-1] + 1
    values = np.empty(ends.size, np.int64)
    words = np.ndarray((text.size - _WORD + 1,), "<u8", text, 0, (1,))
    for at in range(0, ends.size, _BLOCK):
        if not _read(text, words, begins[at : at + _BLOCK], ends[at : at + _BLOCK], values[at : at + _BLOCK]):
            return None
    return values, counts


def _read(text: Bytes, words: Words, begins: Positions, ends: Positions, values: npt.NDArray[np.int64]) -> bool:
    """Put the numbers at [`begins`, `ends`) of `text` into `values`; False if one is not whole or is too long."""
    begins = begins + (text[begins] == _BLANK)
    is_negative = text[begins] == _MINUS
    has_negative = bool(is_negative.any())
    if has_negative:
        begins += is_negative
    sizes = ends - begins
    if sizes.min() < 1 or sizes.max() > 2 * _WORD or ((text[begins] == _ZERO) & (sizes > 1)).any():
        return False
    low = _digits(words[ends - _WORD], sizes)
    if low is None:
        return False
    values[:] = low.view(np.int64)
    long = np.flatnonzero(sizes > _WORD)
    if long.size:
        high = _digits(words[ends[long] - 2 * _WORD], sizes[long] - _WORD)
        if high is None:
            return False
        values[long] += high.view(np.int64) * 10**_WORD
    if has_negative:
        np.negative(values, out=values, where=is_negative)
    return True


def _digits(words: Words, sizes: Positions) -> Words | None:
    """Return the number in the last `sizes` characters of each word of 8; None if one is not a digit.

    Neighbours are added in pairs: digits to numbers of two digits, these to four, these to eight.
    """
    words = words ^ np.uint64(0x3030303030303030)
    words &= _MASKS.take(sizes - 1, mode="clip")
    if (((words + np.uint64(0x0606060606060606)) | words) & np.uint64(0xF0F0F0F0F0F0F0F0)).any():
        return None
    for shift, factor, mask in ((8, 10, 0x00FF00FF00FF00FF), (16, 100, 0x0000FFFF0000FFFF), (32, 10_000, 0xFFFFFFFF)):
        higher = words >> np.uint64(shift)
        words *= np.uint64(factor)
        words += higher
        words &= np.uint64(mask)
    return words


def _ends_with(text: Bytes, ends: Positions, pattern: bytes) -> npt.NDArray[np.bool_]:
    """Return, for each of `ends`, whether `pattern` ends with the byte at that place."""
    size = len(pattern)
    begins = ends - (size - 1)
    if text.size < size:
        return np.zeros(ends.size, bool)
    runs = np.ndarray((text.size - size + 1,), f"S{size}", text, 0, (1,))
    found: npt.NDArray[np.bool_] = (runs[np.maximum(begins, 0)] == pattern) & (begins >= 0)
    return found


def _is_eligible(field: pa.Field) -> bool:
    kind = field.type
    return pa.types.is_list(kind) and pa.types.is_integer(kind.value_type) and bool(_PLAIN_NAME.fullmatch(field.name))
