"""The epochs of a log on the disk: RocketMQ's bytes, damage, and losses of power at every step."""

import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ha.epochs.epoch_file import EpochFile
from ha.epochs.epoch_history import MAX_EPOCHS, Epoch, EpochHistory
from sprocket.common.errors import DiskFull, StoreError
from store.disk.disk import RealDisk
from store.disk.epoch_checkpoint import MAX_FILE_BYTES, decode_epochs, encode_epochs
from tests.sim.sim_disk import ROOT, Fault, SimDisk, Subset

PATH = ROOT / "store" / "epochFileCheckpoint"
BACKUP = PATH.with_name("epochFileCheckpoint.bak")
END = 1 << 40

# What Apache's EpochFileCache writes for these epochs, see tests/compat/directories/test_epoch_file.py.
GOLDEN = b"3\n1370829526\n1-0\n2-4096\n5-1073741824\n"
EPOCHS = [(1, 0), (2, 4096), (5, 1 << 30)]


def history(*epochs: tuple[int, int]) -> EpochHistory:
    return EpochHistory(Epoch(*epoch) for epoch in epochs)


def test_bytes_are_those_of_rocketmq() -> None:
    assert encode_epochs(EPOCHS) == GOLDEN
    assert decode_epochs(GOLDEN) == EPOCHS
    assert decode_epochs(b"1\n0\n7-7\n") == [(7, 7)], "a CRC of 0 is not checked"
    assert decode_epochs(encode_epochs([])) == []


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        (b"7\n", "is no epoch"),
        (b"-1-7\n", "is no epoch"),
        (b"2147483648-0\n", "out of range"),
        (b"1-9223372036854775808\n", "out of range"),
        (b"2-0\n2-9\n", "epoch 2 at 9 follows epoch 2 at 0"),
        (b"2-9\n3-8\n", "epoch 3 at 8 follows epoch 2 at 9"),
        (b"1-1\n\n", "is no epoch"),
    ],
)
def test_lines_that_are_no_history_are_named(lines: bytes, reason: str) -> None:
    found = decode_epochs(b"%d\n%d\n%s" % (lines.count(b"\n"), zlib.crc32(lines) & 0x7FFFFFFF, lines))
    assert isinstance(found, str)
    assert reason in found


