"""What an update request changes stands in the operator's file afterwards, and nothing else of it changes."""

import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sprocket.common import failpoints
from sprocket.common.config.configuration_file import ConfigurationFile, ConfigurationNotKept

CONTENT = b"# mine: \xe9\nbrokerName = a\n\n! traceOn=true\ntraceOn: \\\n  true\nunheardOf=1\ntraceOn=false"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "broker.conf"
    path.write_bytes(CONTENT)
    path.chmod(0o640)
    return path


@pytest.fixture
def full_disk() -> Iterator[None]:
    failpoints.arm("atomic_file.before_sync=error:ENOSPC")
    yield
    failpoints.arm(None)


def test_only_the_keys_that_were_asked_for_change(file: Path) -> None:
    ConfigurationFile(file).keep({"traceOn": "true", "regionId": "Süd =1"})
    assert file.read_bytes() == CONTENT[: -len(b"traceOn=false")] + b"traceOn=true\nregionId=S\\u00FCd =1\n"
    assert file.with_name("broker.conf.bak").read_bytes() == CONTENT
    for path in (file, file.with_name("broker.conf.bak")):
        assert path.stat().st_mode & 0o777 == 0o640
    assert sorted(path.name for path in file.parent.iterdir()) == ["broker.conf", "broker.conf.bak"]


def test_a_file_that_says_so_already_is_not_written(file: Path) -> None:
    file.chmod(0o444)
    before = file.stat()
    ConfigurationFile(file).keep({"traceOn": "false", "brokerName": "a"})
    assert (file.stat().st_ino, file.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_a_link_goes_on_pointing_to_the_file(file: Path, tmp_path: Path) -> None:
    link = tmp_path / "conf" / "linked.conf"
    link.parent.mkdir()
    link.symlink_to("../broker.conf")
    ConfigurationFile(link).keep({"brokerName": "b"})
    assert link.is_symlink()
    assert b"brokerName=b\n" in file.read_bytes()


def unwritable(file: Path) -> str:
    file.chmod(0o440)
    return "read-only"


def gone(file: Path) -> str:
    file.unlink()
    return os.strerror(errno.ENOENT)


def malformed(file: Path) -> str:
    file.write_bytes(CONTENT + b"\nx=\\u12\n")
    return "malformed"


@pytest.mark.parametrize("make", [unwritable, gone, malformed])
def test_what_cannot_be_kept_changes_nothing(file: Path, make: Callable[[Path], str]) -> None:
    reason = make(file)
    before = file.read_bytes() if file.exists() else None
    with pytest.raises(ConfigurationNotKept, match="nothing was changed") as refused:
        ConfigurationFile(file).keep({"traceOn": "true"})
    assert reason in str(refused.value)
    assert str(file) in str(refused.value)
    assert (file.read_bytes() if file.exists() else None) == before
    assert [path.name for path in file.parent.iterdir() if path != file] == []


def test_a_full_disk_leaves_the_file_and_nothing_beside_it(file: Path, full_disk: None) -> None:
    with pytest.raises(ConfigurationNotKept, match=os.strerror(errno.ENOSPC)):
        ConfigurationFile(file).keep({"traceOn": "true"})
    assert file.read_bytes() == CONTENT
    assert [path.name for path in file.parent.iterdir()] == ["broker.conf"]


def test_a_folder_that_cannot_be_synced_leaves_the_previous_content(file: Path) -> None:
    failpoints.arm("atomic_file.after_rename=error:EIO")
    try:
        with pytest.raises(ConfigurationNotKept, match="nothing was changed"):
            ConfigurationFile(file).keep({"brokerName": "b"})
    finally:
        failpoints.arm(None)
    assert file.read_bytes() == CONTENT


def test_keys_of_the_command_line_are_named(file: Path) -> None:
    kept = ConfigurationFile(file, frozenset({"brokerName", "namesrvAddr"}))
    assert kept.note({"traceOn": "true"}) is None
    assert "brokerName" in (kept.note({"brokerName": "b", "traceOn": "true"}) or "")
