"""A small file and its backup: which of them is read, and what a failed write means."""

from pathlib import Path

import pytest

from sprocket.common import failpoints
from sprocket.common.errors import DiskFailed, DiskFull, ProtocolError, StoreError
from sprocket.common.files.config_file import ConfigFile


def number(content: bytes) -> int:
    """Decode digits.  Raises ProtocolError."""
    if not content.isdigit():
        raise ProtocolError("number", "not digits")
    return int(content)


def test_missing_file_is_nothing(tmp_path: Path) -> None:
    assert ConfigFile(tmp_path / "n").load(number) is None


@pytest.mark.parametrize("torn", [b"", b"1{", b"\x00" * 40])
def test_backup_stands_in_for_a_torn_file(tmp_path: Path, torn: bytes) -> None:
    file = ConfigFile(tmp_path / "n")
    file.write(b"1")
    file.write(b"2")
    assert file.load(number) == 2
    file.path.write_bytes(torn)
    assert file.load(number) == 1


def test_file_and_backup_both_broken_is_an_error_that_names_them(tmp_path: Path) -> None:
    file = ConfigFile(tmp_path / "n")
    file.path.write_bytes(b"{")
    file.backup.write_bytes(b"[1]")
    with pytest.raises(StoreError, match=r"n\.bak: not digits; repair"):
        file.load(number)


def test_a_file_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "n").mkdir()
    with pytest.raises(StoreError, match="n: cannot be read"):
        ConfigFile(tmp_path / "n").load(number)


def test_failed_write_is_reported_and_keeps_the_old_content(tmp_path: Path) -> None:
    failures: list[DiskFailed] = []
    file = ConfigFile(tmp_path / "a" / "n", failures.append)
    (tmp_path / "a").write_bytes(b"a file where a directory is needed")
    with pytest.raises(DiskFailed, match="a/n"):
        file.write(b"1")
    assert len(failures) == 1


def test_a_full_disk_is_no_failed_disk(tmp_path: Path) -> None:
    failures: list[DiskFailed] = []
    file = ConfigFile(tmp_path / "n", failures.append)
    file.write(b"1")
    failpoints.arm("atomic_file.before_sync=error:ENOSPC")
    try:
        with pytest.raises(DiskFull):
            file.write(b"2")
    finally:
        failpoints.arm(None)
    assert (file.load(number), failures) == (1, [])


def test_the_mode_holds_for_the_backup_too(tmp_path: Path) -> None:
    file = ConfigFile(tmp_path / "n", mode=0o600)
    file.write(b"1")
    file.write(b"2")
    assert [path.stat().st_mode & 0o777 for path in (file.path, file.backup)] == [0o600, 0o600]
