"""The compiled decoder and the one by arrays give the same columns, damage and errors for any bytes."""

import random

import numpy as np
import pyarrow as pa
import pytest

from spark.decode.decoder import Chunk, DecodeOptions
from tests.fuzz.twins.column_targets import (
    BASE,
    OPTIONS,
    BytesSegment,
    by_compiled_code,
    column_twins,
    compare_columns,
    compare_texts,
    compiled,
    log_of_kinds,
)
from tests.fuzz.twins.scan_targets import log_of
from tests.store.scan.test_twins import damaged
from tests.tiers import sample, seeds

LOG = log_of_kinds(random.Random(5), 3)

pytestmark = pytest.mark.skipif(compiled is None, reason="the compiled engine is not built")


@pytest.mark.parametrize("seed", seeds(40, quick=2))
def test_logs_of_every_shape(seed: int) -> None:
    chance = random.Random(seed)
    column_twins(damaged(chance, log_of(chance, chance.choice((1, 5, 60)))))


@pytest.mark.parametrize("seed", seeds(40))
def test_kinds_of_records(seed: int) -> None:
    chance = random.Random(seed)
    log = log_of_kinds(chance, chance.choice((2, 100)))
    compare_columns(log)
    compare_columns(damaged(chance, log))


@pytest.mark.parametrize("at", sample(range(len(LOG))))
def test_a_flipped_byte_of_a_log(at: int) -> None:
    changed = bytearray(LOG)
    changed[at] ^= 0x41
    compare_columns(bytes(changed), [OPTIONS[at % len(OPTIONS)]])


def test_texts_of_every_length_at_the_end_of_the_data() -> None:
    content = bytes(range(1, 80)) + b"TAGS\x01a\x02"
    for size in range(len(content)):
        compare_texts(content, [len(content) - size, len(content)])
        compare_texts(content[:size], [0, size // 2, size // 2, size])


def test_values_whose_separator_is_in_each_place_of_a_word() -> None:
    for before in range(20):
        for length in range(20):
            text = b"x" * before + b"\x01y\x02TAGS\x01" + b"v" * length
            compare_texts(text + b"\x02TAGSx\x01no", [0, len(text) + 9])
            compare_texts(text + b"TAGS\x01beyond", [0, len(text)])


def test_a_record_at_the_very_end_of_the_data_is_usual() -> None:
    log = log_of(random.Random(8), 1)
    with by_compiled_code():
        chunk = Chunk(BytesSegment(log), np.zeros(1, np.int64), DecodeOptions())
    assert chunk.compiled is not None
    assert chunk.column("physicalOffset").to_pylist() == [BASE]


def test_more_bytes_than_offsets_hold_are_refused() -> None:
    data = pa.py_buffer(bytes(1 << 20))
    begins = np.zeros(2048, np.int64)
    with pytest.raises(OverflowError, match="32 bits"):
        compiled.gather(data, begins, begins + (1 << 20))
