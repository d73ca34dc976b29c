"""The lease of a table on a store: taken, given up, and a warning where it cannot be had."""

from pathlib import Path

import pytest

from spark.tables.store_lease import StoreLease
from store.retention.leases import Leases
from tests.clock import ManualClock


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A store that a broker uses."""
    for name in ("flushed", "abort"):
        (tmp_path / name).touch()
    return tmp_path


def test_what_the_table_has_not_got_is_held_until_it_is_given_up(root: Path) -> None:
    lease = StoreLease(root, Path("/lake/orders"), ManualClock())
    lease.hold(4096)
    assert [held.from_offset for held in Leases(root).list().values()] == [4096]
    lease.release()
    assert Leases(root).list() == {}


def test_a_directory_that_cannot_be_read_is_a_warning(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    lease = StoreLease(root, Path("/lake/orders"), ManualClock())
    lease.hold(0)
    held = (root / "leases").rename(root / "held")
    (root / "leases").touch()  # a file in its place
    lease.release()
    StoreLease(root, Path("/lake/others"), ManualClock()).hold(0)
    assert [record.message.partition(" ")[0] for record in caplog.records] == ["event=lease_left", "event=no_lease"]
    assert held.is_dir()
