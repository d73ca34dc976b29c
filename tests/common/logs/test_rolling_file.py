"""A log file rolls by size and by time, keeps a total limit, and never fails its server."""

import io
import logging
import os
import resource
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from sprocket.common.logs.line_format import timed_formatter
from sprocket.common.logs.rolling_file import RollingFileHandler, RollingLimits
from tests.clock import ManualClock

NOON_MS = int(datetime(2026, 11, 23, 12, tzinfo=UTC).timestamp() * 1000)
HOUR_MS = 3_600_000

Make = Callable[[RollingLimits], RollingFileHandler]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(NOON_MS)


@pytest.fixture
def stderr() -> io.StringIO:
    return io.StringIO()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "logs" / "broker.log"


@pytest.fixture
def make(path: Path, clock: ManualClock, stderr: io.StringIO) -> Iterator[Make]:
    made = []

    def handler(limits: RollingLimits) -> RollingFileHandler:
        fallback = logging.StreamHandler(stderr)
        fallback.setFormatter(timed_formatter())
        made.append(RollingFileHandler(path, limits, clock, fallback))
        made[-1].open()
        return made[-1]

    yield handler
    for one in made:
        one.close()


def log(handler: logging.Handler, text: str) -> None:
    handler.handle(logging.LogRecord("broker.x", logging.INFO, "f", 1, "event=%s", (text,), None))


def files(path: Path) -> dict[str, str]:
    return {one.name: one.read_text() for one in sorted(path.parent.iterdir())}


def test_a_file_rolls_before_it_gets_larger_than_its_limit(make: Make, path: Path) -> None:
    handler = make(RollingLimits(100, 10_000, 0))
    for number in range(12):
        log(handler, f"{number:024d}")
    found = files(path)
    assert list(found)[:2] == ["broker.log", "broker.log.20261123T120000000Z"]
    # 31 bytes each: three fit.
    assert {text.count("\n") for text in found.values()} == {3}
    rolled = [text for name, text in found.items() if name != "broker.log"]
    assert "".join([*rolled, found["broker.log"]]) == "".join(f"event={number:024d}\n" for number in range(12))


def test_a_file_rolls_when_its_period_ends(make: Make, path: Path, clock: ManualClock) -> None:
    handler = make(RollingLimits(10_000, 100_000, 24))
    log(handler, "noon")
    clock.step_wall(12 * HOUR_MS - 1)
    log(handler, "evening")
    assert len(files(path)) == 1
    clock.step_wall(1)
    log(handler, "midnight")
    assert files(path) == {
        "broker.log": "event=midnight\n",
        "broker.log.20261124T000000000Z": "event=noon\nevent=evening\n",
    }


def test_a_file_of_an_earlier_process_rolls_if_its_period_has_ended(make: Make, path: Path, clock: ManualClock) -> None:
    path.parent.mkdir()
    path.write_text("event=yesterday\n")
    os.utime(path, (NOON_MS / 1000 - 86_400, NOON_MS / 1000 - 86_400))
    log(make(RollingLimits(10_000, 100_000, 24)), "today")
    assert list(files(path).values()) == ["event=today\n", "event=yesterday\n"]


def test_the_oldest_rolled_files_go_and_no_others(make: Make, path: Path, clock: ManualClock) -> None:
    path.parent.mkdir()
    others = (
        "broker.log.1",
        "broker.log.20261123T12000000Z",
        "broker2.log.20261123T110000000Z",
        "broker.log.99991231T235959999Z",
    )
    for name in others:
        path.with_name(name).write_text("x" * 1_000)
    path.with_name("broker.log.20261122T000000000Z").write_text("x" * 1_000)
    handler = make(RollingLimits(100, 350, 0))
    assert not path.with_name("broker.log.20261122T000000000Z").exists()
    for number in range(40):
        clock.advance(1)
        log(handler, f"{number:024d}")
        own = {name: text for name, text in files(path).items() if name not in others}
        assert sum(len(text) for text in own.values()) <= 350
    assert set(others) <= set(files(path))
    assert len(own) == 3
    assert f"{39:024d}" in own["broker.log"]


def test_names_keep_their_order_if_the_clock_is_set_back(make: Make, path: Path, clock: ManualClock) -> None:
    path.parent.mkdir()
    path.with_name("broker.log.20261123T130000000Z").write_text("event=before\n")
    handler = make(RollingLimits(31, 10_000, 0))
    for number in range(3):
        log(handler, f"{number:024d}")
    assert list(files(path))[1:] == [
        "broker.log.20261123T130000000Z",
        "broker.log.20261123T130000001Z",
        "broker.log.20261123T130000002Z",
    ]


def test_a_line_is_never_longer_than_the_file_may_be(make: Make, path: Path) -> None:
    handler = make(RollingLimits(100, 300, 0))
    log(handler, "é" * 1_000)
    assert path.stat().st_size == 100


def test_a_folder_that_cannot_be_written_costs_no_line(
    make: Make, path: Path, clock: ManualClock, stderr: io.StringIO
) -> None:
    # A file where the folder should be: it stops root, too.
    path.parent.write_text("")
    handler = make(RollingLimits(1_000, 3_000, 24))
    for number in range(3):
        log(handler, f"line{number}")
        clock.advance(60)
    told = stderr.getvalue()
    assert told.count("event=log_file_lost") == 1
    assert all(f"event=line{number}" in told for number in range(3))
    path.parent.unlink()
    log(handler, "again")
    assert path.read_text() == "event=again\n"
    assert stderr.getvalue().count("event=log_file_writable") == 1


def test_a_full_disk_costs_no_line_and_no_later_line_joins_a_torn_one(
    make: Make, path: Path, clock: ManualClock, stderr: io.StringIO
) -> None:
    handler = make(RollingLimits(10_000, 30_000, 0))
    log(handler, "first")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    # A write beyond it has room for a part, then fails, as on a full disk.
    resource.setrlimit(resource.RLIMIT_FSIZE, (20, limits[1]))
    try:
        log(handler, "second")
        log(handler, "third")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    told = stderr.getvalue()
    assert told.count("event=log_file_lost") == 1
    assert "event=second" in told and "event=third" in told
    clock.advance(31)
    log(handler, "fourth")
    assert path.read_text() == "event=first\nevent=se\nevent=fourth\n"


def test_two_servers_never_share_a_file(make: Make, path: Path, stderr: io.StringIO) -> None:
    log(make(RollingLimits(1_000, 3_000, 24)), "first")
    log(make(RollingLimits(1_000, 3_000, 24)), "second")
    assert path.read_text() == "event=first\n"
    assert "give each server a logFile of its own" in stderr.getvalue()
    assert "event=second" in stderr.getvalue()
