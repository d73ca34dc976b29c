"""The rules of one member that pysyncobj lacks, message by message."""

import asyncio

import pytest

from ha.raft.core import Core
from ha.raft.journal import Entry
from ha.raft.messages import (
    Append,
    Appended,
    AskVote,
    Behind,
    Message,
    RequestVote,
    SnapshotPart,
    Vote,
    WouldVote,
)
from ha.raft.replicated import MemberForgotten, encode_change
from sprocket.common.errors import ProtocolError
from tests.ha.raft.sim_group import SimGroup, SimMember
from tests.sim.sim_image import Subset, Survivors


@pytest.fixture
async def group(monkeypatch: pytest.MonkeyPatch) -> SimGroup:
    """A group with a leader, and three commands on all members."""
    group = SimGroup(5, monkeypatch)
    for member_id in group.members:
        group.start(member_id)
    group.run_until(lambda: group.leader() is not None)
    for _ in range(3):
        group.propose(_leader(group))
        group.run(0.3)
    return group


def _leader(group: SimGroup) -> SimMember:
    leader = group.leader()
    assert leader is not None
    return leader


def _core(member: SimMember) -> Core:
    assert member.core is not None
    return member.core


def _followers(group: SimGroup) -> list[SimMember]:
    return [one for one in group.members.values() if one is not _leader(group)]


def _told(group: SimGroup, member: SimMember, sender: str, message: Message) -> list[tuple[str, Message]]:
    """Return what a member sends in answer to one message."""
    core = _core(member)
    core.outbox.clear()
    core.received(sender, message, group.now)
    answers = list(core.outbox)
    core.outbox.clear()
    return answers


def _request(core: Core, term: int) -> RequestVote:
    return RequestVote(term, core.journal.last_index + 5, core.term + 5)


# Votes


async def test_a_vote_is_remembered_over_a_power_cut(group: SimGroup) -> None:
    voter, other = _followers(group)
    leader = _leader(group)
    group.crash(leader.id)
    group.now += 5
    term = _core(voter).term + 1
    assert _told(group, voter, other.id, _request(_core(voter), term)) == [(other.id, Vote(term))]
    group.run(0.001)
    group.crash(voter.id)
    group.start(voter.id)
    assert _core(voter).term == term
    _core(voter).connected[leader.id] = _core(other).claims
    assert _told(group, voter, leader.id, _request(_core(voter), term)) == []
    assert _told(group, voter, leader.id, _request(_core(voter), term + 1)) == [(leader.id, Vote(term + 1))]


async def test_a_member_that_hears_a_leader_votes_for_nobody_and_keeps_its_term(group: SimGroup) -> None:
    voter, other = _followers(group)
    term = _core(voter).term
    assert _told(group, voter, other.id, _request(_core(voter), term + 7)) == []
    asked = AskVote(term + 7, 10**6, term + 6)
    assert _told(group, voter, other.id, asked) == [(other.id, WouldVote(term, term + 7, False))]
    assert _told(group, _leader(group), other.id, _request(_core(voter), term + 7)) == []
    assert _core(voter).term == _core(_leader(group)).term == term


async def test_nobody_votes_for_a_shorter_log(group: SimGroup) -> None:
    voter, other = _followers(group)
    group.now += 5
    core = _core(voter)
    term, index = core.term, core.journal.last_index
    for last_term, last_index, is_granted in (
        (core.journal.last_term, index, True),
        (core.journal.last_term, index - 1, False),
        (core.journal.last_term - 1, index + 9, False),
    ):
        [(_, answer)] = _told(group, voter, other.id, AskVote(term + 1, last_index, last_term))
        assert answer == WouldVote(term, term + 1, is_granted)
    assert _told(group, voter, other.id, RequestVote(term + 1, index - 1, core.journal.last_term)) == []


async def test_the_vote_of_a_member_counts_once(group: SimGroup, monkeypatch: pytest.MonkeyPatch) -> None:
    five = SimGroup(5, monkeypatch, 5)
    for member_id in five.members:
        five.start(member_id)
    five.run_until(lambda: five.leader() is not None)
    candidate, *others = _followers(five)
    group.now = five.now = five.now + 5
    core = _core(candidate)
    core.engine.stand()
    core.engine.doTick(0.0)
    core.journal.settle()
    for _ in range(5):
        core.received(others[0].id, Vote(core.term), five.now)
    assert not core.engine.is_raft_leader
    core.received(others[1].id, Vote(core.term - 1), five.now)
    assert not core.engine.is_raft_leader
    core.received(others[1].id, Vote(core.term), five.now)
    assert core.engine.is_raft_leader


