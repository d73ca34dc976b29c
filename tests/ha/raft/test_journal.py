"""The journal: what pysyncobj's cuts may take, and what a torn, damaged or foreign file is."""

from pathlib import Path

import pytest

from ha.raft import journal_file
from ha.raft.journal import FIRST_ENTRY, NO_OP, Entry, Journal, Unsynced, Vote
from ha.raft.journal_file import JournalFile
from ha.raft.storage import SnapshotFile, Storage
from sprocket.common.errors import DiskFailed, InvariantError, StoreError
from store.disk.disk import RealDisk
from tests.sim.sim_disk import ROOT, Fault, Operation, SimDisk
from tests.sim.sim_image import Subset, Survivors

_SALT = bytes(range(16))


def _entry(index: int, term: int = 1) -> Entry:
    return b"\x00%d/%d" % (index, term), index, term


def _log(stop: int, term: int = 1) -> list[Entry]:
    return [FIRST_ENTRY, *(_entry(index, term) for index in range(2, stop))]


def _journal(stop: int = 11) -> Journal:
    return Journal(_log(stop), Vote(1), 1)


# What pysyncobj cuts


def test_a_cut_without_a_contradiction_is_undone() -> None:
    journal = _journal()
    journal.deleteEntriesFrom(5)
    journal.add(*_entry(6))
    journal.settle()
    assert journal[:] == _log(11)
    assert journal.take() is None


def test_a_cut_for_another_entry_takes_the_tail() -> None:
    journal = _journal()
    journal.deleteEntriesFrom(5)
    journal.add(*_entry(6))
    journal.add(*_entry(7, 2))
    journal.settle()
    assert journal[:] == [*_log(7), _entry(7, 2)]
    taken = journal.take()
    assert taken is not None and list(taken.entries) == [_entry(7, 2)]


def test_a_committed_entry_is_never_replaced() -> None:
    journal = _journal()
    journal.setRaftCommitIndex(8)
    journal.settle()
    journal.deleteEntriesFrom(5)
    journal.add(*_entry(6, 2))
    with pytest.raises(InvariantError, match="committed entry 6"):
        journal.settle()


def test_a_snapshot_inside_the_log_keeps_what_follows_it() -> None:
    journal = _journal()
    journal.clear()
    journal.add(*_entry(6))
    journal.add(*_entry(7))
    journal.settle()
    assert journal[:] == [_entry(index) for index in range(6, 11)]
    assert journal.take() is None


@pytest.mark.parametrize("last", [_entry(7, 2), _entry(30)])
def test_a_snapshot_that_differs_or_lies_beyond_replaces_the_log(last: Entry) -> None:
    journal = _journal()
    journal.clear()
    journal.add(b"\x00", last[1] - 1, 1)
    journal.add(*last)
    journal.settle()
    assert [entry[1] for entry in journal[:]] == [last[1] - 1, last[1]]
    taken = journal.take()
    assert taken is not None and taken.is_rewrite


def test_entries_that_were_dropped_before_they_were_written_leave_no_gap_on_the_disk(tmp_path: Path) -> None:
    journal = _journal(5)
    for index in range(5, 12):
        journal.add(*_entry(index))
    journal.clear()
    journal.add(*_entry(9))
    journal.add(*_entry(10))
    journal.settle()
    taken = journal.take()
    assert taken is not None and taken.is_rewrite and [one[1] for one in taken.log] == [9, 10, 11]


def test_a_second_vote_in_a_term_and_an_earlier_term_are_refused() -> None:
    journal = _journal()
    journal.setCurrentTerm(3, "n1")
    for term, vote in ((3, "n2"), (3, None), (2, None)):
        with pytest.raises(InvariantError):
            journal.setCurrentTerm(term, vote)
    assert journal.vote == Vote(3, "n1")


# The file


def _written(tmp_path: Path, frames: int = 3) -> Path:
    path = tmp_path / "journal"
    file = JournalFile.create(RealDisk(), path, [FIRST_ENTRY], _SALT)
    for at in range(frames):
        file.append([_entry(2 + 2 * at), _entry(3 + 2 * at)])
    file.close()
    return path


def _read(path: Path) -> list[Entry]:
    opened = JournalFile.open(RealDisk(), path)
    assert opened is not None
    opened[0].close()
    return opened[1]


