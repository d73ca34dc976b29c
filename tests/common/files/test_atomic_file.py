"""A replaced file is durable before and after it gets its name; a failure leaves the previous content."""

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from sprocket.common import failpoints
from sprocket.common.files.atomic_file import read_file_or_backup, replace_file


def test_content_is_synced_before_the_rename_and_the_name_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[tuple[str, str]] = []
    real_fsync, real_replace = os.fsync, Path.replace

    def fsync(descriptor: int) -> None:
        events.append(("sync", Path(f"/proc/self/fd/{descriptor}").readlink().name))
        real_fsync(descriptor)

    def replace(self: Path, target: Path) -> Path:
        events.append(("rename to", target.name))
        return real_replace(self, target)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(Path, "replace", replace)
    directory = tmp_path / "config"
    replace_file(directory / "t.json", b"one")
    assert events == [("sync", "t.json.tmp"), ("rename to", "t.json"), ("sync", "config")]
    events.clear()
    replace_file(directory / "t.json", b"two")
    assert events == [
        ("sync", "t.json.tmp"),
        ("rename to", "t.json.bak"),
        ("rename to", "t.json"),
        ("sync", "config"),
    ]
    assert read_file_or_backup(directory / "t.json") == b"two"
    (directory / "t.json").unlink()
    assert read_file_or_backup(directory / "t.json") == b"one"


@pytest.fixture
def unsynced_folder() -> Iterator[None]:
    failpoints.arm("atomic_file.after_rename=error:EIO")
    yield
    failpoints.arm(None)


def test_a_folder_that_cannot_be_synced_leaves_the_previous_content(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    replace_file(path, b"one")
    replace_file(path, b"two")
    failpoints.arm("atomic_file.after_rename=error:EIO")
    try:
        with pytest.raises(OSError, match=os.strerror(errno.EIO)):
            replace_file(path, b"three")
    finally:
        failpoints.arm(None)
    assert path.read_bytes() == b"two"
    replace_file(path, b"four")
    assert path.read_bytes() == b"four"
    assert path.with_name("t.json.bak").read_bytes() == b"two"


def test_a_first_file_is_gone_after_a_failed_sync_of_its_folder(tmp_path: Path, unsynced_folder: None) -> None:
    with pytest.raises(OSError, match=os.strerror(errno.EIO)):
        replace_file(tmp_path / "t.json", b"one")
    assert list(tmp_path.iterdir()) == []


def test_an_error_says_so_when_the_new_content_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unsynced_folder: None
) -> None:
    path, real_unlink = tmp_path / "t.json", Path.unlink

    def unlink(self: Path, missing_ok: bool = False) -> None:
        if self == path:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        real_unlink(self, missing_ok=missing_ok)

    monkeypatch.setattr(Path, "unlink", unlink)
    with pytest.raises(OSError, match="the new content is in place") as raised:
        replace_file(path, b"one")
    assert raised.value.errno == errno.EIO
    assert path.read_bytes() == b"one"
