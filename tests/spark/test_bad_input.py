"""Bad input of every kind: rows that are right, or an error that says what to do; never silence."""

import os
import random
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from spark.decode.decoder import DecodeOptions
from spark.files.store_directory import find_stores
from spark.options.source_options import SourceOptions, read_options
from spark.read.log_reader import read_span
from spark.read.plan import plan
from spark.rows.filters import RowFilter, TimeRange
from spark.rows.row_batches import checked_columns, spark_schema
from sprocket.common.errors import ConfigError, CorruptRecord, SprocketError
from store.disk.sealed_file import seal
from store.recovery.flushed_mark import FLUSHED_MARK_KIND
from tests.spark.conftest import read_rows
from tests.spark.naive_reader import default_columns
from tests.spark.read.test_log_reader import mixed_rows
from tests.spark.store_builder import Row, StoreBuilder, encode
from tests.tiers import seeds

SEGMENT_BYTES = 1 << 14
COLUMNS = ["topic", "queueId", "queueOffset", "physicalOffset", "body", "_corrupt_record"]
PERMISSIVE: dict[str, Any] = {"drop_malformed": True, "corrupt_column": "_corrupt_record"}


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> StoreBuilder:
    """Several segments, some of it not dispatched yet."""
    builder = StoreBuilder(tmp_path_factory.mktemp("original"), segment_bytes=SEGMENT_BYTES, queue_entries=30)
    rows = mixed_rows(260, seed=5)
    builder.extend(rows[:240])
    builder.extend(rows[240:], index=False)
    builder.write()
    end = builder.rows[-1].physical_offset + len(encode(builder.rows[-1]))
    (builder.root / "flushed").write_bytes(seal(FLUSHED_MARK_KIND, struct.pack(">q", end)))
    return builder


@pytest.fixture
def store(original: StoreBuilder, tmp_path: Path) -> Path:
    return Path(shutil.copytree(original.root, tmp_path / "store"))


def segments(store: Path) -> list[Path]:
    return sorted((store / "commitlog").iterdir())


def overwrite(path: Path, at: int, content: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(content)


# -- damage to the log: an error in FAILFAST, and what is right in the other modes -----------------------------


def cut(store: Path) -> None:
    os.truncate(segments(store)[1], 5000)


def cut_last(store: Path) -> None:
    os.truncate(segments(store)[-1], 3000)


def empty(store: Path) -> None:
    os.truncate(segments(store)[1], 0)


def zeroed(store: Path) -> None:
    overwrite(segments(store)[1], 0, bytes(SEGMENT_BYTES))


def zeroed_begin(store: Path) -> None:
    overwrite(segments(store)[0], 0, bytes(2000))


def zeroed_middle(store: Path) -> None:
    overwrite(segments(store)[2], 4096, bytes(4096))


def zeroed_end(store: Path) -> None:
    overwrite(segments(store)[1], SEGMENT_BYTES - 2000, bytes(2000))


def zeroed_last(store: Path) -> None:
    overwrite(segments(store)[-1], 0, bytes(SEGMENT_BYTES))


def noise(store: Path) -> None:
    overwrite(segments(store)[1], 3000, random.Random(1).randbytes(3000))


def missing(store: Path) -> None:
    segments(store)[1].unlink()


def foreign_segment(store: Path) -> None:
    segments(store)[1].write_bytes(random.Random(2).randbytes(SEGMENT_BYTES))


def of_another_place(store: Path) -> None:
    shutil.copy(segments(store)[0], segments(store)[1])


def flipped_body(store: Path) -> None:
    content = bytearray(segments(store)[1].read_bytes())
    content[content.index(b"Flights") - 10] ^= 4  # the body ends two bytes before the topic
    segments(store)[1].write_bytes(content)


DAMAGE = [
    cut, cut_last, empty, zeroed, zeroed_begin, zeroed_middle, zeroed_end, zeroed_last, noise, missing, foreign_segment,
    of_another_place,
]  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGE)
def test_damage_is_an_error_that_says_what_to_do(store: Path, damage: Callable[[Path], None]) -> None:
    damage(store)
    with pytest.raises(CorruptRecord, match="mode=DROPMALFORMED"):
        read_rows(store)