def _frame_at(content: bytes, number: int) -> int:
    at = -1
    for _ in range(number + 1):
        at = content.index(b"RFRM", at + 1)
    return at


def test_what_was_appended_is_read_again(tmp_path: Path) -> None:
    assert _read(_written(tmp_path)) == _log(8)


def test_an_entry_with_a_lower_index_replaces_the_rest(tmp_path: Path) -> None:
    path = _written(tmp_path)
    opened = JournalFile.open(RealDisk(), path)
    assert opened is not None
    opened[0].append([_entry(4, 2)])
    opened[0].close()
    assert _read(path) == [*_log(4), _entry(4, 2)]


@pytest.mark.parametrize("lost", [1, 5, 20, 30])
def test_a_torn_end_is_cut_and_zeroed(tmp_path: Path, lost: int) -> None:
    path = _written(tmp_path)
    content = bytearray(path.read_bytes())
    end = len(content.rstrip(b"\0"))
    content[end - lost : end] = bytes(lost)
    path.write_bytes(content)
    assert _read(path) == _log(6)
    assert not path.read_bytes()[_frame_at(content, 3) :].strip(b"\0")
    assert _read(path) == _log(6)


@pytest.mark.parametrize("at", [0, 4, 8, 16, 22, 40])
def test_a_damaged_middle_is_refused_by_name(tmp_path: Path, at: int) -> None:
    path = _written(tmp_path)
    content = bytearray(path.read_bytes())
    content[_frame_at(content, 2) + at] ^= 0x10
    path.write_bytes(content)
    with pytest.raises(StoreError, match=f"{path}: the frame at .* is damaged"):
        _read(path)
    assert path.read_bytes() == content


def test_a_frame_inside_a_command_is_no_frame(tmp_path: Path) -> None:
    """Somebody who does not know the salt cannot make a torn end look like a damaged middle."""
    other = _written(tmp_path).read_bytes()
    frame = other[_frame_at(other, 1) : _frame_at(other, 2)]
    path = tmp_path / "journal"
    file = JournalFile.create(RealDisk(), path, [FIRST_ENTRY], bytes(16))
    file.append([(b"\x00" + frame, 2, 1)])
    file.close()
    content = bytearray(path.read_bytes())
    content[_frame_at(content, 1) + 10] ^= 1
    path.write_bytes(content)
    assert _read(path) == [FIRST_ENTRY]


@pytest.mark.parametrize(("at", "words"), [(0, "head is damaged"), (13, "head is damaged"), (30, "head is damaged")])
def test_a_damaged_head_is_refused(tmp_path: Path, at: int, words: str) -> None:
    path = _written(tmp_path)
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(content)
    with pytest.raises(StoreError, match=words):
        _read(path)


# The directory


def _storage(disk: SimDisk, member_id: str = "n0", group: str = "g") -> Storage:
    storage = Storage(disk, ROOT / "raft", lambda size: bytes(size))
    storage.open(group, member_id)
    return storage


def _unsynced(entries: list[Entry], vote: Vote | None = None, *, is_rewrite: bool = False) -> Unsynced:
    return Unsynced(vote, entries, entries, is_rewrite)


def test_each_start_is_counted_and_the_disk_keeps_its_id() -> None:
    disk = SimDisk()
    metas = []
    for _ in range(3):
        storage = _storage(disk)
        metas.append(storage.stored.meta)
        storage.close()
    assert [one.starts for one in metas] == [1, 2, 3]
    assert len({one.disk_id for one in metas}) == 1


def test_a_directory_of_another_member_or_group_is_refused() -> None:
    disk = SimDisk()
    _storage(disk).close()
    for member_id, group in (("n1", "g"), ("n0", "h")):
        with pytest.raises(StoreError, match="belongs to member n0 of group g"):
            _storage(disk, member_id, group)


def test_a_directory_in_use_is_refused() -> None:
    disk = SimDisk()
    storage = _storage(disk)
    with pytest.raises(StoreError, match="another process runs this member"):
        _storage(disk)
    storage.close()


