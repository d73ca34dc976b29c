"""The log of entries in memory, with the methods that pysyncobj calls on a journal, and what the disk lacks of it.

pysyncobj cuts the log's tail whenever a message names an earlier entry, also if the tail agrees with the leader's log,
and clears the log for a snapshot, also if the log goes on after it.  A crash would then lose entries that this member
has acknowledged.  So what pysyncobj removes is kept until `settle`, which puts it back unless an entry contradicts it.
Source of the rule: Ongaro, "Consensus: Bridging Theory and Practice", figures 3.1 and 5.3.

Nothing here touches a disk: `take` returns what is to be written before any message leaves.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, overload

from sprocket.common.errors import InvariantError

# (command, index, term), as pysyncobj has it.
Entry = tuple[bytes, int, int]

# First byte of a command: `pysyncobj.syncobj._COMMAND_TYPE`.  No other kind enters the log.
REGULAR: Final = b"\x00"
NO_OP: Final = b"\x01"
# The entry with which every member's log begins.
FIRST_ENTRY: Final[Entry] = (NO_OP, 1, 0)


@dataclass(frozen=True)
class Vote:
    """The term, and the id of the member that got this member's vote in it; empty if none did.

    `is_founder`: this member took part in the first election of its group.
    """

    term: int
    voted_for: str = ""
    is_founder: bool = False


@dataclass(frozen=True)
class Unsynced:
    """What the disk lacks: `vote` and `entries` in this order.  With `is_rewrite`, `log` replaces all on the disk."""

    vote: Vote | None
    entries: Sequence[Entry]
    log: Sequence[Entry]
    is_rewrite: bool


class Journal:
    """The entries that this member holds, its term and its vote."""

    def __init__(self, entries: Sequence[Entry], vote: Vote, commit_index: int) -> None:
        """Take what the disk holds; `commit_index` is at least the snapshot's last index."""
        self._entries = list(entries)
        # The first so many of `_entries` are on the disk as they are.
        self._clean = len(self._entries)
        self._removed: list[Entry] | None = None
        self._removed_clean = 0
        self._is_cleared = False
        self._is_rewrite = False
        self._vote = vote
        self._is_vote_dirty = False
        self._commit_index = commit_index
        self._settled_commit_index = 0
        self.size_bytes = sum(len(entry[0]) for entry in self._entries)
        # Index and term of the newest NO_OP: a new leader begins its term with one.
        self.last_no_op = max(((index, term) for command, index, term in entries if command == NO_OP), default=(0, 0))
        if not self._entries:
            self.add(*FIRST_ENTRY)

    # pysyncobj's journal

    def add(self, command: bytes, idx: int, term: int) -> None:
        """Append an entry."""
        if self._entries and idx != self._entries[-1][1] + 1:
            raise InvariantError(f"the log ends at {self._entries[-1][1]}, and {idx} is appended")
        self._entries.append((command, idx, term))
        self.size_bytes += len(command)
        if command == NO_OP:
            self.last_no_op = (idx, term)

    def clear(self) -> None:
        """Remove all entries, until `settle`."""
        self._remove_from(0)
        self._is_cleared = True

    def deleteEntriesFrom(self, entryFrom: int) -> None:  # noqa: N802, N803
        """Remove the entries from position `entryFrom` on, until `settle`."""
        self._remove_from(entryFrom)

    def deleteEntriesTo(self, entryTo: int) -> None:  # noqa: N802, N803
        """Forget the entries before position `entryTo`, which a snapshot on the disk has."""
        del self._entries[:entryTo]
        self._drop_clean(self._clean, entryTo)
        self.size_bytes = sum(len(entry[0]) for entry in self._entries)

    @overload
    def __getitem__(self, item: int) -> Entry: ...
    @overload
    def __getitem__(self, item: slice) -> list[Entry]: ...
    def __getitem__(self, item: int | slice) -> Entry | list[Entry]:
        return self._entries[item]

    def __len__(self) -> int:
        return len(self._entries)

    def _destroy(self) -> None:
        """Do nothing: the storage closes the files."""

    def setRaftCommitIndex(self, raftCommitIndex: int) -> None:  # noqa: N802, N803
        """Note the commit index.  It is not kept on the disk: the leader tells it again."""
        self._commit_index = raftCommitIndex

    def getRaftCommitIndex(self) -> int:  # noqa: N802
        """Return the commit index."""
        return self._commit_index

    def setCurrentTerm(self, term: int, votedForNodeId: str | None) -> None:  # noqa: N802, N803
        """Note term and vote; they are on the disk before the next message leaves."""
        was = self._vote
        vote = Vote(term, votedForNodeId or "", was.is_founder)
        if vote.term < was.term or (vote.term == was.term and was.voted_for not in ("", vote.voted_for)):
            raise InvariantError(f"{self._vote} would become {vote}")
        self._change(vote)

    def getCurrentTerm(self) -> int:  # noqa: N802
        """Return the term."""
        return self._vote.term

    def getVotedForNodeId(self) -> str | None:  # noqa: N802
        """Return the id of the member that has this member's vote in the current term."""
        return self._vote.voted_for or None

    def onOneSecondTimer(self) -> None:  # noqa: N802
        """Do nothing: what must be on the disk is there at once."""

    # For the member

    @property
    def last_index(self) -> int:
        """Index of the last entry."""
        return self._entries[-1][1]

    @property
    def last_term(self) -> int:
        """Term of the last entry."""
        return self._entries[-1][2]

    @property
    def vote(self) -> Vote:
        """Term and vote."""
        return self._vote

    def found(self) -> None:
        """Note that this member takes part in the first election of its group."""
        self._change(replace(self._vote, is_founder=True))

    def term_at(self, index: int) -> int | None:
        """Return the term of the entry at `index`; None if this member does not hold it."""
        position = index - self._entries[0][1]
        return self._entries[position][2] if 0 <= position < len(self._entries) else None

    def settle(self) -> None:
        """Put back what pysyncobj removed without a reason.  Call after each call of pysyncobj.

        Raises `InvariantError` if a committed entry would be replaced.
        """
        removed, self._removed = self._removed, None
        if removed is not None:
            self._settle(removed)
        self._is_cleared = False
        self._settled_commit_index = max(self._settled_commit_index, self._commit_index)

    def take(self) -> Unsynced | None:
        """Return what the disk lacks; None if nothing.  The journal does not change until `synced` is called."""
        if not (self._is_vote_dirty or self._is_rewrite or self._clean < len(self._entries)):
            return None
        vote = self._vote if self._is_vote_dirty else None
        return Unsynced(vote, self._entries[self._clean :], self._entries, self._is_rewrite)

    def synced(self) -> None:
        """Note that everything is on the disk."""
        self._is_vote_dirty = self._is_rewrite = False
        self._clean = len(self._entries)

    def _change(self, vote: Vote) -> None:
        self._is_vote_dirty = self._is_vote_dirty or vote != self._vote
        self._vote = vote

    def _drop_clean(self, clean: int, dropped: int) -> None:
        """Note that of `clean` entries on the disk the first `dropped` are not in memory any more."""
        # If some of them never were on the disk, the file would have a gap.
        self._is_rewrite = self._is_rewrite or dropped > clean
        self._clean = max(0, clean - dropped)

    def _remove_from(self, position: int) -> None:
        if self._removed is not None:
            raise InvariantError("the log was cut twice by one message")
        self._removed, self._removed_clean = self._entries[position:], self._clean
        del self._entries[position:]
        self._clean = min(self._clean, position)

    def _settle(self, removed: list[Entry]) -> None:
        """Compare what was added with what was removed, by index and term, which identify an entry."""
        if not removed:
            return
        kept = len(self._entries)
        first = removed[0][1]
        added_from = next((at for at, entry in enumerate(self._entries) if entry[1] >= first), kept)
        at = next(
            (at for at in range(added_from, kept) if not _has(removed, first, self._entries[at])),
            kept,
        )
        if at < kept:
            self._replaced(removed, first, at)
        elif self._entries and self._entries[-1][1] + 1 < first:
            raise InvariantError(f"a snapshot ends at {self._entries[-1][1]}, and the log begins at {first}")
        elif self._is_cleared:
            # The snapshot ends inside the log: the log on the disk stays as it is, and begins earlier.
            dropped = self._entries[0][1] - first if self._entries else 0
            self._entries += removed[self._entries[-1][1] + 1 - first :] if self._entries else removed
            self._drop_clean(self._removed_clean, dropped)
        else:
            self._entries += removed[kept - added_from :]
            self._clean = self._removed_clean
        self.size_bytes = sum(len(entry[0]) for entry in self._entries)

    def _replaced(self, removed: list[Entry], first: int, at: int) -> None:
        """Accept that the entry at position `at` differs from what was removed, or lies beyond it."""
        index = self._entries[at][1]
        lost_from = index if index - first < len(removed) else first + len(removed)
        if lost_from <= self._settled_commit_index and index - first < len(removed):
            raise InvariantError(f"the committed entry {index} would be replaced: the logs of the members differ")
        if self._is_cleared:
            self._is_rewrite = True
            self._clean = 0
        else:
            self._clean = min(self._removed_clean, at)


def _has(removed: list[Entry], first: int, entry: Entry) -> bool:
    position = entry[1] - first
    return 0 <= position < len(removed) and removed[position][1:] == entry[1:]
