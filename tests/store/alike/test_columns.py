"""Columns of texts and numbers: what one gives, the other reads."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from store.alike.columns import by_value, digits_of, hex_digits_of, numbers_of, repeated, texts_of

LARGEST = (1 << 63) - 1


@given(st.integers(1, 18), st.data())
def test_digits_of_numbers_of_one_length(digits: int, data: st.DataObject) -> None:
    least = 10 ** (digits - 1) if digits > 1 else 0
    numbers = data.draw(st.lists(st.integers(least, 10**digits - 1), min_size=1, max_size=40))
    rows = digits_of(np.array(numbers))
    assert rows is not None
    assert texts_of(rows) == [b"%d" % number for number in numbers]
    assert numbers_of(rows).tolist() == numbers


@pytest.mark.parametrize("numbers", [[9, 10], [10, 9], [0, 10], [99_999, 100_000], [1, LARGEST]])
def test_numbers_with_unlike_digits_have_no_rows(numbers: list[int]) -> None:
    assert digits_of(np.array(numbers)) is None


@pytest.mark.parametrize("number", [0, 9, 10_000, 99_999_999, LARGEST])
def test_digits_of_one_number(number: int) -> None:
    rows = digits_of(np.array([number]))
    assert rows is not None and texts_of(rows) == [b"%d" % number]


@given(st.lists(st.integers(0, LARGEST), min_size=1, max_size=40))
def test_hexadecimal_digits(numbers: list[int]) -> None:
    assert texts_of(hex_digits_of(np.array(numbers))) == [b"%016X" % number for number in numbers]


def test_repeated_rows_are_rows_of_their_own() -> None:
    rows = repeated(b"abc", 3)
    rows[1, 0] = ord("x")
    assert texts_of(rows) == [b"abc", b"xbc", b"abc"]


@given(st.lists(st.integers(-2, 3), min_size=1, max_size=40), st.integers(1, 5))
def test_indexes_by_value(values: list[int], least: int) -> None:
    different = sorted(set(values))
    found = by_value(np.array(values), least)
    if len(different) * least > len(values):
        assert found == []
        return
    assert [value for value, _ in found] == different
    for value, indexes in found:
        assert indexes.tolist() == [at for at, one in enumerate(values) if one == value]
