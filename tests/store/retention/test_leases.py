"""Leases: files that another process writes and the broker honours."""

import json
import logging
import os
from pathlib import Path

import pytest

from sprocket.common.errors import DiskFailed
from store.disk.disk import RealDisk
from store.retention import leases as store_leases
from store.retention.leases import Lease, LeaseRefused, Leases, held_from
from tests.clock import ManualClock

HOUR_MS = 3_600_000


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def leases(tmp_path: Path, clock: ManualClock) -> Leases:
    return Leases(tmp_path, clock=clock)


def test_a_lease_holds_until_its_deadline(leases: Leases, clock: ManualClock) -> None:
    lease = leases.acquire("spark", "job-1", 4096, HOUR_MS)
    assert lease == Lease("job-1", 4096, clock.wall_ms() + HOUR_MS)
    assert leases.list() == {"spark": lease}
    clock.advance(3599)
    assert leases.list() == {"spark": lease}
    clock.advance(1)
    assert leases.list() == {}


def test_the_file_says_what_its_reader_needs(leases: Leases, tmp_path: Path) -> None:
    lease = leases.acquire("spark", "job-1", 4096, HOUR_MS)
    content = json.loads((tmp_path / "leases" / "spark.json").read_text())
    assert content == {"owner": "job-1", "from_offset": 4096, "deadline_ms": lease.deadline_ms}


def test_renewing_moves_deadline_and_offset(leases: Leases, clock: ManualClock) -> None:
    leases.acquire("spark", "job-1", 4096, HOUR_MS)
    clock.advance(1800)
    assert leases.renew("spark", "job-1", HOUR_MS) == Lease("job-1", 4096, clock.wall_ms() + HOUR_MS)
    assert leases.renew("spark", "job-1", HOUR_MS, 8192).from_offset == 8192
    clock.advance(3600)
    with pytest.raises(LeaseRefused, match="ended"):
        leases.renew("spark", "job-1", HOUR_MS)


def test_another_owner_neither_takes_nor_renews_nor_releases(leases: Leases, clock: ManualClock) -> None:
    held = leases.acquire("spark", "job-1", 4096, HOUR_MS)
    with pytest.raises(LeaseRefused, match="held by 'job-1'"):
        leases.acquire("spark", "job-2", 0, HOUR_MS)
    with pytest.raises(LeaseRefused):
        leases.renew("spark", "job-2", HOUR_MS)
    assert not leases.release("spark", "job-2")
    assert leases.list() == {"spark": held}
    clock.advance(3600)
    assert leases.acquire("spark", "job-2", 0, HOUR_MS).owner == "job-2"


def test_releasing_leaves_nothing(leases: Leases, tmp_path: Path) -> None:
    leases.acquire("spark", "job-1", 4096, HOUR_MS)
    leases.acquire("spark", "job-1", 8192, HOUR_MS)
    assert leases.release("spark", "job-1")
    assert list((tmp_path / "leases").iterdir()) == []
    assert not leases.release("spark", "job-1")


@pytest.mark.parametrize("name", ["", ".", "..", ".hidden", "a/b", "../x", "x" * 65, "a\0b", "ü"])
def test_names_that_could_lead_elsewhere_are_refused(leases: Leases, name: str, tmp_path: Path) -> None:
    with pytest.raises(LeaseRefused, match="name"):
        leases.acquire(name, "job", 0, HOUR_MS)
    assert not list(tmp_path.rglob("*.json"))


