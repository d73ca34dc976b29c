"""A table from a log, in each format, read back by the package of that format."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest

from spark.files.store_directory import StoreDirectory
from spark.tables.declaration import BodyType, TableDeclaration, TableFormat
from spark.tables.formats.table_place import existing_table
from spark.tables.job import TableJob, Totals
from spark.tables.log_range import DataLost
from spark.tables.place import BrokerPlace, PlaceMoved
from spark.tables.schema_change import SchemaRefused
from spark.tables.workers import LocalWorkers, TaskFailed
from sprocket.common.errors import ConfigError
from tests.spark.store_builder import Row, StoreBuilder
from tests.spark.tables.orders import SCHEMA, is_good, order, orders
from tests.spark.tables.reading import read_table

FORMATS = pytest.mark.parametrize("kind", list(TableFormat))


def declared(tmp_path: Path, kind: TableFormat, schema: str = SCHEMA, **more: Any) -> TableDeclaration:
    more.setdefault("batch_bytes", 1 << 15)
    return TableDeclaration("T", tmp_path / "table", kind, BodyType("json", schema), **more)


def store_of(builder: StoreBuilder, name: str = "broker-a") -> StoreDirectory:
    builder.write()
    return StoreDirectory(builder.root, name)


def run(declaration: TableDeclaration, *stores: StoreDirectory, compact: bool = False) -> Totals:
    with TableJob(declaration, stores, LocalWorkers(1)) as job:
        totals = job.run_to_end()
        if compact:
            job.compact(2)
        return totals


def check(kind: TableFormat, declaration: TableDeclaration, rows: list[Row]) -> None:
    """Every message of topic T is in the table or in the dead letters, once."""
    ours = [(int((row.keys or "")[1:]), row) for row in rows if row.topic == "T"]
    good = [(n, row) for n, row in ours if is_good(n)]
    found = read_table(kind, declaration.directory)
    assert [row["physicalOffset"] for row in found] == [row.physical_offset for _, row in good]
    for row, (n, message) in zip(found, good, strict=True):
        assert {"n": row["n"], "name": row["name"]} == json.loads(order(n))
        assert (row["queueId"], row["queueOffset"], row["keys"]) == (
            message.queue_id,
            message.queue_offset,
            message.keys,
        )
        assert row["storeTimestamp"].timestamp() * 1000 == pytest.approx(message.store_timestamp)
        if kind is not TableFormat.ICEBERG:
            assert "day" not in row or (str(row["day"]), row["hour"]) == (
                f"{row['storeTimestamp']:%Y-%m-%d}",
                row["storeTimestamp"].hour,
            )
    dead = read_table(kind, declaration.dead_letter_directory)
    bad = [(n, row) for n, row in ours if not is_good(n)]
    assert [(row["physicalOffset"], row["body"]) for row in dead] == [(row.physical_offset, row.body) for _, row in bad]
    for row, (n, _) in zip(dead, bad, strict=True):
        assert ("object is expected" if n % 9 == 0 else "zlib") in row["reason"]


@FORMATS
def test_a_table_goes_on_where_it_ends(kind: TableFormat, tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path / "store", segment_bytes=1 << 15)
    declaration = declared(tmp_path, kind)
    builder.extend(orders(0, 350))
    first = run(declaration, store_of(builder))
    check(kind, declaration, builder.rows)
    assert first.commits > 1 and first.rows + first.dead_rows == sum(row.topic == "T" for row in builder.rows)
    assert run(declaration, store_of(builder)) == Totals()
    builder.extend(orders(350, 400))
    run(declaration, store_of(builder), compact=True)
    check(kind, declaration, builder.rows)
    files = existing_table(declaration.directory).files()
    assert len(files) == len({each.hour for each in files})  # compacted: one file for each hour
    builder.extend(orders(400, 420))
    run(declaration, store_of(builder))
    check(kind, declaration, builder.rows)


@FORMATS
def test_columns_are_added_and_nothing_else_is_changed(kind: TableFormat, tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path / "store")
    builder.extend([Row(body=b'{"n":1,"name":"a"}')])
    run(declared(tmp_path, kind), store_of(builder))
    builder.extend([Row(body=b'{"n":2,"name":"b","more":[{"x":5}],"small":3}')])
    wider = SCHEMA + ", more array<struct<x:int>>, small tinyint"
    run(declared(tmp_path, kind, wider), store_of(builder))
    builder.extend([Row(body=b'{"n":3,"name":"c","small":4}')])
    run(declared(tmp_path, kind, "n int, small tinyint"), store_of(builder), compact=True)
    # pyiceberg 0.12 reads a list that is null as an empty one; the files have nulls.
    found = [(row["n"], row["name"], row["more"] or None, row["small"]) for row in read_table(kind, tmp_path / "table")]
    assert found == [(1, "a", None, None), (2, "b", [{"x": 5}], 3), (3, None, None, 4)]
    with pytest.raises(SchemaRefused, match=r"'n' is int32 in the table and declared as string"):
        run(declared(tmp_path, kind, "n string"), store_of(builder))
    with pytest.raises(SchemaRefused, match="'N' is 'n' in the table"):
        run(declared(tmp_path, kind, "N int"), store_of(builder))
    with pytest.raises(SchemaRefused, match=r"'more' is .* declared as"):
        run(declared(tmp_path, kind, "more array<struct<x:int,y:int>>"), store_of(builder))
    assert len(read_table(kind, tmp_path / "table")) == 3


@FORMATS
def test_of_two_writers_at_one_place_only_one_commits(kind: TableFormat, tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path / "store")
    builder.extend([Row(body=b'{"n":1,"name":"a"}')])
    run(declared(tmp_path, kind), store_of(builder))
    one, other = (existing_table(tmp_path / "table") for _ in range(2))
    place = one.place("broker-a")
    assert place is not None
    one.commit([], {"broker-a": place}, {"broker-a": BrokerPlace(place.end + 5, *[-1, -1])})
    if kind is TableFormat.PARQUET:
        return  # a lock keeps writers apart; the manifest is read once
    with pytest.raises(PlaceMoved):
        other.commit([], {"broker-a": place}, {"broker-a": BrokerPlace(place.end + 9, *[-1, -1])})


@FORMATS
def test_a_place_is_another_tables(kind: TableFormat, tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path / "store")
    builder.extend([Row(body=b'{"n":1,"name":"a"}')])
    declaration = declared(tmp_path, kind)
    run(declaration, store_of(builder))
    with pytest.raises(ConfigError, match=r"not .*of (topic )?Other"):
        run(replace(declaration, topic="Other"), store_of(builder))
    others = [each for each in TableFormat if each is not kind]
    with pytest.raises(ConfigError, match=f"is a table of format {kind}"):
        run(replace(declaration, format=others[0]), store_of(builder))
    with (
        TableJob(declaration, [store_of(builder)], LocalWorkers(1)),
        pytest.raises(ConfigError, match="another process"),
    ):
        run(declaration, store_of(builder))


def test_a_directory_with_other_files_is_no_place_for_a_table(tmp_path: Path) -> None:
    (tmp_path / "table").mkdir()
    (tmp_path / "table" / "letters.txt").write_text("dear")
    builder = StoreBuilder(tmp_path / "store")
    builder.extend([Row()])
    with pytest.raises(ConfigError, match=r"letters\.txt in it"):
        run(declared(tmp_path, TableFormat.DELTA), store_of(builder))


@FORMATS
def test_a_table_whose_making_was_killed_is_made(kind: TableFormat, tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path / "store")
    builder.extend([Row(body=b'{"n":1,"name":"a"}')])
    declaration = declared(tmp_path, kind)
    left = {
        TableFormat.PARQUET: ["_rocketmq/manifest.json.tmp"],
        TableFormat.DELTA: ["_delta_log/_commit_left.json.tmp"],
        TableFormat.ICEBERG: ["catalog.db", "catalog.db-journal", "metadata/00000-left.metadata.json"],
    }[kind]
    for directory in (declaration.directory, declaration.dead_letter_directory):
        for name in left:
            (directory / name).parent.mkdir(parents=True, exist_ok=True)
            (directory / name).touch()
    run(declaration, store_of(builder))
    assert [row["n"] for row in read_table(kind, declaration.directory)] == [1]


def test_two_brokers_in_one_table(tmp_path: Path) -> None:
    declaration = declared(tmp_path, TableFormat.DELTA)
    stores = []
    for name in ("a", "b"):
        builder = StoreBuilder(tmp_path / name, segment_bytes=1 << 15)
        builder.extend(orders(0, 150))
        stores.append(store_of(builder, name))
    run(declaration, *stores)
    rows = read_table(TableFormat.DELTA, declaration.directory)
    assert [row["n"] for row in rows] == [n for n in range(150) if n % 3 and is_good(n)] * 2
    assert run(declaration, *stores) == Totals()


class Crash(BaseException):
    """Stands for a kill: nothing catches it."""


@FORMATS
@pytest.mark.parametrize("point", ["before the dead letters", "between the two", "after both", "in compaction"])
def test_what_a_kill_leaves_is_made_good(
    kind: TableFormat, point: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    builder = StoreBuilder(tmp_path / "store", segment_bytes=1 << 15)
    builder.extend(orders(0, 120))
    declaration = declared(tmp_path, kind)
    run(declaration, store_of(builder))
    builder.extend(orders(120, 200))
    with monkeypatch.context() as patched:
        table = type(existing_table(declaration.directory))
        commits = []
        original = table.commit

        def commit(self: Any, *arguments: Any) -> None:
            commits.append(self)
            if len(commits) == 1 and point == "before the dead letters":
                raise Crash
            original(self, *arguments)
            if (len(commits), point) in ((1, "between the two"), (2, "after both")):
                raise Crash

        patched.setattr(table, "commit", commit)
        if point == "in compaction":
            patched.setattr(f"spark.tables.formats.{kind}_table.merges", crash_late(), raising=True)
        with pytest.raises(Crash):
            run(declaration, store_of(builder), compact=True)
    run(declaration, store_of(builder), compact=True)
    check(kind, declaration, builder.rows)
    named = {each.name for each in existing_table(declaration.directory).files()}
    left = {path.name for path in declaration.directory.rglob("part-*.parquet")} - named
    if kind is TableFormat.PARQUET:
        assert not left
        assert ds.dataset(declaration.directory, partitioning="hive").count_rows() == len(
            read_table(kind, declaration.directory)
        )


@FORMATS
def test_a_declaration_that_changes_after_a_kill_loses_nothing(
    kind: TableFormat, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dead letters of the first try are there; a message that only the new declaration cannot read joins them."""
    builder = StoreBuilder(tmp_path / "store")
    builder.extend([Row(body=b'{"n":1,"more":5}'), Row(body=b"junk"), Row(body=b'{"n":2,"more":"x"}')])
    with monkeypatch.context() as patched:
        patched.setattr(TableJob, "_commit", crash_late())
        with pytest.raises(Crash):
            run(declared(tmp_path, kind, "n int"), store_of(builder))
    wider = declared(tmp_path, kind, "n int, more int")
    run(wider, store_of(builder))
    assert [(row["n"], row["more"]) for row in read_table(kind, wider.directory)] == [(1, 5)]
    assert [row["body"] for row in read_table(kind, wider.dead_letter_directory)] == [b"junk", b'{"n":2,"more":"x"}']


