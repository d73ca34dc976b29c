"""Properties that are found for many records at once are those that a reader of one text finds."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark.decode.properties import PropertyTable
from spark.decode.property_texts import PropertyTexts
from tests.tiers import examples

# Pieces of texts: whole entries, and what is none.
_ENTRIES = st.sampled_from(["TAGS\x01a\x02", "KEYS\x01k1 k2\x02", "UNIQ_KEY\x010123\x02", "a\x01\x02", "xy\x01z\x02"])
_ODD = st.sampled_from(["TAGS\x01a\x01b\x02", "TAGS\x02", "\x01\x02", "\x02", "\x01", "KEYS", "TAGS\x01", "\x01a\x02"])
_WHOLE_TEXTS = st.lists(_ENTRIES, min_size=1, max_size=5).map("".join)
_ODD_TEXTS = st.lists(st.one_of(_ENTRIES, _ODD), max_size=5).map("".join)


def parsed(text: str) -> dict[str, str]:
    """As `MessageDecoder.string2messageProperties` of RocketMQ 5.3.3."""
    found = {}
    for entry in text.split("\x02"):
        name, separator, value = entry.partition("\x01")
        if separator:
            found[name] = value
    return found


def table_of(texts: list[bytes], gap: bytes = b"", ends_with_the_log: bool = False) -> PropertyTable:
    content, begins, ends = b"", [], []
    for text in texts:
        content += gap
        begins.append(len(content))
        content += text
        ends.append(len(content))
    content += b"" if ends_with_the_log else gap
    positions = (np.array(each, np.int64) for each in (begins, ends))
    return PropertyTable(PropertyTexts(pa.py_buffer(content), *positions))


@settings(max_examples=examples(60), deadline=None)
@given(
    texts=st.one_of(st.lists(_WHOLE_TEXTS, max_size=8), st.lists(_ODD_TEXTS, max_size=8)),
    gap=st.sampled_from(["", "x", "\x01", "\x02", "TAGS\x01no\x02"]),
    ends_with_the_log=st.booleans(),
)
def test_every_text_by_itself(texts: list[str], gap: str, ends_with_the_log: bool) -> None:
    table = table_of([text.encode() for text in texts], gap.encode(), ends_with_the_log)
    expected = [parsed(text) for text in texts]
    for name in ("TAGS", "KEYS", "UNIQ_KEY", "a", "xy", "absent"):
        assert table.find(name.encode()).to_pylist() == [each.get(name) for each in expected]
    assert [dict(each) for each in table.maps().to_pylist()] == expected


def text_of(number: int) -> str:
    """What one producer sends: the same names in the same order."""
    return f"UNIQ_KEY\x017F{number:030X}\x02KEYS\x01key-{number}\x02TAGS\x01tag-{number % 3}\x02W\x011\x02"


@pytest.mark.parametrize(
    "odd",
    [
        text_of(3),
        "TAGS\x01t\x02" + text_of(3).replace("TAGS\x01tag-0\x02", ""),
        text_of(3).replace("tag-0", "t\x01ag"),
        text_of(3).replace("tag-0", "t\x02ag"),
        text_of(3).replace("tag-0", "Grüße"),
        text_of(3).replace("W\x011\x02", "TAGS\x01later\x02"),
        text_of(3).replace("W\x011\x02", "KEYS\x01later"),
        text_of(3).replace("TAGS\x01tag-0\x02", ""),
        text_of(3).replace("TAGS\x01tag-0\x02", "TAGS\x02"),
        text_of(3)[:-1],
        text_of(3) + "more\x01" + "x" * 900 + "\x02",
        "",
    ],
    ids=[
        "alike",
        "another order",
        "0x01 in a value",
        "0x02 in a value",
        "not ASCII",
        "a name twice",
        "twice, not ended",
        "one less",
        "no value",
        "not ended",
        "long",
        "empty",
    ],
)
@pytest.mark.parametrize("at", [0, 7, 19])
def test_one_text_among_others_that_are_alike(odd: str, at: int) -> None:
    texts = [text_of(number) for number in range(20)]
    texts[at] = odd
    table = table_of([text.encode() for text in texts], b"\x02TAGS\x01no\x02")
    expected = [parsed(text) for text in texts]
    for name in ("TAGS", "KEYS", "UNIQ_KEY", "W", "absent", "more"):
        assert table.find(name.encode()).to_pylist() == [each.get(name) for each in expected]
    assert [dict(each) for each in table.maps().to_pylist()] == expected


def test_bytes_that_are_not_utf_8_are_replaced() -> None:
    texts = [text_of(number).encode() for number in range(4)]
    texts[2] = texts[2].replace(b"tag-2", b"\xfft\xc3")
    assert table_of(texts).find(b"TAGS").to_pylist() == ["tag-0", "tag-1", "\ufffdt\ufffd", "tag-0"]
