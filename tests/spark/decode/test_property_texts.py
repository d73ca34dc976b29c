"""Texts that are copied end to end, and where their entries end."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark.decode.property_texts import PADDING, PropertyTexts

_PIECES = st.sampled_from([b"TAGS\x01a\x02", b"a\x01\x02", b"\x02", b"\x01", b"x" * 9, b"y" * 70, b"KEYS\x01k\x02"])
_TEXTS = st.lists(_PIECES, max_size=4).map(b"".join)
GAP = b"g\x02\x01\x02"


def copied(texts: list[bytes], gap: bytes = GAP, tail: bytes = b"") -> PropertyTexts:
    content = b""
    begins, ends = [], []
    for text in texts:
        content += gap
        begins.append(len(content))
        content += text
        ends.append(len(content))
    positions = [np.array(each, np.int64) for each in (begins, ends)]
    return PropertyTexts(pa.py_buffer(content + tail), *positions)


def held(texts: PropertyTexts) -> list[bytes]:
    return [
        texts.octets[begin : end + 1].tobytes()
        for begin, end in zip(texts.begins.tolist(), texts.last_ends.tolist(), strict=True)
    ]


def ended(text: bytes) -> bytes:
    return text if text.endswith(b"\x02") else text + b"\x02"


@given(texts=st.lists(_TEXTS, max_size=8), tail=st.sampled_from([b"", GAP, bytes(200)]))
def test_texts_and_their_separators(texts: list[bytes], tail: bytes) -> None:
    found = copied(texts, tail=tail)
    assert held(found) == [ended(text) for text in texts]
    assert found.entry_ends.tolist() == found.places_of(2).tolist()
    counts = [ended(text).count(b"\x02") for text in texts]
    assert found.entry_ends.size == sum(counts)
    assert found.octets.size >= (found.last_ends[-1] + PADDING if texts else PADDING)


@pytest.mark.parametrize(
    "texts",
    [
        [b"TAGS\x01" + b"v" * size + b"\x02" for size in (40, 41, 48, 47, 49)],
        [b"TAGS\x01" + b"v" * size + b"\x02" for size in (40, 4000, 48)],
        [b"TAGS\x01" + b"v" * size + b"\x02" for size in (10, 400, 390, 380, 300, 410)],
        [b"WAIT\x01true\x02a\x01b\x02c\x01d\x02" for _ in range(9)],
    ],
    ids=["alike", "one is long", "ragged", "short entries"],
)
@pytest.mark.parametrize("without", [False, True], ids=["separated", "last without separator"])
def test_texts_of_any_sizes(texts: list[bytes], without: bool) -> None:
    if without:
        texts = [*texts[:-1], texts[-1][:-1]]
    found = copied(texts)
    assert held(found) == [ended(text) for text in texts]


def test_the_last_entry_is_missing_its_separator_in_another_text_than_one_with_one_more() -> None:
    """As many separators as texts that are alike would have, but not where they would be."""
    found = copied([b"a\x01b\x02c\x01d", b"a\x01b\x02c\x01d\x02e\x01f\x02"])
    assert held(found) == [b"a\x01b\x02c\x01d\x02", b"a\x01b\x02c\x01d\x02e\x01f\x02"]