async def test_a_member_that_was_cut_off_comes_back_without_a_higher_term(group: SimGroup) -> None:
    cut_off = _followers(group)[0]
    leader, term = _leader(group).id, _core(_leader(group)).term
    group.is_cut = lambda one, other: cut_off.id in (one, other)
    group.run(10)
    assert _core(cut_off).term == term
    group.is_cut = lambda one, other: False
    group.run(3)
    assert (_leader(group).id, _core(_leader(group)).term) == (leader, term)


async def test_a_leader_that_hears_of_a_later_term_leads_no_more(group: SimGroup) -> None:
    leader = _leader(group)
    term = _core(leader).term
    _told(group, leader, _followers(group)[0].id, Behind(term + 3))
    assert not _core(leader).engine.is_raft_leader
    group.run_until(lambda: group.leader() is not None)
    assert _core(_leader(group)).term > term + 3


# Entries


async def test_an_acknowledgement_of_another_term_does_not_count(group: SimGroup) -> None:
    leader = _leader(group)
    followers = _followers(group)
    core = _core(leader)
    group.is_cut = lambda one, other: leader.id in (one, other)
    answer = core.proposals.add(b"alone")
    core.tick(group.now)
    end = core.journal.last_index + 1
    for follower in followers:
        _told(group, leader, follower.id, Appended(core.term - 1, end, False, True))
    core.tick(group.now)
    assert not answer.done()
    _told(group, leader, followers[0].id, Appended(core.term, end, False, True))
    core.tick(group.now)
    assert await asyncio.wait_for(answer, 60)


async def test_an_acknowledgement_of_what_was_never_sent_is_refused(group: SimGroup) -> None:
    leader = _leader(group)
    core = _core(leader)
    for next_index in (0, core.journal.last_index + 2):
        with pytest.raises(ProtocolError, match="raft_appended"):
            core.received(_followers(group)[0].id, Appended(core.term, next_index, False, True), group.now)


async def test_a_late_message_cuts_nothing_and_acknowledges_what_it_has(group: SimGroup) -> None:
    leader, follower = _leader(group), _followers(group)[0]
    core = _core(follower)
    before = core.journal[:]
    late = Append(core.term, 1, before[1][1], before[1][2], before[2:3])
    answers = _told(group, follower, leader.id, late)
    assert answers == [(leader.id, Appended(core.term, before[2][1] + 1, False, True))]
    assert core.journal[:] == before
    assert core.journal.take() is None


async def test_a_message_of_an_earlier_leader_is_refused(group: SimGroup) -> None:
    follower, other = _followers(group)
    core = _core(follower)
    end = core.journal[-1]
    entry: Entry = (b"\x00x", end[1] + 1, end[2])
    answers = _told(group, follower, other.id, Append(core.term - 1, 1, end[1], end[2] - 1, []))
    assert answers == [(other.id, Behind(core.term))]
    assert entry not in core.journal[:]


async def test_parts_of_a_snapshot_commit_nothing(group: SimGroup) -> None:
    """Entries that nobody compared with the leader's are not taken for committed."""
    leader, follower = _leader(group), _followers(group)[0]
    core = _core(follower)
    end = core.journal[-1]
    _told(group, follower, leader.id, Append(core.term, 1, end[1], end[2], [(b"\x00\x92\x00\x90", end[1] + 1, end[2])]))
    commit = core.engine.raftCommitIndex
    _told(group, follower, leader.id, SnapshotPart(core.term, 10**6, core.term, 0, 100, b"x"))
    assert core.engine.raftCommitIndex == commit


async def test_a_snapshot_of_the_past_is_not_installed(group: SimGroup) -> None:
    leader, follower = _leader(group), _followers(group)[0]
    core = _core(follower)
    before = core.journal[:], core.engine.raftLastApplied
    answers = _told(group, follower, leader.id, SnapshotPart(core.term, 2, core.term, 0, 3, b"abc"))
    assert answers == [(leader.id, Appended(core.term, core.journal.last_index + 1, True, False))]
    assert (core.journal[:], core.engine.raftLastApplied) == before


