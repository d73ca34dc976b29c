"""Several tables that follow their logs: one that fails does not stop the others, and is tried again."""

from pathlib import Path

import pytest

from spark.files.store_directory import StoreDirectory
from spark.tables.declaration import BodyType, TableDeclaration, TableFormat
from spark.tables.follow import Follower
from spark.tables.workers import LocalWorkers
from tests.clock import ManualClock
from tests.spark.store_builder import Row, StoreBuilder
from tests.spark.tables.reading import read_table

TEXT = BodyType("text")


def declared(tmp_path: Path, topic: str) -> TableDeclaration:
    return TableDeclaration(topic, tmp_path / topic, TableFormat.PARQUET, TEXT, interval_s=10)


def bodies(tmp_path: Path, topic: str) -> list[str]:
    return [row["body"] for row in read_table(TableFormat.PARQUET, tmp_path / topic)]


def test_what_comes_is_taken_when_it_is_due(tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path / "store")
    clock = ManualClock()
    stores = [StoreDirectory(builder.root, "a")]
    with Follower([declared(tmp_path, "A"), declared(tmp_path, "B")], stores, LocalWorkers(1), clock) as follower:
        follower.look()  # there is no log yet: both wait
        builder.extend([Row(topic="A", body=b"1"), Row(topic="B", body=b"2")])
        builder.write()
        follower.look()
        assert not (tmp_path / "A" / "_rocketmq" / "manifest.json").exists() or bodies(tmp_path, "A") == []
        clock.advance(1)
        follower.look()
        assert (bodies(tmp_path, "A"), bodies(tmp_path, "B")) == (["1"], ["2"])
        builder.extend([Row(topic="A", body=b"3")])
        builder.write()
        clock.advance(9)
        follower.look()
        assert bodies(tmp_path, "A") == ["1"]
        clock.advance(1)
        follower.look()
        assert bodies(tmp_path, "A") == ["1", "3"]


def test_a_table_that_fails_is_tried_again_later_and_later(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    builder = StoreBuilder(tmp_path / "store")
    builder.extend([Row(topic="A", body=b"1"), Row(topic="B", body=b"2")])
    builder.write()
    (tmp_path / "A").mkdir()
    (tmp_path / "A" / "something").touch()
    clock = ManualClock()
    stores = [StoreDirectory(builder.root, "a")]
    with Follower([declared(tmp_path, "A"), declared(tmp_path, "B")], stores, LocalWorkers(1), clock) as follower:
        for _ in range(20):
            follower.look()
            clock.advance(1)
        assert bodies(tmp_path, "B") == ["2"]
        failed = [record.message for record in caplog.records if "event=table_failed" in record.message]
        assert len(failed) == 5 and "something in it" in failed[0]  # at 0, 1, 3, 7 and 15 s
        (tmp_path / "A" / "something").unlink()
        clock.advance(60)
        follower.look()
        assert bodies(tmp_path, "A") == ["1"]
        assert "event=table_recovered" in caplog.text


def test_it_runs_until_it_is_told_to_stop(tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path / "store")
    builder.extend([Row(topic="A", body=b"1")])
    builder.write()
    clock = ManualClock()
    pauses = []

    def pause(seconds: float) -> bool:
        pauses.append(seconds)
        clock.advance(seconds)
        return len(pauses) > 3

    with Follower([declared(tmp_path, "A")], [StoreDirectory(builder.root, "a")], LocalWorkers(1), clock) as follower:
        follower.run(pause)
    assert pauses == [0, 10, 10, 10]
    assert bodies(tmp_path, "A") == ["1"]
