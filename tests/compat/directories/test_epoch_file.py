"""Apache RocketMQ's own class writes the epochs of a log that we read, and reads those that we write."""

import subprocess
from pathlib import Path

import pytest

from ha.epochs.epoch_file import EpochFile
from ha.epochs.epoch_history import Epoch, EpochHistory
from store.disk.disk import RealDisk
from store.disk.epoch_checkpoint import encode_epochs
from tests.compat import maven

TOOL = Path(__file__).resolve().parents[1] / "java" / "store" / "EpochTool.java"
EPOCHS = [(1, 0), (2, 4096), (5, 1 << 30), (2_000_000_000, 1 << 62)]
END = (1 << 63) - 1


@pytest.fixture
def java() -> None:
    try:
        maven.apache_classpath()
    except maven.JavaMissingError as missing:
        pytest.skip(f"files of Apache RocketMQ: {missing}")


def run_tool(action: str, path: Path, *epochs: str) -> str:
    command = [
        *maven.short_java(), f"-Duser.home={path.parent}", "-cp",
        maven.compiled(TOOL, maven.apache_classpath()), TOOL.stem, action, str(path), *epochs,
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return next(line for line in done.stdout.splitlines() if line.startswith(("EPOCHS", "REFUSED")))


@pytest.mark.java
@pytest.mark.timeout(600)
def test_both_write_the_same_bytes_and_read_each_other(java: None, tmp_path: Path) -> None:
    texts = [f"{epoch}-{start}" for epoch, start in EPOCHS]
    theirs, ours = tmp_path / "theirs", tmp_path / "ours"
    run_tool("write", theirs, *texts)
    file = EpochFile(RealDisk(), ours, 0)
    for epoch in EPOCHS:
        file.begin(Epoch(*epoch))
    assert theirs.read_bytes() == ours.read_bytes() == encode_epochs(EPOCHS)
    assert EpochFile(RealDisk(), theirs, END).history == EpochHistory(Epoch(*epoch) for epoch in EPOCHS)
    assert run_tool("read", ours) == f"EPOCHS {' '.join(texts)}"

    # A damaged file: both read the backup.
    ours.write_bytes(b"4\n1\n1-0\n")
    assert run_tool("read", ours) == f"EPOCHS {' '.join(texts)}"
