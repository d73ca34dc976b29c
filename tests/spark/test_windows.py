"""A log is read in windows that share one memory: nothing that a read gives may be lost or changed by the next."""

import os
import zlib
from dataclasses import replace
from pathlib import Path

import pytest

from spark.decode.columns import COLUMN_TYPES, DEFAULT_COLUMNS
from spark.decode.decoder import DecodeOptions
from spark.files.segment import Segment, WindowMemory
from spark.options.source_options import SourceOptions
from spark.read import log_reader
from spark.read.log_reader import read_span
from spark.read.plan import Span, plan
from spark.rows.filters import RowFilter
from sprocket.common.errors import CorruptRecord
from sprocket.remoting.message.record import SysFlag
from tests.spark.conftest import read_rows
from tests.spark.naive_reader import default_columns
from tests.spark.read.test_log_reader import mixed_rows
from tests.spark.store_builder import Row, StoreBuilder

SMALL = 16 * 1024


@pytest.fixture
def small_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows so small that a log of some hundred KiB has many, and records that are larger than one."""
    monkeypatch.setattr(log_reader, "WINDOW_BYTES", SMALL)
    monkeypatch.setattr(log_reader, "_INDEXED_WINDOWS", 1)
    monkeypatch.setattr(log_reader, "_MAPPED_WINDOWS", 4)
    monkeypatch.setattr(log_reader, "_LAST_RECORD_BYTES", 1024)


def written(root: Path, rows: list[Row], **shape: int) -> StoreBuilder:
    builder = StoreBuilder(root, **shape)
    builder.extend(rows)
    builder.write()
    return builder


def spans_of(root: Path, **options: object) -> list[Span]:
    chosen = SourceOptions(paths=(str(root),), **options)  # type: ignore[arg-type]
    return [span for task in plan(chosen, RowFilter(chosen.topics)).tasks for span in task]


def with_compressed_bodies(rows: list[Row]) -> list[Row]:
    compressed = SysFlag.COMPRESSED | 3 << 8  # zlib
    return [
        replace(row, body=zlib.compress(row.body), sys_flag=int(compressed)) if index % 5 == 0 else row
        for index, row in enumerate(rows)
    ]


@pytest.mark.usefixtures("small_windows")
@pytest.mark.parametrize("inflates", [False, True])
@pytest.mark.parametrize("topics", [None, frozenset({"Flights"})])
def test_what_was_read_stays_while_later_windows_are_read(
    tmp_path: Path, inflates: bool, topics: frozenset[str] | None
) -> None:
    written(tmp_path, with_compressed_bodies(mixed_rows(900)), segment_bytes=1 << 18)
    columns = list(COLUMN_TYPES)
    rows, options = RowFilter(topics), DecodeOptions(inflate_bodies=inflates)
    arrays, values = [], []
    for span in spans_of(tmp_path, topics=topics):
        for batch, _ in read_span(span, columns, rows, options):
            arrays.append(batch)
            values.append([array.to_pylist() for array in batch])
    assert len(arrays) > (8 if topics is None else 4)
    assert [[array.to_pylist() for array in batch] for batch in arrays] == values


@pytest.mark.usefixtures("small_windows")
@pytest.mark.parametrize("version", [1, 2])
def test_records_at_the_ends_of_windows_and_larger_than_one(tmp_path: Path, version: int) -> None:
    sizes = [0, 1, 90, 700, SMALL - 200, SMALL, 3 * SMALL, 5, 5, SMALL // 2] * 12
    rows = [
        replace(row, version=version, body=bytes([index % 251]) * size)
        for index, (row, size) in enumerate(zip(mixed_rows(len(sizes)), sizes, strict=True))
    ]
    builder = written(tmp_path, rows, segment_bytes=1 << 18)
    assert len(list((tmp_path / "commitlog").iterdir())) > 3  # blanks, too
    assert read_rows(tmp_path) == [default_columns(row) for row in builder.rows]


@pytest.mark.usefixtures("small_windows")
@pytest.mark.parametrize("index", [0, -1], ids=["sealed", "being written"])
@pytest.mark.parametrize("left", [0, 10_000, 3 * SMALL + 77])
def test_a_segment_that_becomes_shorter_while_it_is_read(tmp_path: Path, index: int, left: int) -> None:
    """The rows so far were right, what follows is an error; the process lives."""
    builder = written(tmp_path, [replace(row, body=b"x" * 600) for row in mixed_rows(600)], segment_bytes=1 << 18)
    span = spans_of(tmp_path)[index]
    reading = read_span(span, DEFAULT_COLUMNS, RowFilter(), DecodeOptions())
    arrays, count = next(reading)
    os.truncate(span.segment.path, left)
    with pytest.raises(CorruptRecord, match=r"record begins here|file ends here"):
        for _, more in reading:
            count += more
    first = [row for row in builder.rows if row.physical_offset >= span.begin]
    assert 0 < count < len(first)
    assert arrays[3].to_pylist() == [row.physical_offset for row in first[: len(arrays[3])]]


def test_a_window_is_what_there_is_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / f"{0:020d}"
    content = os.urandom(50_000)
    path.write_bytes(content)
    memory = WindowMemory(16_384)
    with path.open("rb") as file:
        for begin, size in ((0, 16_384), (4_096, 0), (45_056, 16_384), (65_536, 100), (0, 40_000), (0, 90_000)):
            assert bytes(memory.read(file.fileno(), begin, size)) == content[begin : begin + size]


def test_a_file_that_is_shorter_than_it_just_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It became shorter after its size was asked for, or was read in several pieces."""
    path = tmp_path / f"{0:020d}"
    path.write_bytes(os.urandom(20_000))
    real = os.preadv
    with path.open("rb") as file:
        status = os.fstat(file.fileno())
        os.truncate(path, 9_000)
        monkeypatch.setattr(os, "fstat", lambda _: status)
        monkeypatch.setattr(os, "preadv", lambda fd, buffers, at: real(fd, [buffers[0][:1_000]], at))
        with Segment.window(path, file.fileno(), 0, 5_000, 12_000, WindowMemory(1 << 16)) as window:
            assert (window.start, window.size, window.file_end) == (4_096, 9_000 - 4_096, 20_000)
            assert bytes(window.data) == path.read_bytes()[4_096:]
            assert window.walk(0, window.size).positions.size == 0


