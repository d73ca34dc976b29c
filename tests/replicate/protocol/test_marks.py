"""Marks of copies."""

import pytest

from replicate.protocol.marks import MARK, ORIGIN, Mark, Origin, check_of, is_wanted, mark_in, origin_in
from sprocket.remoting.message.properties import UNIQ_KEY, encode

_MARK = Mark(("tokyo", "paris"), check_of("Orders", "ID1"), "broker;a", 3, 12)


def _properties(mark: str, key: str = "ID1") -> bytes:
    return encode({UNIQ_KEY: key, MARK: mark}).encode()


def test_a_mark_is_read_as_it_was_written() -> None:
    assert mark_in("Orders", _properties(_MARK.encode())) == _MARK


def test_a_message_that_was_sent_again_with_all_its_properties_is_no_copy() -> None:
    assert mark_in("Orders", _properties(_MARK.encode(), "ID2")) is None
    assert mark_in("Invoices", _properties(_MARK.encode())) is None


def test_a_copy_of_a_copy_says_which_message_of_its_origin_it_is() -> None:
    origin = Origin("tokyo", "first;b", 2, 7)
    assert origin_in(_MARK, encode({ORIGIN: origin.encode()}).encode()) == origin
    assert origin_in(Mark(("paris",), "", "b", 3, 12), b"") == Origin("paris", "b", 3, 12)


@pytest.mark.parametrize("text", ["", "1;2", "-1;2;b", "1;x;b", "1;2;" + 256 * "b"])
def test_other_texts_are_no_origins(text: str) -> None:
    assert origin_in(_MARK, encode({ORIGIN: text}).encode()) is None


@pytest.mark.parametrize("text", ["", "a", "a;b;c;d", "a;x;-1;0;b", "a,b c;x;1;0;b", ",".join("a" * 17) + ";x;1;0;b"])
def test_other_texts_are_no_marks(text: str) -> None:
    assert mark_in("Orders", _properties(text)) is None


@pytest.mark.parametrize(
    ("path", "source", "target", "forwards", "wanted"),
    [
        ((), "a", "b", False, True),
        (("a",), "b", "a", True, False),
        (("a",), "b", "c", True, True),
        (("a",), "b", "c", False, False),
        (("a", "b"), "c", "a", True, False),
        (("a", "b", "c"), "a", "d", True, False),
    ],
)
def test_no_message_goes_where_it_has_been(
    path: tuple[str, ...], source: str, target: str, forwards: bool, wanted: bool
) -> None:
    mark = Mark(path, "", "b", 0, 0) if path else None
    assert is_wanted(mark, source, target, forwards=forwards) is wanted