@pytest.mark.parametrize("damage", DAMAGE)
def test_what_is_not_damaged_is_read_in_the_other_modes(
    original: StoreBuilder, store: Path, damage: Callable[[Path], None]
) -> None:
    before = [default_columns(row) for row in original.rows]
    damage(store)
    changed = {int(path.name): path.read_bytes() for path in segments(store)}
    whole = [row for row in before if is_whole(original, row, changed)]
    assert 0 < len(whole) < len(before)
    assert read_rows(store, drop_malformed=True) == whole
    rows = read_rows(store, columns=COLUMNS, **PERMISSIVE)
    good = [row for row in rows if row["_corrupt_record"] is None]
    assert good == [{name: row.get(name) for name in COLUMNS} for row in whole]
    for row in rows:
        if row["_corrupt_record"] is not None:
            assert row["_corrupt_record"].startswith("physical offset ")
            assert all(value is None for name, value in row.items() if name != "_corrupt_record")
    if damage not in (cut, cut_last, empty, missing, zeroed_last):  # there is no place in a file to name
        assert len(good) < len(rows)


def is_whole(original: StoreBuilder, row: dict[str, object], files: dict[int, bytes]) -> bool:
    """Whether every byte of the record is as it was written."""
    at = int(str(row["physicalOffset"]))
    start = at // SEGMENT_BYTES * SEGMENT_BYTES
    written = (original.root / "commitlog" / f"{start:020d}").read_bytes()
    size = struct.unpack_from(">i", written, at - start)[0]
    part = slice(at - start, at - start + size)
    return files.get(start, b"")[part] == written[part]


def test_a_flip_in_a_body_is_found_by_its_crc(original: StoreBuilder, store: Path) -> None:
    flipped_body(store)
    with pytest.raises(CorruptRecord, match="CRC"):
        read_rows(store)
    assert len(read_rows(store, columns=["topic"])) == len(original.rows)  # no body is returned
    with pytest.raises(CorruptRecord, match="CRC"):
        read_rows(store, columns=["topic"], check_crc=True)
    assert len(read_rows(store, check_crc=False)) == len(original.rows)
    assert len(read_rows(store, drop_malformed=True)) == len(original.rows) - 1
    rows = read_rows(store, columns=COLUMNS, **PERMISSIVE)
    assert [row["_corrupt_record"] is None for row in rows].count(False) == 1


@pytest.mark.parametrize("seed", seeds(2))
def test_random_flips(original: StoreBuilder, tmp_path: Path, seed: int) -> None:
    """A flip takes no other record with it, and no body is wrong; of what no CRC covers just the field."""
    rnd = random.Random(seed)
    before = {row.physical_offset: default_columns(row) for row in original.rows}
    store = Path(shutil.copytree(original.root, tmp_path / "flipped"))
    for _ in range(15):
        path = rnd.choice(segments(store))
        at, content = rnd.randrange(SEGMENT_BYTES), path.read_bytes()
        overwrite(path, at, bytes([content[at] ^ 1 << rnd.randrange(8)]))
        victims = [place for place, row in before.items() if covers(original, row, int(path.name) + at)]
        lenient = read_rows(store, columns=COLUMNS, **PERMISSIVE)
        good = {row["physicalOffset"]: row for row in lenient if row["_corrupt_record"] is None}
        assert before.keys() - good.keys() <= set(victims)
        assert all(row["body"] == before[place]["body"] for place, row in good.items())
        try:
            found = {row["physicalOffset"]: row for row in read_rows(store)}
        except CorruptRecord:
            pass
        else:
            # A flip among the flags can make a record one that was rolled back.
            assert all(36 <= int(path.name) + at - place < 40 for place in before.keys() - found.keys())
            assert all(row == before[place] for place, row in found.items() if place not in victims)
            assert found.keys() == good.keys()
        overwrite(path, at, content[at : at + 1])