def test_windows_of_one_memory_take_turns_and_larger_ones_their_own(tmp_path: Path) -> None:
    path = tmp_path / f"{0:020d}"
    path.write_bytes(b"a" * 8_192 + b"b" * 8_192)
    memory = WindowMemory(8_192)
    with path.open("rb") as file:
        large = memory.read(file.fileno(), 0, 16_384)
        first = memory.read(file.fileno(), 0, 8_192)
        assert bytes(first) == b"a" * 8_192
        memory.read(file.fileno(), 8_192, 8_192)
        assert bytes(first) == b"b" * 8_192
        assert bytes(large) == path.read_bytes()


@pytest.mark.usefixtures("small_windows")
def test_two_reads_at_once_have_memory_of_their_own(tmp_path: Path) -> None:
    """One that has begun while another is under way, and one that takes over the memory of one that is done."""
    builder = written(tmp_path, mixed_rows(600), segment_bytes=1 << 20)
    [span] = spans_of(tmp_path, min_partitions=1)
    expected = [row.body for row in builder.rows]
    for _ in range(2):
        readings = [read_span(span, ["body"], RowFilter(), DecodeOptions()) for _ in range(3)]
        bodies: list[list[bytes]] = [[] for _ in readings]
        for batches in zip(*readings, strict=True):
            for found, (arrays, _) in zip(bodies, batches, strict=True):
                found += arrays[0].to_pylist()
        assert bodies == [expected] * 3


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_process_has_windows_of_its_own(tmp_path: Path) -> None:
    """Spark forks its Python processes: what one reads must not show in another."""
    path = tmp_path / f"{0:020d}"
    path.write_bytes(b"a" * 4_096 + b"b" * 4_096)
    memory = WindowMemory(4_096)
    with path.open("rb") as file:
        window = memory.read(file.fileno(), 0, 4_096)
        child = os.fork()
        if child == 0:
            memory.read(file.fileno(), 4_096, 4_096)
            os._exit(0)
        os.waitpid(child, 0)
        assert bytes(window) == b"a" * 4_096