@pytest.mark.parametrize("name", ["meta", "journal"])
def test_a_missing_file_is_refused(name: str) -> None:
    disk = SimDisk()
    storage = _storage(disk)
    storage.write(_unsynced([FIRST_ENTRY], Vote(3, "n1")), None)
    storage.close()
    disk.remove(ROOT / "raft" / name)
    with pytest.raises(StoreError, match=f"{name} is missing"):
        _storage(disk)


@pytest.mark.parametrize("name", ["meta", "snapshot"])
def test_a_damaged_small_file_is_refused(name: str) -> None:
    disk = SimDisk()
    storage = _storage(disk)
    snapshot = SnapshotFile(_entry(4), _entry(5), b"state")
    storage.write(_unsynced([_entry(4), _entry(5)], Vote(1), is_rewrite=True), snapshot)
    storage.close()
    disk.damage(ROOT / "raft" / name, lambda content: content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(StoreError, match=f"{name}: content does not match its CRC"):
        _storage(disk)


def test_a_snapshot_that_is_gone_is_missed() -> None:
    disk = SimDisk()
    storage = _storage(disk)
    snapshot = SnapshotFile(_entry(4), _entry(5), b"state")
    storage.write(_unsynced([_entry(4), _entry(5)], Vote(1), is_rewrite=True), snapshot)
    storage.close()
    disk.remove(ROOT / "raft" / "snapshot")
    with pytest.raises(StoreError, match="entries are missing"):
        _storage(disk)


def test_a_full_file_is_replaced_by_one_with_the_log_of_now() -> None:
    disk = SimDisk()
    storage = _storage(disk)
    log = [FIRST_ENTRY]
    storage.write(_unsynced(log), None)
    for index in range(2, 40):
        entry = (b"\x00" + bytes(200_000), index, 1)
        log = [*log, entry][-3:]
        storage.write(Unsynced(None, [entry], log, False), SnapshotFile(log[-2], log[-1], b""))
    storage.close()
    assert _storage(disk).stored.entries[-3:] == log


class _Cut(Exception):
    pass


def _write_all(storage: Storage, done: list[tuple[int, int]]) -> None:
    """Write terms, entries and snapshots; `done` has the term and the last index that were synced."""
    log = [FIRST_ENTRY]
    storage.write(_unsynced(log, Vote(1, "n0")), None)
    done.append((1, 1))
    for index in range(2, 9):
        log.append(_entry(index, index))
        storage.write(Unsynced(Vote(index, "n1"), log[-1:], log, False), None)
        done.append((index, index))
        if index == 5:
            log = log[-2:]
            storage.write(Unsynced(None, [], log, True), SnapshotFile(log[0], log[1], b"state"))


@pytest.mark.parametrize("survivors", list(Survivors))
def test_a_power_cut_after_any_operation_keeps_what_was_synced(
    survivors: Survivors, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_file, "MIN_FILE_BYTES", 16 * 1024)
    whole = SimDisk()
    _write_all(_storage(whole), [])
    for stop in range(1, whole.operations + 1):
        disk, done = SimDisk(), []

        def after(operation: Operation, stop: int = stop) -> None:
            if operation.number == stop:
                raise _Cut

        disk.after = after
        with pytest.raises(_Cut):
            _write_all(_storage(disk), done)
        for seed in range(3):
            stored = _storage(disk.crash(Subset(survivors, seed))).stored
            term, index = done[-1] if done else (0, 0)
            last = stored.entries[-1][1] if stored.entries else 0
            assert last in (index, index + 1)
            assert stored.vote.term in (term, term + 1)
            if stored.vote.term == term and term:
                assert stored.vote.voted_for == ("n0" if term == 1 else "n1")


@pytest.mark.parametrize("kind", ["write", "sync", "write_small", "rename", "create"])
def test_a_disk_error_comes_out(kind: str) -> None:
    disk = SimDisk()
    storage = _storage(disk)
    storage.write(_unsynced([FIRST_ENTRY], Vote(1, "n0")), None)
    disk.fault = lambda found, path: Fault() if found == kind else None
    with pytest.raises(DiskFailed):
        storage.write(Unsynced(Vote(2, "n1"), [_entry(2)], [FIRST_ENTRY, _entry(2)], kind == "create"), None)


def test_the_first_entry_is_a_no_op() -> None:
    assert Journal([], Vote(0), 1)[:] == [(NO_OP, 1, 0)]
