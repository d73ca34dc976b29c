"""Columns of records with the compiled engine and with arrays: any bytes give the same from both."""

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final
from unittest.mock import patch

import numpy as np
import pyarrow as pa

from spark.decode import binary_array, decoder, properties, property_texts, record_parts
from spark.decode.columns import COLUMN_TYPES
from spark.decode.decoder import Chunk, DecodeOptions
from spark.decode.properties import PropertyTable
from spark.decode.property_texts import PropertyTexts
from spark.files.segment import Segment
from sprocket.common.errors import CorruptRecord
from sprocket.remoting.message.record import SysFlag
from store.scan import plain
from store.scan.columns import Integers
from tests.fuzz.store_targets import whole_record
from tests.fuzz.target import Target
from tests.fuzz.twins.scan_targets import BASE, PROPERTIES, log_of

try:
    from spark.decode import columns_native as engine
    from spark.decode import compiled
except ImportError:  # no C compiler: `tests/engine` says so
    compiled = None  # type: ignore[assignment]

_ROWS: Final = 6

_NAMES: Final = (b"TAGS", b"KEYS", b"a", b"UNIQ_KEY", b"K", b"none")
OPTIONS: Final = (
    DecodeOptions(),
    DecodeOptions(drop_malformed=True),
    DecodeOptions(drop_malformed=True, read_uncommitted=True),
)
_BATCH: Final = SysFlag.INNER_BATCH | SysFlag.NEED_UNWRAP
_PREPARED, _ROLLED_BACK = SysFlag.TRANSACTION_PREPARED, SysFlag.TRANSACTION_ROLLBACK


class BytesSegment(Segment):
    """A segment in memory, whose first byte has the physical offset `BASE`."""

    def __init__(self, content: bytes) -> None:
        self.path, self.start = Path("memory"), BASE
        self.data = content
        self.size, self.file_end = len(content), BASE + len(content)


@contextmanager
def decoding_by(compiled_records: Callable[..., object], gather: Callable[..., pa.Array]) -> Iterator[None]:
    """Let chunks use these functions."""
    with ExitStack() as stack:
        stack.enter_context(patch.object(record_parts, "compiled_records", compiled_records))
        for module in (decoder, properties, property_texts, record_parts):
            stack.enter_context(patch.object(module, "gather", gather))
        yield


def by_arrays() -> AbstractContextManager[None]:
    """Let chunks find their parts by arrays alone."""
    return decoding_by(lambda *_: None, binary_array.gather)


def by_compiled_code() -> AbstractContextManager[None]:
    """Let chunks use the compiled functions, whichever engine this process has."""
    return decoding_by(compiled.CompiledRecords.at, compiled.gather)


def read(content: bytes, positions: Integers, options: DecodeOptions, kept: Sequence[int]) -> object:
    """All columns and damage of the records, with and without the check of CRCs; or the error."""
    found: list[object] = []
    for checks in (False, True):
        try:
            chunk = Chunk(BytesSegment(content), positions, options)
            if checks:
                chunk.check_crc()
        except CorruptRecord as error:
            found.append(str(error))
            continue
        found += [chunk.malformed.tolist(), [str(each) for each in chunk.damage]]
        if len(chunk) > 1:
            chunk.filter(np.array([at % 7 in kept for at in range(len(chunk))]))
        for name, kind in COLUMN_TYPES.items():
            column = chunk.column(name)
            assert column.type == kind
            column.validate(full=True)
            found.append((name, column.to_pylist()))
    return found


def compare_columns(content: bytes, every: Sequence[DecodeOptions] = OPTIONS) -> None:
    """The same columns, damage and errors of whatever the chain finds."""
    positions = plain.chain(memoryview(content), len(content)).positions
    if not positions.size:
        return
    for options in every:
        for kept in (range(7), (0, 3)):
            with by_arrays():
                pure = read(content, positions, options, kept)
            with by_compiled_code():
                assert read(content, positions, options, kept) == pure


