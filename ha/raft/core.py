"""The decisions of one member: what it does with each message, and at each tick.  It touches neither disk nor socket.

The rules that pysyncobj lacks are here: who may ask for votes (`ha.raft.elections`), which messages of earlier terms do
not count, that each member's vote counts once, and that a member whose disk is empty or old does not take part.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ha.raft.consensus import Member
from ha.raft.elections import Elections, Timing
from ha.raft.engine import COMPACT_BYTES, Engine, Outlet
from ha.raft.greeting import Claims
from ha.raft.journal import Journal
from ha.raft.messages import (
    Append,
    Appended,
    AskVote,
    Behind,
    Confirm,
    Confirmed,
    Message,
    RequestVote,
    SnapshotPart,
    Vote,
    WouldVote,
    from_engine,
    to_engine,
)
from ha.raft.proposals import Confirmations, Proposals
from ha.raft.replicated import KnownDisk, MemberSeen, Replicated, encode_change, reason_against
from ha.raft.snapshots import Snapshots
from ha.raft.storage import Stored
from sprocket.common.errors import ProtocolError

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Group:
    """A group as one member sees it: its name, its members, and which of them this process is."""

    name: str
    members: Sequence[Member]
    own_id: str

    @property
    def others(self) -> list[str]:
        """Ids of the other members."""
        return [one.id for one in self.members if one.id != self.own_id]

    @property
    def majority(self) -> int:
        """Number of members that decide."""
        return len(self.members) // 2 + 1

    @property
    def text(self) -> str:
        """All members, in an order that does not depend on the configuration."""
        return ";".join(sorted(str(one) for one in self.members))


class Core:
    """One member's Raft state and rules.  The caller syncs what changed before it sends the `outbox`."""

    def __init__(
        self,
        group: Group,
        stored: Stored,
        replicated: Replicated,
        timing: Timing,
        now: float,
        random: Callable[[], float],
    ) -> None:
        """Take over what the disk holds.  Raises `StoreError` for a snapshot that cannot be restored."""
        self._group = group
        self._meta = stored.meta
        self._replicated = replicated
        commit_index = stored.snapshot.last_index if stored.snapshot is not None else 1
        self.journal = Journal(stored.entries, stored.vote, commit_index)
        self.snapshots = Snapshots(stored.snapshot, replicated.snapshot, replicated.restore, lambda: self.term)
        self._outlet = Outlet(self._from_engine)
        self.engine = Engine(
            group.own_id, group.others, timing, self._outlet, self.journal, self.snapshots, replicated.apply
        )
        self.raise_failure()
        self.elections = Elections(timing, group.majority, now, random)
        self.proposals = Proposals()
        self.confirmations = Confirmations(group.majority)
        # What is to be sent after the sync: member id and message.
        self.outbox: list[tuple[str, Message]] = []
        # Connected members, and what they said of themselves.
        self.connected: dict[str, Claims] = {}
        self._votes: tuple[int, set[str]] = (0, set())
        # Member and disk id -> term and index of the last entry that it acknowledged to this member.
        self._acknowledged: dict[tuple[str, str], tuple[int, int]] = {}
        # What was offered to the log about members -> the term, and the index that it has there or an earlier one.
        self._reported: dict[MemberSeen, tuple[int, int]] = {}
        self._sent_state = (0, 0)
        self._has_voted = False
        self._sends_more = False
        self._is_campaigning = False
        self._knows_own_disk = False
        # Members to which pysyncobj would send more of a snapshot than they have room for.
        self._muted: set[str] = set()

    # State

    @property
    def term(self) -> int:
        """The term."""
        return int(self.engine.raftCurrentTerm)

    @property
    def is_leader(self) -> bool:
        """Whether this member leads and has applied all that was committed before its term."""
        index, term = self.journal.last_no_op
        return self.engine.is_raft_leader and term == self.term and self.engine.raftLastApplied >= index

    def leader(self, now: float) -> str | None:
        """Return the id of the leader that this member knows and hears; its own only if `is_leader`."""
        if self.engine.is_raft_leader:
            return self._group.own_id if self.is_leader else None
        return self.engine.leader_id if self.elections.knows_leader(now) else None

    @property
    def claims(self) -> Claims:
        """What this member says of itself in a greeting."""
        meta, journal = self._meta, self.journal
        return Claims(
            self._group.name, self._group.text, self._group.own_id, meta.disk_id, meta.starts, self._is_fresh,
            journal.last_term, journal.last_index,
        )  # fmt: skip

    def reason_against(self, claims: Claims) -> str:
        """Return why a member with these claims is refused; empty if it is not."""
        known = self._acknowledged.get((claims.member_id, claims.disk_id), (0, 0))
        if (claims.last_term, claims.last_index) < known:
            return (
                f"member {claims.member_id} acknowledged entry {known[1]} of term {known[0]}, and its log ends at "
                f"{claims.last_index} of term {claims.last_term}: its disk is older; remove and add it again"
            )
        disks, _ = self._known_by_log
        return reason_against(disks, claims.member_id, claims.disk_id, claims.starts)

    def _is_counted(self, claims: Claims) -> bool:
        """Return whether a member's acknowledgements count: only once a committed entry forgets its older disk.

        After a start, no entry since the snapshot is known to be committed.  If one of them names the member with this
        disk, a leader wrote it after the older disk was forgotten, and that entry was committed.
        """
        disks, forgotten = self._known_by_log
        seen = disks.get(claims.member_id)
        return claims.member_id not in forgotten if seen is None else seen.disk_id == claims.disk_id

    @property
    def _known_by_log(self) -> tuple[dict[str, KnownDisk], set[str]]:
        """Disks as they will be known if the whole log is applied, and members that its unapplied part forgets."""
        unapplied = self.engine.raftLastApplied + 1 - self.journal[0][1]
        return self._replicated.after(entry[0] for entry in self.journal[unapplied:])

    @property
    def _is_fresh(self) -> bool:
        return self.term == 0 and self.journal.last_index == 1

    @property
    def _may_vote(self) -> bool:
        """Whether this member may take part in elections.

        One that never did may have lost its disk.  So it waits until its log says that the group knows this disk: then
        the log also has all that was committed before.  In the first election all members are new.
        """
        if self.journal.vote.is_founder or self._knows_own_disk:
            return True
        own = self._known_by_log[0].get(self._group.own_id)
        self._knows_own_disk = own is not None and own.disk_id == self._meta.disk_id
        if self._knows_own_disk or not self._is_fresh:
            return self._knows_own_disk
        is_first = len(self.connected) == len(self._group.others)
        is_first = is_first and all(one.is_fresh for one in self.connected.values())
        if is_first:
            self.journal.found()
        return is_first

    def raise_failure(self) -> None:
        """Raise the `StoreError` that pysyncobj swallowed, if any."""
        if self.snapshots.failure is not None:
            raise self.snapshots.failure

    # Events

    def joined(self, claims: Claims) -> None:
        """Note that a member is connected."""
        self.connected[claims.member_id] = claims
        self._outlet.joined(self.engine.nodes[claims.member_id])

    def left(self, member_id: str, now: float) -> None:
        """Note that a member is not connected any more."""
        self.connected.pop(member_id, None)
        node = self.engine.nodes[member_id]
        self.snapshots.cancelTransmisstion(node)
        self._outlet.left(node)
        if self.engine.leader_id == member_id:
            self.elections.lost_leader(now)

    def received(self, member_id: str, message: Message, now: float) -> None:
        """Take a message of a connected member.  Raises `ProtocolError` for one that no correct member sends."""
        match message:
            case Append() | SnapshotPart():
                self._from_leader(member_id, message, now)
            case Appended():
                self._appended(member_id, message)
            case RequestVote():
                self._vote_requested(member_id, message, now)
            case Vote():
                self._voted(member_id, message)
            case AskVote():
                self._asked(member_id, message, now)
            case WouldVote():
                self._learn(message.term)
                is_free = not self.engine.is_raft_leader and not self.elections.hears_leader(now)
                is_won = self.elections.answered(member_id, message.asked_term, message.is_granted)
                self._is_campaigning = self._is_campaigning or (
                    is_won and is_free and message.asked_term == self.term + 1
                )
            case Confirm():
                if message.term == self.term:
                    self._send(member_id, Confirmed(self.term, message.round))
                elif message.term < self.term:
                    self._send(member_id, Behind(self.term))
            case Confirmed():
                if message.term == self.term and self.engine.is_raft_leader:
                    self.confirmations.confirmed(member_id, message.round)
            case Behind():
                self._learn(message.term)

    def tick(self, now: float) -> None:
        """Let time pass: elections, new entries, commits, heartbeats, compaction."""
        engine, journal = self.engine, self.journal
        if engine.is_raft_leader:
            self._offer_all()
            self._ask_confirmations()
        elif self.elections.is_due(now):
            self._ask_votes(now)
        if self._is_campaigning:
            # Here, so that nothing comes between: pysyncobj begins the election in the tick.
            engine.stand()
            self._is_campaigning = False
        engine.doTick(0.0)
        self._done()
        self.raise_failure()
        if engine.is_raft_leader:
            state = journal.last_index, engine.raftCommitIndex
            if state != self._sent_state or self._sends_more:
                self._sent_state, self._sends_more = state, False
                engine.send_entries()
                self._done()
            self.elections.postpone(now)
        else:
            leader = self.leader(now)
            self.proposals.refuse_waiting(leader)
            self.confirmations.fail(leader)
        if journal.size_bytes > COMPACT_BYTES:
            engine.forceLogCompaction()

    # Leader

    def _offer_all(self) -> None:
        """Give to pysyncobj what waits to become entries."""
        if self.is_leader:
            self._report_members()
        while (batch := self.proposals.next_batch()) is not None:
            self.engine.offer(*batch)

    def _report_members(self) -> None:
        """Have the group know this member and those that are connected, if it does not yet."""
        for one in (self.claims, *self.connected.values()):
            news = self._replicated.news(one.member_id, one.disk_id, one.starts)
            if news is None:
                continue
            term, index = self._reported.get(news, (0, 0))
            if term != self.term or self.engine.raftLastApplied > index:
                self._reported[news] = self.term, self.journal.last_index + 1
                self.engine.offer(encode_change(news), _ignore)

    def _ask_confirmations(self) -> None:
        round_number = self.confirmations.next_round()
        if round_number is not None:
            for member_id in self.connected:
                self._send(member_id, Confirm(self.term, round_number))

    def _appended(self, member_id: str, message: Appended) -> None:
        self._learn(message.term)
        if message.term != self.term or not self.engine.is_raft_leader:
            return
        end = self.journal.last_index + 1
        if not message.next_index or (message.is_success and message.next_index > end):
            raise ProtocolError("raft_appended", f"entries before {message.next_index} of a log that ends before {end}")
        node = self.engine.nodes[member_id]
        self._sends_more = self.snapshots.answered(node) or self._sends_more
        if message.is_success:
            index = message.next_index - 1
            position = self.journal.term_at(index) or 0, index
            key = member_id, self.connected[member_id].disk_id
            self._acknowledged[key] = max(position, self._acknowledged.get(key, (0, 0)))
        is_counted = message.is_success and self._is_counted(self.connected[member_id])
        message = Appended(message.term, min(message.next_index, end), message.is_reset, is_counted)
        self._deliver(member_id, message)
        # A follower whose log ends elsewhere gets the entries from there at once.
        self._sends_more = self._sends_more or message.is_reset

    # Follower

    def _from_leader(self, member_id: str, message: Append | SnapshotPart, now: float) -> None:
        if message.term < self.term:
            self._send(member_id, Behind(self.term))
            return
        if message.term == self.term and self.engine.is_raft_leader:
            raise ProtocolError("raft_leader", f"{member_id} also leads in term {self.term}")
        if self._is_fresh and self._may_vote:
            logger.info("event=raft_founded group=%s member=%s", self._group.name, self._group.own_id)
        if message.term > self.term or self.engine.leader_id != member_id:
            self._sent_state = (0, 0)
        self._is_campaigning = False
        self.elections.heard_leader(now)
        self._follow(member_id, message)
        if self.journal.getVotedForNodeId() is None:
            # It has a majority already.  So a member that forgot its vote in this term gives it to nobody else.
            self.engine.vote_for(member_id)

    def _follow(self, member_id: str, message: Append | SnapshotPart) -> None:
        blank = SnapshotPart(message.term, 0, 0, 0, 0, b"")
        if isinstance(message, Append):
            new = self._without_known(message)
            if new is None:
                # A late message.  pysyncobj would cut the log after it, and with it what it has acknowledged.
                self._deliver(member_id, blank)
                self._send(member_id, Appended(self.term, message.end_index + 1, False, True))
            else:
                self._deliver(member_id, new)
            return
        if message.size_bytes and message.last_index <= self.engine.raftLastApplied:
            # Not needed, and a step back.  The leader goes on from the end of this log.
            self._deliver(member_id, blank)
            self._send(member_id, Appended(self.term, self.journal.last_index + 1, True, False))
            return
        applied = self.engine.raftLastApplied
        self._deliver(member_id, message)
        self.raise_failure()
        if self.engine.raftLastApplied == applied:
            self._send(member_id, Appended(self.term, 1, False, False))

    def _without_known(self, message: Append) -> Append | None:
        """Return `message` without the entries that this log has; None if it has them all and more after them."""
        journal = self.journal
        if journal.term_at(message.previous_index) != message.previous_term:
            return message
        known = 0
        while known < len(message.entries) and journal.term_at(message.entries[known][1]) == message.entries[known][2]:
            known += 1
        index = message.previous_index + known
        if known == len(message.entries) and index < journal.last_index:
            return None
        term = message.entries[known - 1][2] if known else message.previous_term
        return Append(message.term, message.commit_index, index, term, message.entries[known:])

    # Elections

    def _ask_votes(self, now: float) -> None:
        if not self._may_vote or len(self.connected) + 1 < self._group.majority:
            self.elections.postpone(now)
            return
        self._is_campaigning = self.elections.ask(now, self.term + 1)
        for member_id in self.connected:
            self._send(member_id, AskVote(self.term + 1, self.journal.last_index, self.journal.last_term))

    def _asked(self, member_id: str, message: AskVote, now: float) -> None:
        if not self._may_vote:
            return
        is_free = not self.engine.is_raft_leader and not self.elections.hears_leader(now)
        own_end = self.journal.last_term, self.journal.last_index
        is_granted = is_free and message.term > self.term and (message.last_term, message.last_index) >= own_end
        self._send(member_id, WouldVote(self.term, message.term, is_granted))

    def _vote_requested(self, member_id: str, message: RequestVote, now: float) -> None:
        if not self._may_vote or self.engine.is_raft_leader or self.elections.hears_leader(now):
            return
        if message.term == self.term and self.engine.leader_id is not None:
            return
        self._has_voted = False
        self._deliver(member_id, message)
        if self._has_voted:
            self._is_campaigning = False
            self.elections.postpone(now)

    def _voted(self, member_id: str, message: Vote) -> None:
        term, members = self._votes
        if term != self.term:
            members = set()
            self._votes = (self.term, members)
        if message.term == self.term and member_id not in members:
            members.add(member_id)
            self._deliver(member_id, message)

    def _learn(self, term: int) -> None:
        if term > self.term:
            self._is_campaigning = False
            self.engine.raise_term(term)
            self._done()
            self.elections.forget_leader()

    # To and from pysyncobj

    def _deliver(self, member_id: str, message: Message) -> None:
        translated = to_engine(message)
        assert translated is not None
        self._outlet.deliver(self.engine.nodes[member_id], translated)
        self._done()

    def _done(self) -> None:
        """Put right what pysyncobj's last call left."""
        self.journal.settle()
        for member_id in self._muted:
            self._outlet.joined(self.engine.nodes[member_id])
        self._muted.clear()

    def _from_engine(self, member_id: str, message: dict[str, Any]) -> None:
        self._has_voted = self._has_voted or message["type"] == "response_vote"
        translated = from_engine(message, self.term)
        if translated is not None:
            self._send(member_id, translated)
        if isinstance(translated, SnapshotPart) and not translated.size_bytes:
            # pysyncobj would ask for the next part again and again, for a heartbeat's time, while there is none to
            # send.  It stops for a member that is not connected.
            self._muted.add(member_id)
            self._outlet.left(self.engine.nodes[member_id])

    def _send(self, member_id: str, message: Message) -> None:
        self.outbox.append((member_id, message))


def _ignore(_: Any, reason: int) -> None:
    """Do nothing: the next leader reports again what was not applied."""
