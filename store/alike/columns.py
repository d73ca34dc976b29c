"""Columns of octets as numbers and texts."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt

Octets = npt.NDArray[np.uint8]
Longs = npt.NDArray[np.int64]


def by_length(texts: Sequence[bytes]) -> list[Sequence[int]]:
    """Return the indexes of texts, those of one length together."""
    sizes = list(map(len, texts))
    if sizes and sizes.count(sizes[0]) == len(sizes):
        return [range(len(sizes))]
    groups: dict[int, list[int]] = {}
    for index, size in enumerate(sizes):
        groups.setdefault(size, []).append(index)
    return list(groups.values())


def by_value(values: Longs, least: int) -> list[tuple[int, Longs]]:
    """Return each value with its indexes, both ascending; nothing if a value has fewer than `least` of them on average.

    `values` has at least one.
    """
    if not np.count_nonzero(values != values[0]):
        return [(int(values[0]), np.arange(len(values)))] if len(values) >= least else []
    different = sorted(set(values.tolist()))
    if len(different) * least > len(values):
        return []
    return [(value, (values == value).nonzero()[0]) for value in different]


def rows_of(texts: Sequence[bytes | memoryview]) -> Octets:
    """Return texts of one length as rows of octets."""
    return np.frombuffer(b"".join(texts), np.uint8).reshape(len(texts), -1)


def repeated(text: bytes, count: int) -> Octets:
    """Return `count` rows of `text`, to be written to."""
    return np.frombuffer(bytearray(text * count), np.uint8).reshape(count, -1)


def texts_of(rows: npt.NDArray[Any]) -> list[bytes]:
    """Return each row as bytes."""
    # A fifth of the time of a slice for each row.
    rows = np.ascontiguousarray(rows)
    found: list[bytes] = rows.view(f"V{rows.nbytes // len(rows)}").ravel().tolist()
    return found


def common_text(rows: Octets) -> bytes | None:
    """Return the text that all rows are; None if they differ."""
    content = rows.tobytes()
    first = content[: rows.shape[1]]
    return first if first * len(rows) == content else None


def numbers_of(digits: Octets) -> Longs:
    """Return the number of each row of decimal digits."""
    if digits.shape[1] == 1:
        return (digits[:, 0] - ord("0")).astype(np.int64)
    common = common_text(digits)
    if common is not None:
        return np.full(len(digits), int(common))
    # Integers: a product of floats wakes the threads of the linear algebra library.
    numbers: Longs = (digits - ord("0")).astype(np.int64) @ _places(digits.shape[1])
    return numbers


def digits_of(numbers: Longs) -> Octets | None:
    """Return the decimal digits of numbers from 0 on, one number a row; None if some have more digits than others."""
    digits = len(str(int(numbers.max())))
    if int(numbers.min()) < 10 ** (digits - 1) and digits > 1:
        return None
    rows = np.empty((len(numbers), digits), np.uint8)
    while digits > _DIGITS_AT_ONCE:
        numbers, low = np.divmod(numbers, len(_DIGITS))
        rows[:, digits - _DIGITS_AT_ONCE : digits] = _octets_of(_DIGITS.take(low), len(rows))
        digits -= _DIGITS_AT_ONCE
    rows[:, :digits] = _octets_of(_DIGITS.take(numbers), len(rows))[:, _DIGITS_AT_ONCE - digits :]
    return rows


def hex_digits_of(numbers: Longs) -> Octets:
    """Return the 16 hexadecimal digits, in capitals, of numbers, one number a row."""
    return _octets_of(_HEX_DIGITS.take(numbers.astype(">i8").view(np.uint8)), len(numbers))


# Texts of numbers; each text is one word, because words are looked up five times as fast as rows.
_DIGITS_AT_ONCE: Final = 4
_DIGITS: Final = np.frombuffer(b"".join(b"%04d" % number for number in range(10**_DIGITS_AT_ONCE)), np.uint32)
_HEX_DIGITS: Final = np.frombuffer(b"".join(b"%02X" % octet for octet in range(1 << 8)), np.uint16)


def _octets_of(words: npt.NDArray[Any], rows: int) -> Octets:
    return words.view(np.uint8).reshape(rows, -1)


@lru_cache(maxsize=32)
def _places(digits: int) -> Longs:
    """Return the value of 1 at each place of a number."""
    places: Longs = 10 ** np.arange(digits)[::-1]
    return places