def compare_texts(content: bytes, cuts: Sequence[int]) -> None:
    """The same parts of `content`, and values of properties in them; `cuts` are in order."""
    data = pa.py_buffer(content)
    begins, ends = np.array(cuts[0::2], np.int64), np.array(cuts[1::2], np.int64)
    begins = begins[: ends.size]
    parts = compiled.gather(data, begins, ends)
    assert parts.to_pylist() == binary_array.gather(data, begins, ends).to_pylist()
    parts.validate(full=True)
    present = begins % 2 == 0
    ends_of_present = np.where(present, ends, begins)
    held = compiled.gather(data, begins, ends_of_present, present)
    assert held.to_pylist() == binary_array.gather(data, begins, ends_of_present, present).to_pylist()
    texts = PropertyTable(PropertyTexts(data, begins, ends))
    for name in _NAMES:
        values = compiled.property_values(data, begins, ends, name)
        values.validate(full=True)
        assert values.to_pylist() == texts.find(name).to_pylist(), name


def column_twins(content: bytes) -> None:
    """One part of a log, and its bytes as texts."""
    if compiled is None:
        return
    compare_columns(content)
    chance = random.Random(content)
    if content:
        compare_texts(content, sorted(chance.randrange(len(content) + 1) for _ in range(chance.choice((2, 10, 40)))))
        hostile(content, chance)


def hostile(content: bytes, chance: random.Random) -> None:
    """Positions outside of the data are refused, not read."""
    for wrong in (-1, len(content) + 1, (1 << 63) - 1, -(1 << 63)):
        _refused(content, np.array([0, wrong, 0], np.int64))
        bounds = [[chance.choice((wrong, 0, 88, len(content))) for _ in range(3)] for _ in range(_ROWS)]
        with suppress(IndexError):
            engine.crcs_of_bounds(content, np.zeros(3, np.int64), np.array(bounds, np.int64), bytearray(3), 3)


def _refused(content: bytes, at: Integers) -> None:
    """Give positions `at`, whose second one is wrong, to each function."""
    rows, other, numbers = np.zeros((_ROWS, 3), np.int64), np.zeros(3, np.int64), np.zeros(4, np.int32)
    assert engine.record_bounds(content, BASE, at, rows, numbers, 3, b"half")[0] < 2
    calls: tuple[Callable[[], object], ...] = (
        lambda: engine.fixed_fields(content, at, 0, numbers, 3, 4),
        lambda: engine.text_offsets(len(content), at, at, numbers, 3),
        lambda: engine.copy_texts(content, at, numbers + 40, bytearray(60), 3),
        lambda: engine.find_values(content, at, at, b"K\x01", other, other.copy(), bytearray(3), 3),
        lambda: engine.crcs_of_bounds(content, at, rows, bytearray(3), 3),
    )
    for call in calls:
        try:
            call()
        except IndexError:
            continue
        raise AssertionError(at)


def log_of_kinds(chance: random.Random, records: int) -> bytes:
    """Records with short topics: in several states of transactions, of halves, with batches, with IPv6 hosts."""
    content = bytearray()
    kinds = chance.choice(((0,), (0, SysFlag.BORN_HOST_V6), (0, 0, 0, _PREPARED, _ROLLED_BACK), (0, 0, 0, _BATCH)))
    topics = chance.choice((("T", "Orders"), ("T", decoder.HALF_TOPIC.decode())))
    for _ in range(records):
        body, flags = b"x" * chance.randrange(60), int(chance.choice(kinds))
        record = bytearray(whole_record(body, chance.choice(PROPERTIES), flags, chance.choice(topics)))
        record[28:36] = (BASE + len(content)).to_bytes(8, "big")
        content += record
    return bytes(content)


_SEEDS: Final = [log_of(random.Random(1), 12), log_of(random.Random(2), 3), log_of_kinds(random.Random(3), 20)]

ENGINE_COLUMN_TARGETS: Final = (Target("column_twins", column_twins, _SEEDS, 4096),)
