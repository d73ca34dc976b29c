"""Properties in their encoded form."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sprocket.remoting.message.properties import encode, encode_copy, find, find_last, parse, parse_for_copy, without

NAMES = st.text(st.characters(exclude_characters="\x01\x02", exclude_categories=["Cs"]), min_size=1)


@given(st.dictionaries(NAMES, NAMES))
def test_what_is_encoded_parses_back(properties: dict[str, str]) -> None:
    assert parse(encode(properties)) == properties


@given(st.dictionaries(NAMES, NAMES), NAMES)
def test_find_finds_what_parse_finds(properties: dict[str, str], name: str) -> None:
    encoded = encode(properties).encode()
    for wanted in (*properties, name):
        found = find(encoded, wanted.encode() + b"\x01")
        assert (None if found is None else found.decode()) == properties.get(wanted)


@given(st.lists(st.sampled_from(["a", "b", "ab", "\x01", "\x02", "a\x01", "\x02a\x01"])))
def test_find_last_finds_what_parse_finds(pieces: list[str]) -> None:
    text = "".join(pieces)
    for name in ("a", "b", "ab"):
        found = find_last(text.encode(), name.encode() + b"\x01")
        assert (None if found is None else found.decode()) == parse(text).get(name)


@given(st.lists(st.sampled_from(["a", "b", "ab", "\x01", "\x02", "a\x01", "\x02a\x01", "a\x01b\x02"])))
def test_without_leaves_all_properties_of_other_names(pieces: list[str]) -> None:
    text = "".join(pieces)
    for name in ("a", "b", "ab"):
        left = without(text.encode(), name.encode() + b"\x01").decode()
        assert parse(left) == {key: value for key, value in parse(text).items() if key != name}
        items = text.split("\x02")
        kept = [item for item in items if not item.startswith(name + "\x01")]
        assert [item for item in left.split("\x02") if item] == [item for item in kept if item]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (None, {}),
        ("", {}),
        ("a\x01b", {"a": "b"}),
        ("a\x01b\x02a\x01c\x02", {"a": "c"}),
        ("a\x01\x02\x01b\x02ab\x02\x02c\x01d\x02", {"c": "d"}),
        ("a\x01b\x01c\x02", {"a": "b\x01c"}),
    ],
)
def test_odd_texts_parse_as_in_the_reference(text: str | None, expected: dict[str, str]) -> None:
    assert parse(text) == expected


def test_a_name_inside_of_another_or_in_a_value_is_not_found() -> None:
    assert find(b"XTAGS\x01no\x02v\x01TAGS\x01no\x02", b"TAGS\x01") is None
    assert find(b"XTAGS\x01no\x02TAGS\x01yes", b"TAGS\x01") == b"yes"


def test_of_several_with_one_name_find_takes_the_first_and_find_last_the_last_with_a_value() -> None:
    text = b"TAGS\x01first\x02K\x01v\x02TAGS\x01last\x02TAGS\x01\x02"
    assert (find(text, b"TAGS\x01"), find_last(text, b"TAGS\x01")) == (b"first", b"last")


def test_a_copy_keeps_the_bytes_of_what_it_does_not_change() -> None:
    original = b"a\x01\xc4\xe3\x02\xff\x01v\x02c\x01\xe4\x02d\x01\xff\x02d\x01x\x02"
    properties = parse_for_copy(original) | {"c": "new", "e": "\ufffd"}
    assert (
        encode_copy(properties, original)
        == b"a\x01\xc4\xe3\x02\xff\x01v\x02c\x01new\x02d\x01x\x02e\x01\xef\xbf\xbd\x02"
    )
    assert encode_copy({"a": "b"}, original) == b"a\x01b\x02"