def test_a_flip_in_a_topic_is_found_by_the_queue_that_has_the_record(original: StoreBuilder, store: Path) -> None:
    flights = {row.physical_offset: row for row in original.rows[:240] if row.topic == "Flights"}
    place = sorted(flights)[len(flights) // 2]
    path = max(path for path in segments(store) if int(path.name) <= place)
    at = path.read_bytes().index(b"Flights", place - int(path.name))
    overwrite(path, at + 6, b"z")
    with pytest.raises(CorruptRecord, match=f"offset {place}.*its topic is 'Flightz'.*that of Flights does"):
        read_rows(store, topics=frozenset({"Flights"}))
    rows = read_rows(store, columns=COLUMNS, topics=frozenset({"Flights"}), **PERMISSIVE)
    found = [row for row in rows if row["_corrupt_record"] is None]
    assert [row["physicalOffset"] for row in found] == [
        row.physical_offset for row in original.rows if row.topic == "Flights" and row.physical_offset != place
    ]
    (damaged,) = [row["_corrupt_record"] for row in rows if row["_corrupt_record"] is not None]
    assert "its topic is 'Flightz'" in damaged


def covers(original: StoreBuilder, row: dict[str, object], at: int) -> bool:
    begin = int(str(row["physicalOffset"]))
    start = begin // SEGMENT_BYTES * SEGMENT_BYTES
    with (original.root / "commitlog" / f"{start:020d}").open("rb") as file:
        file.seek(begin - start)
        return begin <= at < begin + int.from_bytes(file.read(4), "big")


# -- ConsumeQueues that do not fit ------------------------------------------------------------------------------


def queue_files(store: Path) -> list[Path]:
    return sorted((store / "consumequeue" / "Flights").glob("*/*"))


def queue_zeroed(store: Path) -> None:
    overwrite(queue_files(store)[0], 0, bytes(100))


def queue_hole(store: Path) -> None:
    overwrite(queue_files(store)[0], 100, bytes(60))


def queue_noise(store: Path) -> None:
    overwrite(queue_files(store)[0], 60, random.Random(3).randbytes(200))


def queue_elsewhere(store: Path) -> None:
    """Points at the records of another queue."""
    shutil.copy(queue_files(store)[0], min((store / "consumequeue" / "Flights" / "1").iterdir()))


def queue_cut(store: Path) -> None:
    os.truncate(queue_files(store)[0], 130)


def queue_missing(store: Path) -> None:
    shutil.rmtree(store / "consumequeue" / "Flights")


def queue_without_files(store: Path) -> None:
    for path in queue_files(store):
        path.unlink()


def queues_missing(store: Path) -> None:
    shutil.rmtree(store / "consumequeue")


def queue_flipped(store: Path) -> None:
    content = queue_files(store)[0].read_bytes()
    overwrite(queue_files(store)[0], 27, bytes([content[27] ^ 8]))


@pytest.mark.parametrize(
    "damage",
    [
        queue_zeroed,
        queue_hole,
        queue_noise,
        queue_elsewhere,
        queue_cut,
        queue_without_files,
        queue_missing,
        queues_missing,
        queue_flipped,
    ],
)
def test_a_damaged_consume_queue_costs_no_row(
    original: StoreBuilder, store: Path, damage: Callable[[Path], None]
) -> None:
    damage(store)
    expected = [default_columns(row) for row in original.rows if row.topic == "Flights"]
    try:
        rows = read_rows(store, topics=frozenset({"Flights"}))
    except CorruptRecord as error:
        assert "sprocket store check" in str(error)  # it speaks of a log that is not there
        rows = read_rows(store, topics=frozenset({"Flights"}), drop_malformed=True)
    assert rows == expected


@pytest.mark.parametrize("seed", seeds(2))
def test_random_flips_in_consume_queues(original: StoreBuilder, tmp_path: Path, seed: int) -> None:
    rnd = random.Random(seed)
    store = Path(shutil.copytree(original.root, tmp_path / "flipped"))
    expected = [default_columns(row) for row in original.rows if row.topic == "Flights"]
    for _ in range(15):
        path = rnd.choice(queue_files(store))
        content = path.read_bytes()
        # Offset and size of an entry; the tags' code is not used.
        at = rnd.randrange(len(content) // 20) * 20 + rnd.randrange(12)
        overwrite(path, at, bytes([content[at] ^ 1 << rnd.randrange(8)]))
        try:
            rows = read_rows(store, topics=frozenset({"Flights"}))
        except CorruptRecord:
            rows = read_rows(store, topics=frozenset({"Flights"}), drop_malformed=True)
        assert rows == expected
        overwrite(path, at, content[at : at + 1])


def test_a_consume_queue_that_is_ahead_of_the_log(tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path)
    builder.extend(mixed_rows(50))
    last = builder.rows[-1]
    builder.patch(last.physical_offset, bytes(60))
    builder.write()
    with pytest.raises(CorruptRecord, match="Start the broker, which recovers it"):
        read_rows(tmp_path)
    assert len(read_rows(tmp_path, drop_malformed=True)) == 49


# -- places, rights, times ----------------------------------------------------------------------------------------


def test_foreign_files_beside_the_segments(original: StoreBuilder, store: Path) -> None:
    (store / "commitlog" / "notes.txt").write_text("mine")
    (store / "commitlog" / "0000000000001638x").write_bytes(b"x")
    (store / "commitlog" / ".00000000000000016384.swp").write_bytes(b"x")
    (store / "consumequeue" / "Flights" / "lost+found").mkdir()
    assert len(read_rows(store)) == len(original.rows)
    assert read_rows(store, topics=frozenset({"Flights"}))


def test_a_directory_that_is_named_as_a_segment(store: Path) -> None:
    (store / "commitlog" / f"{SEGMENT_BYTES * 99:020d}").mkdir()
    with pytest.raises(ConfigError, match="Is a directory"):
        read_rows(store)


@pytest.mark.skipif(os.getuid() == 0, reason="root may read everything")
def test_without_the_right_to_read(store: Path) -> None:
    segments(store)[1].chmod(0)
    with pytest.raises(ConfigError, match="needs the right to read"):
        read_rows(store)


def test_a_file_that_may_not_be_opened(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    really_open = os.open

    def refuse(path: Path | str, *arguments: Any, **named: Any) -> int:
        if Path(path).parent.name == "commitlog":
            raise PermissionError(13, "Permission denied", str(path))
        return really_open(path, *arguments, **named)

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(ConfigError, match="needs the right to read"):
        read_rows(store)


def test_times_without_data_and_contradictions_are_empty(original: StoreBuilder, store: Path) -> None:
    assert read_rows(store, times=TimeRange(0, 1)) == []
    assert read_rows(store, times=TimeRange(4_000_000_000_000, 4_000_000_000_001)) == []
    assert read_rows(store, times=TimeRange(1_700_000_000_500, 1_700_000_000_400)) == []
    assert read_rows(store, topics=frozenset({"Nowhere"})) == []
    assert read_rows(store, topic_pattern="no.*thing") == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mode": "STRICT"}, "not one of FAILFAST, DROPMALFORMED, PERMISSIVE"),
        ({"isolationLevel": "committed"}, "read_committed, read_uncommitted"),
        ({"checkCRC": "yes"}, "not one of true, false"),
        ({"leaseTime": "1d"}, "milliseconds from 0 to 86400000"),
        ({"leaseTime": "86400001"}, "milliseconds from 0 to 86400000"),
        ({"columnNameOfCorruptRecord": "broken"}, "is for mode=PERMISSIVE"),
        ({"columnNameOfCorruptRecord": "Body", "mode": "PERMISSIVE"}, "choose a name of its own"),
        ({"failOnDatLoss": "true"}, "did you mean 'failOnDataLoss'"),
        ({"columns": "topic,realTopc"}, "did you mean 'realTopic'"),
    ],
)
def test_options_that_are_refused(options: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        read_options({"path": "/nowhere", **options})


def test_permissive_needs_the_column_and_brings_it() -> None:
    options = read_options({"path": "/nowhere", "mode": "permissive", "columnNameOfCorruptRecord": "broken"})
    assert options.columns[-1] == "broken"
    schema = spark_schema(options.columns)
    assert schema["broken"].dataType.simpleString() == "string"
    assert checked_columns(schema, "broken") == list(options.columns)
    with pytest.raises(ConfigError, match="needs the column 'broken'"):
        checked_columns(spark_schema(["topic"]), "broken")


# -- several stores -------------------------------------------------------------------------------------------------


def test_a_master_and_its_slave_are_not_read_together(original: StoreBuilder, tmp_path: Path) -> None:
    master = Path(shutil.copytree(original.root, tmp_path / "master"))
    slave = Path(shutil.copytree(original.root, tmp_path / "slave"))
    for path in segments(slave)[-2:]:
        path.unlink()  # it is behind
    segments(master)[0].unlink()  # and the master has expired something
    with pytest.raises(ConfigError, match="hold the same log, as a master and its slave"):
        find_stores([str(tmp_path / "*")])
    other = StoreBuilder(tmp_path / "other")
    other.append(Row(store_port=1))
    other.write()
    assert len(find_stores([str(master), str(other.root)])) == 2


def test_two_stores_of_one_name(tmp_path: Path) -> None:
    for number, place in enumerate(("a/broker/store", "b/broker/store", "c")):
        builder = StoreBuilder(tmp_path / place)
        builder.append(Row(store_port=number))
        builder.write()
    with pytest.raises(ConfigError, match="both get the broker name 'x'; write path as name=directory"):
        find_stores([f"x={tmp_path}/a/broker/store", f"x={tmp_path}/b/broker/store"])
    names = [store.broker_name for store in find_stores([str(tmp_path / "?" / "broker" / "store"), f"c={tmp_path}/c"])]
    assert len(set(names)) == 3
    assert all(isinstance(error, SprocketError) for error in [ConfigError("x"), CorruptRecord(0, "x")])


@pytest.mark.parametrize("index", [1, -1], ids=["sealed", "being written"])
def test_a_segment_that_becomes_shorter_after_it_was_planned(store: Path, index: int) -> None:
    """A mapping of what is not there any more would kill the process."""
    options = SourceOptions(paths=(str(store),))
    spans = [span for task in plan(options, RowFilter()).tasks for span in task]
    shortened = segments(store)[index]
    os.truncate(shortened, 3000)
    [span] = [span for span in spans if span.segment.path == shortened]
    with pytest.raises(CorruptRecord, match=r"record begins here|file ends here"):
        list(read_span(span, ["body"], RowFilter(), options.decoding()))
    lenient = DecodeOptions(drop_malformed=True)
    assert sum(count for _, count in read_span(span, ["body"], RowFilter(), lenient)) > 0