# Disks


async def test_a_member_with_an_empty_disk_is_refused_and_the_group_goes_on(group: SimGroup) -> None:
    lost = _followers(group)[0]
    group.crash(lost.id)
    group.wipe(lost.id)
    group.start(lost.id)
    group.run(3)
    assert any(f"member {lost.id} was known with another disk" in one for one in group.refused)
    assert any("remove and add it again" in one for one in group.refused)
    assert _core(lost).term == 0
    before = len(group.checker.acknowledged)
    group.propose(_leader(group))
    group.run(0.5)
    assert len(group.checker.acknowledged) == before + 1


async def test_a_member_with_an_empty_disk_elects_nobody_who_lacks_what_was_committed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """n2 never heard of the command; n1 did and lost its disk; n0, which has it, is away."""
    group = SimGroup(5, monkeypatch)
    for member_id in group.members:
        group.start(member_id)
    group.run_until(lambda: group.leader() is not None)
    leader, (keeper, behind) = _leader(group), _followers(group)
    group.run(1)
    group.crash(behind.id)
    group.propose(leader)
    group.run(1)
    assert group.checker.acknowledged
    group.crash(leader.id)
    group.crash(keeper.id)
    group.wipe(keeper.id)
    group.start(keeper.id)
    group.start(behind.id)
    group.run(10)
    assert group.leader() is None
    group.start(leader.id)
    group.run(5)
    group.checker.check_all(_leader(group).machine)


async def test_a_forgotten_member_comes_back_with_an_empty_disk(group: SimGroup) -> None:
    lost = _followers(group)[0]
    group.crash(lost.id)
    group.wipe(lost.id)
    _core(_leader(group)).engine.offer(encode_change(MemberForgotten(lost.id)), lambda result, reason: None)
    group.run(1)
    group.start(lost.id)
    group.run(3)
    group.checker.check_all(lost.machine)
    assert lost.machine.commands == _leader(group).machine.commands


async def test_an_older_copy_of_a_disk_is_refused(group: SimGroup) -> None:
    member = _followers(group)[0]
    copy = member.disk.crash(Subset(Survivors.ALL))
    for _ in range(2):
        group.crash(member.id)
        group.start(member.id)
        group.run(1.5)
        group.propose(_leader(group))
        group.run(0.5)
    group.crash(member.id)
    member.disk = copy
    group.start(member.id)
    group.run(2)
    assert any("later state of this disk" in one or "its disk is older" in one for one in group.refused)


async def test_a_new_group_waits_for_all_its_members_once(monkeypatch: pytest.MonkeyPatch) -> None:
    group = SimGroup(5, monkeypatch)
    group.start("n0")
    group.start("n1")
    group.run(5)
    assert group.leader() is None
    group.start("n2")
    group.run_until(lambda: group.leader() is not None)


async def test_every_member_of_a_new_group_may_vote_from_the_first_election_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also one that heard of the first leader before it was asked for its vote."""
    group = SimGroup(5, monkeypatch)
    for member_id in group.members:
        group.start(member_id)
    group.run_until(lambda: all(len(_core(one).connected) == 2 for one in group.members.values()))
    late = group.members["n2"]
    assert _told(group, group.members["n1"], "n0", RequestVote(1, 1, 0)) == [("n0", Vote(1))]
    assert _told(group, late, "n0", Append(1, 1, 1, 0, [(b"\x01", 2, 1)]))
    group.run(0.001)
    group.crash("n2")
    group.start("n2")
    group.crash("n0")
    group.run_until(lambda: group.leader() is not None)


async def test_a_member_is_reported_again_after_it_was_forgotten(group: SimGroup) -> None:
    member = _followers(group)[0]
    for _ in range(2):
        group.run(1)
        assert member.id in _core(_leader(group))._replicated.disks
        _core(_leader(group)).engine.offer(encode_change(MemberForgotten(member.id)), lambda result, reason: None)
        group.run(1)
        assert member.id in _core(_leader(group))._replicated.disks
