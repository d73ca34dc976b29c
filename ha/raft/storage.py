"""The directory of one member: ``lock``, ``meta``, ``snapshot`` and ``journal``.

`write` is the only way to the disk while the member runs: it runs beside the event loop, and nothing leaves this member
before it returns.  Any error is final: the kernel may forget what it could not write, so no sync is tried again.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

import msgspec
from msgspec.structs import replace

from ha.raft.journal import Entry, Unsynced, Vote
from ha.raft.journal_file import SALT_BYTES, JournalFile
from sprocket.common.errors import StoreError
from store.disk.disk import Disk, DiskLock
from store.disk.sealed_file import read_sealed, write_sealed

_META_KIND: Final = b"RMET"
_SNAPSHOT_KIND: Final = b"RSNP"
_DISK_ID_BYTES: Final = 16
_ADVICE: Final = "Restore the directory, or remove it and call forget_member for this member on the leader"
T = TypeVar("T")


class Meta(msgspec.Struct, frozen=True, array_like=True):
    """Content of ``meta``: who this disk belongs to, how often a member has started on it, its term and its vote.

    `is_founder`: the member took part in the first election of its group.
    """

    group: str
    member_id: str
    disk_id: str
    starts: int
    term: int = 0
    voted_for: str = ""
    is_founder: bool = False


class SnapshotFile(msgspec.Struct, frozen=True, array_like=True):
    """Content of ``snapshot``: the last two entries that it covers, and the state after them."""

    previous: tuple[bytes, int, int]
    last: tuple[bytes, int, int]
    state: bytes

    @property
    def last_index(self) -> int:
        """Index of the last entry that the snapshot covers."""
        return self.last[1]


@dataclass(frozen=True)
class Stored:
    """What a member finds on its disk."""

    meta: Meta
    snapshot: SnapshotFile | None
    entries: list[Entry]

    @property
    def vote(self) -> Vote:
        """Term and vote.  An entry of a later term than the file's: nobody was told of a vote in that term."""
        last_term = self.entries[-1][2] if self.entries else 0
        if last_term > self.meta.term:
            return Vote(last_term, "", self.meta.is_founder)
        return Vote(self.meta.term, self.meta.voted_for, self.meta.is_founder)


class Storage:
    """The files of one member.  `open` once, `write` from one thread at a time, `close`."""

    def __init__(self, disk: Disk, directory: Path, random_bytes: Callable[[int], bytes]) -> None:
        self._disk = disk
        self._directory = directory
        self._random_bytes = random_bytes
        self._lock: DiskLock | None = None
        self._meta: Meta | None = None
        self._journal: JournalFile | None = None
        self._stored: Stored | None = None

    @property
    def stored(self) -> Stored:
        """What `open` found."""
        assert self._stored is not None
        return self._stored

    def open(self, group: str, member_id: str) -> None:
        """Read the files into `stored` and count this start, durably.

        Raises `StoreError` for files that are damaged, incomplete, in use, or of another member.
        """
        try:
            self._lock = self._disk.lock(self._directory / "lock")
        except StoreError as error:
            raise StoreError(f"{self._directory}: another process runs this member, or: {error}") from error
        try:
            self._stored = self._open(group, member_id)
        except BaseException:
            self.close()
            raise

    def _open(self, group: str, member_id: str) -> Stored:
        opened = JournalFile.open(self._disk, self._directory / "journal")
        snapshot = self._read_snapshot()
        meta = self._read_meta(group, member_id, is_new=opened is None and snapshot is None)
        if opened is None and (meta.term or snapshot is not None):
            raise StoreError(f"{self._directory / 'journal'} is missing, and other files are not.  {_ADVICE}")
        entries = opened[1] if opened is not None else []
        _check_complete(self._directory, snapshot, entries)
        meta = replace(meta, starts=meta.starts + 1)
        # Before the journal: a journal without this file is refused.
        self._write_meta(meta)
        if opened is None:
            self._journal = JournalFile.create(self._disk, self._directory / "journal", [], self._salt())
        else:
            self._journal = opened[0]
        return Stored(meta, snapshot, entries)

    def write(self, unsynced: Unsynced | None, snapshot: SnapshotFile | None) -> None:
        """Write and sync the vote, the snapshot and the entries, in this order.

        So a term on the disk is never behind the entries, and no entry is dropped before a snapshot has it.
        Raises `DiskFull` or `DiskFailed`; then the member must stop.
        """
        assert self._journal is not None and self._meta is not None
        if unsynced is not None and unsynced.vote is not None:
            vote = unsynced.vote
            self._write_meta(replace(self._meta, term=vote.term, voted_for=vote.voted_for, is_founder=vote.is_founder))
        if snapshot is not None:
            write_sealed(self._disk, self._directory / "snapshot", _SNAPSHOT_KIND, msgspec.msgpack.encode(snapshot))
        if unsynced is None:
            return
        if unsynced.is_rewrite or not self._journal.has_room(unsynced.entries):
            old = self._journal
            self._journal = JournalFile.create(self._disk, self._directory / "journal", unsynced.log, self._salt())
            old.close()
        else:
            self._journal.append(unsynced.entries)

    def close(self) -> None:
        """Close the files and give up the lock."""
        if self._journal is not None:
            self._journal.close()
            self._journal = None
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def _salt(self) -> bytes:
        return self._random_bytes(SALT_BYTES)

    def _write_meta(self, meta: Meta) -> None:
        write_sealed(self._disk, self._directory / "meta", _META_KIND, msgspec.msgpack.encode(meta))
        self._meta = meta

    def _read_meta(self, group: str, member_id: str, *, is_new: bool) -> Meta:
        path = self._directory / "meta"
        content = read_sealed(self._disk, path, _META_KIND)
        if content is None:
            if not is_new:
                raise StoreError(f"{path} is missing, and the journal is not: the vote is lost.  {_ADVICE}")
            return Meta(group, member_id, self._random_bytes(_DISK_ID_BYTES).hex(), 0)
        meta = _decoded(path, content, Meta)
        if (meta.group, meta.member_id) != (group, member_id):
            raise StoreError(
                f"{self._directory} belongs to member {meta.member_id} of group {meta.group}, "
                f"not to {member_id} of {group}: use another directory"
            )
        return meta

    def _read_snapshot(self) -> SnapshotFile | None:
        path = self._directory / "snapshot"
        content = read_sealed(self._disk, path, _SNAPSHOT_KIND)
        return None if content is None else _decoded(path, content, SnapshotFile)


def _decoded(path: Path, content: bytes | str, kind: type[T]) -> T:
    """Return the content of a sealed file.  Raises `StoreError` that names it."""
    if isinstance(content, str):
        raise StoreError(f"{path}: {content}.  {_ADVICE}")
    try:
        return msgspec.msgpack.decode(content, type=kind)
    except msgspec.DecodeError as error:
        raise StoreError(f"{path}: {error}.  {_ADVICE}") from error


def _check_complete(directory: Path, snapshot: SnapshotFile | None, entries: list[Entry]) -> None:
    """Check that no entry is missing between snapshot and journal.  Raises `StoreError`."""
    first = entries[0][1] if entries else 1
    covered = snapshot.last_index if snapshot is not None else 0
    if first > covered + 1:
        raise StoreError(
            f"{directory}: the snapshot covers entries to {covered}, and the journal begins at {first}: entries are "
            f"missing.  {_ADVICE}"
        )
