"""Which texts are like a known one: each octet has its range."""

import pytest

from store.alike.columns import rows_of
from store.alike.octet_ranges import PRINTABLE, OctetRanges


def ranges() -> OctetRanges:
    """Those of a name that is fixed, a printable octet, and a number of three digits."""
    found = OctetRanges(b"k=a;100")
    found.vary(slice(2, 3), PRINTABLE)
    found.vary_number(slice(4, 7))
    return found


@pytest.mark.parametrize("text", [b"k=a;100", b"k= ;999", b"k=~;120"])
def test_a_text_in_the_ranges(text: bytes) -> None:
    assert ranges().hold(rows_of([b"k=a;100", text]))


@pytest.mark.parametrize(
    ("text", "at"), [(b"l=a;100", 0), (b"k=\x1f;100", 2), (b"k=\x7f;100", 2), (b"k=a;099", 4), (b"k=a;1:0", 5)]
)
def test_one_octet_outside(text: bytes, at: int) -> None:
    rows = rows_of([b"k=a;100", text])
    assert not ranges().hold(rows)
    assert ranges().outside(rows).nonzero()[1].tolist() == [at]


def test_a_number_of_one_digit_may_be_0() -> None:
    found = OctetRanges(b"7")
    found.vary_number(slice(0, 1))
    assert found.hold(rows_of([b"0", b"9"]))
