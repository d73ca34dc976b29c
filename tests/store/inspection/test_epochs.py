"""The file with the epochs of masters: what a check says of it, and what a repair does."""

from pathlib import Path

import pytest

from ha.epochs.epoch_file import EpochFile
from ha.epochs.epoch_history import Epoch, EpochHistory
from sprocket.common.errors import StoreError
from store.disk.disk import RealDisk
from store.disk.epoch_checkpoint import encode_epochs
from store.repair.repair import Repair
from tests.clock import ManualClock
from tests.store.inspection.stopped_store import SHAPE, check, check_and_plan, fill, kinds
from tests.store.rig import Stores

NAME = "epochFileCheckpoint"
END = 1 << 40


def filled(root: Path) -> Path:
    fill(Stores(root))
    file = EpochFile(RealDisk(), root / NAME, END)
    file.begin(Epoch(1, 0))
    file.begin(Epoch(4, 1000))
    return root


def texts(root: Path) -> list[str]:
    return [str(finding) for finding in check(root).findings.kept if finding.kind == "epochs"]


def test_whole_files_are_no_finding(tmp_path: Path) -> None:
    assert texts(filled(tmp_path)) == []


@pytest.mark.parametrize("name", [NAME, f"{NAME}.bak"])
def test_one_damaged_file_is_a_note(tmp_path: Path, name: str) -> None:
    root = filled(tmp_path)
    (root / name).write_bytes(b"2\n1\n1-0\n")
    (text,) = texts(root)
    assert "is whole, and the next start uses it" in text
    store, actions = check_and_plan(root)
    assert (kinds(store), actions) == (set(), [])


def test_two_damaged_files_are_moved_aside_by_a_repair(tmp_path: Path) -> None:
    root = filled(tmp_path)
    for name in (NAME, f"{NAME}.bak"):
        (root / name).write_bytes(b"rubbish")
    with pytest.raises(StoreError):
        EpochFile(RealDisk(), root / NAME, END)
    store, actions = check_and_plan(root)
    assert kinds(store) == {"epochs"}
    folder = Repair(root, SHAPE, ManualClock()).act(store, actions)
    assert kinds(check(root)) == set()
    assert not (root / NAME).exists()
    assert sum(path.read_bytes() == b"rubbish" for path in folder.iterdir() if path.is_file()) == 2
    assert EpochFile(RealDisk(), root / NAME, END).history == EpochHistory()


def test_epochs_beyond_the_log_are_a_note(tmp_path: Path) -> None:
    root = filled(tmp_path)
    (root / NAME).write_bytes(encode_epochs([(1, 0), (2, END)]))
    (text,) = texts(root)
    assert "1 epochs begin at the log's end" in text
