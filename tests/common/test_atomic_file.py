"""A file that is replaced whole is durable before and after it has its name."""

import os
from pathlib import Path

import pytest

from sprocket.common.atomic_file import read_whole, write_whole


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
    write_whole(directory / "t.json", b"one")
    assert events == [("sync", "t.json.tmp"), ("rename to", "t.json"), ("sync", "config")]
    events.clear()
    write_whole(directory / "t.json", b"two")
    assert events == [
        ("sync", "t.json.tmp"),
        ("rename to", "t.json.bak"),
        ("rename to", "t.json"),
        ("sync", "config"),
    ]
    assert read_whole(directory / "t.json") == b"two"
    (directory / "t.json").unlink()
    assert read_whole(directory / "t.json") == b"one"