def crash_late() -> Callable[..., Any]:
    def merges(*_: Any) -> Any:
        raise Crash

    return merges


def test_files_of_a_try_that_was_killed_are_removed(tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path / "store")
    builder.extend(orders(0, 60))
    declaration = declared(tmp_path, TableFormat.DELTA)
    with TableJob(declaration, [store_of(builder)], LocalWorkers(1)) as job:
        job.workers.run(job._tasks(job._ranges()))  # and no commit: as a kill leaves it
        left = list(declaration.directory.rglob("part-*.parquet"))
        assert left
    run(declaration, store_of(builder))
    assert not any(path.exists() for path in left)
    check(TableFormat.DELTA, declaration, builder.rows)


def test_expired_segments_are_an_error_or_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    builder = StoreBuilder(tmp_path / "store", segment_bytes=1 << 15)
    builder.extend(orders(0, 60))
    declaration = declared(tmp_path, TableFormat.PARQUET)
    run(declaration, store_of(builder))
    builder.extend(orders(60, 500))
    store = store_of(builder)
    segments = sorted((builder.root / "commitlog").iterdir())
    for expired in segments[:3]:
        expired.unlink()
    with pytest.raises(DataLost, match=rf"physical offsets \[\d+, {3 << 15}\) have expired.*failOnDataLoss=false"):
        run(declaration, store)
    run(replace(declaration, fail_on_data_loss=False), store)
    assert "event=data_lost" in caplog.text
    found = {row["physicalOffset"] for row in read_table(TableFormat.PARQUET, declaration.directory)}
    expected = {
        row.physical_offset for row in builder.rows
        if row.topic == "T" and is_good(int((row.keys or "")[1:]))
        and (row.physical_offset >= 3 << 15 or row.physical_offset < builder.rows[60].physical_offset)
    }  # fmt: skip
    assert found == expected


def test_another_log_under_the_same_name_is_noticed(tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path / "store")
    builder.extend(orders(0, 60))
    declaration = declared(tmp_path, TableFormat.PARQUET)
    run(declaration, store_of(builder))
    other = StoreBuilder(tmp_path / "other")
    other.extend(replace(row, store_timestamp=row.store_timestamp + 1) for row in orders(0, 90))
    with pytest.raises(DataLost, match="no longer the message"):
        run(declaration, store_of(other))


def test_damage_fails_the_batch_and_leaves_the_table_as_it_was(tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path / "store", segment_bytes=1 << 15)
    builder.extend(orders(0, 300))
    builder.patch(builder.rows[40].physical_offset + 4, b"\0\0\0\0")
    declaration = declared(tmp_path, TableFormat.PARQUET)
    with pytest.raises(TaskFailed, match=r"CorruptRecord: physical offset .*; --drop-malformed, or"):
        run(declaration, store_of(builder))
    assert read_table(TableFormat.PARQUET, declaration.directory) == []
    assert not list(declaration.directory.rglob("*.parquet"))
    totals = run(replace(declaration, drop_malformed=True), store_of(builder))
    assert totals.rows > 100
