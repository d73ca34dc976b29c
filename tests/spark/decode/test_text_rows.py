"""Texts that become rows of one width, and those that do not."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark.decode.text_rows import PADDING, TextRows


def placed(sizes: list[int], gap: int, tail: int) -> tuple[bytes, np.ndarray, np.ndarray]:
    """Texts of `sizes`, `gap` bytes before each and `tail` bytes after the last."""
    begins = np.cumsum([gap, *(size + gap for size in sizes[:-1])])[: len(sizes)].astype(np.int64)
    ends = begins + np.array(sizes, np.int64)
    length = (int(ends[-1]) if sizes else 0) + tail
    return bytes(index % 251 + 1 for index in range(length)), begins, ends


@given(st.lists(st.integers(10, 40), min_size=1, max_size=20), st.integers(0, 9), st.sampled_from([0, 3, 100]))
def test_each_text_is_at_the_begin_of_its_row(sizes: list[int], gap: int, tail: int) -> None:
    data, begins, ends = placed(sizes, gap, tail)
    rows = TextRows.of(pa.py_buffer(data), begins, ends)
    if rows is None:
        assert max(sizes) + 8 > len(data) or 2 * sum(sizes) < (max(sizes) + 8) * len(sizes)
        return
    assert rows.width > max(sizes) and rows.width % 8 == 0
    for row, begin, end in zip(rows.begins.tolist(), begins.tolist(), ends.tolist(), strict=True):
        assert rows.octets[row : row + end - begin].tobytes() == data[begin:end]
    assert rows.octets.size >= len(sizes) * rows.width + PADDING
    assert not rows.octets[len(sizes) * rows.width :].any()
    rows.octets[:] = 0  # a copy
    assert data == placed(sizes, gap, tail)[0]


@pytest.mark.parametrize(
    ("begins", "ends"),
    [
        ([], []),
        ([0, 40], [30, 39]),
        ([-1, 40], [30, 70]),
        ([0, 40], [30, 1001]),
        ([0, 100], [20, 400]),
        ([0, 40, 80, 120], [4, 44, 84, 219]),
        ([0, 0], [1 << 40, 1 << 40]),
        ([0], [0]),
    ],
    ids=["none", "negative", "before", "behind", "one is long", "widened too much", "too long", "empty"],
)
def test_texts_that_are_no_rows(begins: list[int], ends: list[int]) -> None:
    assert TextRows.of(pa.py_buffer(bytes(1000)), np.array(begins, np.int64), np.array(ends, np.int64)) is None


@given(st.lists(st.tuples(st.integers(0, 23), st.integers(0, 23)), min_size=1, max_size=9))
def test_what_is_outside_is_not_found(parts: list[tuple[int, int]]) -> None:
    data, begins, ends = placed([23] * len(parts), 0, 30)
    rows = TextRows.of(pa.py_buffer(data), begins, ends)
    assert rows is not None
    found = np.ones(rows.octets.size, np.bool_)
    first, past = (np.array(each) for each in zip(*(sorted(part) for part in parts), strict=True))
    rows.within(found, rows.begins + first, rows.begins + past)
    columns = np.arange(rows.width)
    expected = (columns >= first[:, None]) & (columns < past[:, None])
    assert np.array_equal(found[: expected.size].reshape(expected.shape), expected)
