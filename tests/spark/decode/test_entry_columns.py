"""Names in texts that all have as many entries: where the quick way holds, and what is just beside it."""

import numpy as np
import pyarrow as pa
import pytest

from spark.decode.entry_columns import ABSENT, EntryColumns
from spark.decode.property_texts import PropertyTexts

ALIKE = [b"KEYS\x01k1\x02TAGS\x01a\x02REAL_TOPIC\x01T\x02", b"KEYS\x01k22\x02TAGS\x01\x02REAL_TOPIC\x01Topic\x02"]


def columns_of(texts: list[bytes]) -> EntryColumns:
    ends = np.cumsum([len(text) for text in texts])
    begins = ends - [len(text) for text in texts]
    held = PropertyTexts.copied(pa.py_buffer(b"".join(texts)), begins, ends)
    assert held.entries_per_text is not None
    return EntryColumns(held, held.entries_per_text)


@pytest.mark.parametrize("repeated", [1, 5])
def test_a_name_in_one_column_of_all_texts(repeated: int) -> None:
    columns = columns_of(ALIKE * repeated)
    assert [columns.column_of(key) for key in (b"KEYS\x01", b"TAGS\x01", b"REAL_TOPIC\x01")] == [0, 1, 2]
    # Beginnings of names, a name that begins as one of them, values.
    for key in (b"KEY\x01", b"TAG\x01", b"REAL_TOPI\x01", b"REAL_TOPIC2\x01", b"a\x01", b"k1\x01"):
        assert columns.column_of(key) == ABSENT


@pytest.mark.parametrize(
    "odd",
    [
        b"TAGS\x01a\x02KEYS\x01k1\x02REAL_TOPIC\x01T\x02",
        b"KEYS\x01k1\x02TAG\x01a\x02REAL_TOPIC\x01T\x02",
        b"KEYS\x01k1\x02TAGS\x02REAL_TOPIC\x01T\x02",
        b"KEYS\x01k1\x02TAGS\x01a\x02TAGS\x01b\x02",
        b"TAGS\x01k1\x02\x02\x02",
    ],
    ids=["order", "other name", "no value", "twice", "empty entries"],
)
def test_a_name_that_one_text_has_elsewhere(odd: bytes) -> None:
    for texts in ([odd, *ALIKE], [*ALIKE, odd], [ALIKE[0], odd, ALIKE[1]]):
        assert columns_of(texts).column_of(b"TAGS\x01") is None


def test_the_last_of_two_columns_of_one_name_counts() -> None:
    assert columns_of([b"TAGS\x01a\x02TAGS\x01b\x02", b"TAGS\x01\x02TAGS\x01d\x02"]).column_of(b"TAGS\x01") == 1
    assert columns_of([b"TAGS\x01a\x02TAGS\x01b\x02", b"TAGS\x01\x02TAGZ\x01d\x02"]).column_of(b"TAGS\x01") is None


def test_names_that_share_their_first_eight_bytes() -> None:
    columns = columns_of([b"REAL_TOPIC\x01T\x02REAL_TOPS\x01U\x02", b"REAL_TOPIC\x01V\x02REAL_TOPS\x01W\x02"])
    assert [columns.column_of(key) for key in (b"REAL_TOPIC\x01", b"REAL_TOPS\x01", b"REAL_TOP\x01")] == [0, 1, ABSENT]


def test_a_name_of_which_the_value_has_a_name_end() -> None:
    columns = columns_of([b"TAGS\x01a\x01b\x02KEYS\x01x\x02", b"TAGS\x01c\x02KEYS\x01\x01\x02"])
    assert columns.column_of(b"TAGS\x01") == 0
    assert columns.column_of(b"KEYS\x01") == 1
    assert columns.column_of(b"a\x01") == ABSENT