def test_every_flipped_bit_and_every_shorter_length_is_found() -> None:
    for bit in range(len(GOLDEN) * 8):
        damaged = bytearray(GOLDEN)
        damaged[bit // 8] ^= 1 << bit % 8
        assert isinstance(decode_epochs(bytes(damaged)), str)
    for length in range(len(GOLDEN) - 1):
        assert isinstance(decode_epochs(GOLDEN[:length]), str)


@given(st.binary(max_size=80))
def test_no_bytes_raise(content: bytes) -> None:
    found = decode_epochs(content)
    assert isinstance(found, str) or decode_epochs(encode_epochs(found)) == found


def test_epochs_are_read_again() -> None:
    disk = SimDisk()
    file = EpochFile(disk, PATH, 0)
    assert (file.history, file.accepted) == (EpochHistory(), -1)
    file.begin(Epoch(1, 0))
    file.begin(Epoch(3, 100))
    file.begin(Epoch(3, 100))
    assert disk.files()[PATH] == disk.files()[BACKUP] == encode_epochs([(1, 0), (3, 100)])
    again = EpochFile(disk, PATH, END)
    assert (again.history, again.accepted) == (history((1, 0), (3, 100)), 3)


def test_an_older_epoch_is_refused() -> None:
    file = EpochFile(SimDisk(), PATH, 0)
    file.begin(Epoch(3, 0))
    for wrong in (Epoch(2, 10), Epoch(3, 10), Epoch(1 << 31, 10), Epoch(-1, 10)):
        with pytest.raises(StoreError):
            file.begin(wrong)
    assert file.history == history((3, 0))


def test_a_shorter_log_has_fewer_epochs_and_knows_them_all_the_same() -> None:
    disk = SimDisk()
    file = EpochFile(disk, PATH, 0)
    for epoch in (Epoch(1, 0), Epoch(2, 50), Epoch(3, 90)):
        file.begin(epoch)
    shorter = EpochFile(disk, PATH, 50)
    assert (shorter.history, shorter.accepted) == (history((1, 0)), 3)
    assert decode_epochs(disk.files()[PATH]) == [(1, 0)]
    shorter.cut_at(0)
    assert shorter.history == EpochHistory()
    assert not disk.files()
    shorter.accept(7)
    assert shorter.accepted == 7


def test_retention_takes_the_oldest_epochs() -> None:
    file = EpochFile(SimDisk(), PATH, 0)
    for epoch in (Epoch(1, 0), Epoch(2, 50), Epoch(3, 90)):
        file.begin(epoch)
    file.without_before(49)
    assert file.history.epochs[0].number == 1
    file.without_before(90)
    assert file.history == history((3, 90))


def test_the_newest_epochs_are_kept() -> None:
    file = EpochFile(SimDisk(), PATH, 0)
    file.replace(EpochHistory(Epoch(number, number) for number in range(MAX_EPOCHS + 5)))
    assert len(file.history.epochs) == MAX_EPOCHS
    assert file.history.epochs[0].number == 5


@pytest.mark.parametrize("broken", [b"", b"1\n5\n1-0\n", b"x", bytes(MAX_FILE_BYTES + 1)])
def test_a_damaged_file_is_read_from_its_backup_and_written_again(broken: bytes) -> None:
    disk = SimDisk()
    EpochFile(disk, PATH, 0).begin(Epoch(4, 0))
    content = disk.files()[PATH]
    disk.damage(PATH, lambda _: broken)
    assert EpochFile(disk, PATH, END).history == history((4, 0))
    assert disk.files()[PATH] == content
    disk.damage(BACKUP, lambda _: broken)
    assert EpochFile(disk, PATH, END).history == history((4, 0))


def test_two_damaged_files_are_refused_by_name() -> None:
    disk = SimDisk()
    EpochFile(disk, PATH, 0).begin(Epoch(4, 0))
    disk.damage(PATH, lambda _: b"rubbish")
    disk.damage(BACKUP, lambda _: b"")
    with pytest.raises(StoreError, match=r"epochFileCheckpoint: .*epochFileCheckpoint\.bak: .*Move these files away"):
        EpochFile(disk, PATH, END)


def test_an_epoch_that_could_not_be_written_has_not_begun() -> None:
    disk = SimDisk()
    file = EpochFile(disk, PATH, 0)
    file.begin(Epoch(1, 0))
    disk.fault = lambda kind, path: Fault(DiskFull) if path.name == "epochFileCheckpoint.tmp" else None
    with pytest.raises(DiskFull):
        file.begin(Epoch(2, 10))
    assert file.history == history((1, 0))
    disk.fault = None
    assert EpochFile(disk, PATH, END).history == history((1, 0))


def changes() -> list[tuple[str, Callable[[EpochFile], None]]]:
    return [
        ("begin", lambda file: file.begin(Epoch(3, 90))),
        ("cut", lambda file: file.cut_at(50)),
        ("empty", lambda file: file.cut_at(0)),
        ("retention", lambda file: file.without_before(60)),
    ]


@pytest.mark.parametrize("name", [name for name, _ in changes()])
def test_a_loss_of_power_leaves_the_history_before_or_after(name: str) -> None:
    change = dict(changes())[name]

    def prepared() -> tuple[SimDisk, EpochFile]:
        disk = SimDisk()
        file = EpochFile(disk, PATH, 0)
        file.begin(Epoch(1, 0))
        file.begin(Epoch(2, 50))
        return disk, file

    disk, file = prepared()
    before = file.history
    crashes: list[SimDisk] = []
    disk.after = lambda _: crashes.extend(disk.crash(Subset(seed)) for seed in range(8))
    change(file)
    disk.after = None
    after = file.history
    assert before != after and crashes
    found = {EpochFile(crash, PATH, END).history for crash in crashes}
    assert found == {before, after}
    # What `begin` returned for is durable, whatever the crash keeps.
    assert {EpochFile(disk.crash(Subset(seed)), PATH, END).history for seed in range(20)} == {after}


def test_a_real_disk(tmp_path: Path) -> None:
    path = tmp_path / "new" / "epochs"
    EpochFile(RealDisk(), path, 0).begin(Epoch(1, 0))
    assert EpochFile(RealDisk(), path, END).history == history((1, 0))
    assert sorted(found.name for found in path.parent.iterdir()) == ["epochs", "epochs.bak"]
