"""FIFOs and sparse files of a tebibyte in a store: no tool waits for them, copies them, or ends with a traceback."""

import os
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from sprocket.common.errors import StoreError
from sprocket_cli.exit_codes import DISK
from sprocket_cli.main import main
from tests.store.inspection.stopped_store import content_of, fill
from tests.store.rig import Stores

TEBIBYTE = 1 << 40
SEGMENT = "commitlog/00000000000000016384"


@pytest.fixture
def filled(tmp_path: Path) -> Path:
    root = fill(Stores(tmp_path / "store"))
    (root / "config").mkdir()
    (root / "config/topics.json").write_text("{}")
    return root


def sprocket(*words: object) -> Result:
    result = CliRunner().invoke(main, ["store", *map(str, words)])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


def make_pipe(path: Path) -> None:
    path.unlink(missing_ok=True)
    os.mkfifo(path)


def make_sparse(path: Path) -> None:
    path.touch()
    os.truncate(path, TEBIBYTE)


@pytest.mark.parametrize("make", [make_pipe, make_sparse])
@pytest.mark.parametrize(
    "name", [SEGMENT, "consumequeue/Orders/0/00000000000000000000", "checkpoint", "config/topics.json", "queuelist"]
)
def test_every_tool_ends(filled: Path, tmp_path: Path, name: str, make: object) -> None:
    assert callable(make)
    make(filled / name)
    checked = sprocket("check", filled)
    assert checked.exit_code != 0
    assert name in checked.output
    for command in ("stat", "dump", "repair"):
        sprocket(command, filled)
    sprocket("repair", filled, "--yes")
    sprocket("backup", filled, "--to", tmp_path / "backup")


def test_a_backup_says_what_it_cannot_copy(filled: Path, tmp_path: Path) -> None:
    make_pipe(filled / SEGMENT)
    copied = sprocket("backup", filled, "--to", tmp_path / "backup")
    assert copied.exit_code == DISK
    assert f"{SEGMENT}: it is no regular file; move it away" in copied.output


def test_a_pipe_as_lock_stops_no_tool_and_no_start(filled: Path) -> None:
    make_pipe(filled / "lock")
    assert sprocket("check", filled).exit_code == 0
    with pytest.raises(StoreError, match="lock: it is no regular file; move it away"):
        Stores(filled).open()


def test_a_sparse_segment_is_cut_and_put_back_without_its_holes(filled: Path) -> None:
    path = filled / SEGMENT
    before = content_of(filled)
    make_sparse(path)
    said = sprocket("repair", filled, "--yes", "--segment-bytes", 16384)
    assert path.stat().st_size == 16384, said.output
    assert content_of(filled)[SEGMENT] == before[SEGMENT]
    (kept,) = filled.glob("repair-*")
    assert sprocket("repair", filled, "--undo", kept.name, "--yes").exit_code == 0
    assert path.stat().st_size == TEBIBYTE
    assert path.stat().st_blocks * 512 < 1 << 20


def test_a_repair_that_holds_the_lock_takes_no_broker_for_running(filled: Path) -> None:
    (filled / "queuelist").write_bytes(b"garbage")
    assert "queuelist: move aside" in sprocket("repair", filled, "--yes").output
    assert sprocket("check", filled).exit_code == 0
