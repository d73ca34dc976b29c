"""Nothing but a regular file of a possible size is opened and read."""

import os
from pathlib import Path

import pytest

from sprocket.common.files.regular_file import open_regular, read_regular


def test_a_regular_file_is_read_and_written(tmp_path: Path) -> None:
    path = tmp_path / "x"
    descriptor = open_regular(path, os.O_WRONLY | os.O_CREAT, 0o600)
    os.write(descriptor, b"content")
    os.close(descriptor)
    assert (read_regular(path), path.stat().st_mode & 0o777) == (b"content", 0o600)


@pytest.mark.parametrize("flags", [os.O_RDONLY, os.O_WRONLY, os.O_RDWR])
def test_a_pipe_is_refused_at_once(tmp_path: Path, flags: int) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match=r"pipe"):
        open_regular(tmp_path / "pipe", flags)


def test_a_device_and_a_folder_are_refused(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="it is no regular file; move it away"):
        read_regular(Path("/dev/zero"))
    with pytest.raises(IsADirectoryError):
        read_regular(tmp_path)
    with pytest.raises(FileNotFoundError):
        read_regular(tmp_path / "none")


def test_a_file_of_a_tebibyte_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "sparse"
    path.touch()
    os.truncate(path, 1 << 40)
    with pytest.raises(OSError, match="it has 1099511627776 bytes, at most 1073741824 are read"):
        read_regular(path)
