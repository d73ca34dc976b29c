"""Properties that are found for many records at once are those that a reader of one text finds."""

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from spark.properties import PropertyTable

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


@settings(max_examples=60, deadline=None)
@given(
    texts=st.one_of(st.lists(_WHOLE_TEXTS, max_size=8), st.lists(_ODD_TEXTS, max_size=8)),
    gap=st.sampled_from(["", "x", "\x01", "\x02", "TAGS\x01no\x02"]),
    ends_with_the_log=st.booleans(),
)
def test_every_text_by_itself(texts: list[str], gap: str, ends_with_the_log: bool) -> None:
    content, begins, ends = b"", [], []
    for text in texts:
        content += gap.encode()
        begins.append(len(content))
        content += text.encode()
        ends.append(len(content))
    content += b"" if ends_with_the_log else gap.encode()
    positions = [pa.array(each, pa.int64()).to_numpy() for each in (begins, ends)]
    table = PropertyTable(pa.py_buffer(content), *positions)
    expected = [parsed(text) for text in texts]
    for name in ("TAGS", "KEYS", "UNIQ_KEY", "a", "xy", "absent"):
        assert table.find(name.encode()).to_pylist() == [each.get(name) for each in expected]
    assert [dict(each) for each in table.maps().to_pylist()] == expected