@pytest.mark.parametrize("duration_ms", [0, -1, 24 * HOUR_MS + 1])
def test_the_deadline_is_bounded(leases: Leases, duration_ms: int) -> None:
    with pytest.raises(LeaseRefused, match="allowed"):
        leases.acquire("spark", "job", 0, duration_ms)
    with pytest.raises(LeaseRefused, match="out of range"):
        leases.acquire("spark", "job", -1, HOUR_MS)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "no lease"),
        (b"\xff\xfe", "no lease"),
        (b"[]", "no lease"),
        (b'{"owner": "a", "from_offset": "x", "deadline_ms": 1}', "no lease"),
        (b'{"owner": "a", "from_offset": 0}', "no lease"),
        (b'{"owner": "a", "from_offset": 0, "deadline_ms": 1}', "ended"),
        (b'{"owner": "a", "from_offset": 0, "deadline_ms": 9000000000000000000}', "longest"),
        (b'{"owner": "a", "from_offset": -1, "deadline_ms": 1700000001000}', "out of range"),
        (b'{"owner": "a", "from_offset": 99999999999999999999999, "deadline_ms": 1700000001000}', "out of range"),
    ],
)
def test_what_is_no_lease_is_ignored_with_one_warning(
    leases: Leases, tmp_path: Path, caplog: pytest.LogCaptureFixture, content: bytes, reason: str
) -> None:
    (tmp_path / "leases").mkdir()
    (tmp_path / "leases" / "bad.json").write_bytes(content)
    good = leases.acquire("good", "job", 7, HOUR_MS)
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            assert leases.list() == {"good": good}
    assert [reason in record.getMessage() for record in caplog.records] == [True]


def test_what_is_half_written_is_not_seen(leases: Leases, tmp_path: Path) -> None:
    (tmp_path / "leases").mkdir()
    (tmp_path / "leases" / "spark.json.tmp").write_bytes(b'{"owner"')
    assert leases.list() == {}


def test_a_directory_gone_wild_is_read_in_part(leases: Leases, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "leases").mkdir()
    monkeypatch.setattr(store_leases, "MAX_LEASES", 20)
    for number in range(25):
        content = b'{"owner": "a", "from_offset": 5, "deadline_ms": 1700000001000}'
        (tmp_path / "leases" / f"{number:05}.json").write_bytes(content)
    assert len(leases.list()) == 20


def test_files_of_leases_that_ended_long_ago_go(leases: Leases, clock: ManualClock, tmp_path: Path) -> None:
    leases.acquire("old", "job", 0, HOUR_MS)
    clock.advance(2 * 3600 + 1)
    leases.acquire("new", "job", 0, HOUR_MS)
    (tmp_path / "leases" / "strange.json").write_bytes(b"?")
    leases.sweep()
    assert sorted(path.name for path in (tmp_path / "leases").iterdir()) == ["new.json", "strange.json"]


def test_the_lowest_offset_counts() -> None:
    assert held_from([]) is None
    assert held_from([Lease("a", 9, 0), Lease("b", 4, 0)]) == 4


def test_what_is_no_file_or_cannot_be_read_does_not_take_the_others_with_it(leases: Leases, tmp_path: Path) -> None:
    lease = leases.acquire("spark", "job-1", 4096, HOUR_MS)
    folder = tmp_path / "leases"
    (folder / "a-directory.json").mkdir()
    # Nobody writes to it, so a read would not return.
    os.mkfifo(folder / "a-pipe.json")
    (folder / "a-loop.json").symlink_to("a-loop.json")
    with (folder / "huge.json").open("wb") as file:
        file.truncate(1 << 40)
    assert leases.list() == {"spark": lease}
    leases.sweep()
    assert leases.list() == {"spark": lease}


def test_one_that_cannot_be_read_does_not_take_the_others_with_it(
    leases: Leases, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = leases.acquire("spark", "job-1", 4096, HOUR_MS)
    leases.acquire("unreadable", "job-2", 4096, HOUR_MS)
    read = RealDisk.read

    def refuse(self: RealDisk, path: Path) -> bytes | None:
        if path.name == "unreadable.json":
            raise DiskFailed(f"read {path}: Permission denied")
        return read(self, path)

    monkeypatch.setattr(RealDisk, "read", refuse)
    assert leases.list() == {"spark": lease}
