"""Members over real sockets and files: what leaves before a sync, errors of disks, starts that are refused."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from ha.raft import engine
from ha.raft.consensus import ConsensusError, Member, NotLeaderError, OutcomeUnknownError
from ha.raft.member import RaftMember
from ha.raft.members import check_members, parse_members
from ha.raft.proposals import MAX_USER_COMMAND_BYTES
from sprocket.common.errors import ConfigError, DiskFailed
from tests.ha.raft.groups import LocalGroup, until


@pytest.fixture
async def group(tmp_path: Path) -> AsyncIterator[LocalGroup]:
    group = LocalGroup(tmp_path)
    try:
        yield group
    finally:
        await group.close()


class Gate:
    """Blocking work passes only while the gate is open."""

    def __init__(self) -> None:
        self._open = threading.Event()
        self._open.set()

    async def in_thread(self, work: Callable[[], None]) -> None:
        def run() -> None:
            assert self._open.wait(30)
            work()

        await asyncio.to_thread(run)

    def close(self) -> None:
        self._open.clear()

    def open(self) -> None:
        self._open.set()


async def _with_gate(group: LocalGroup) -> tuple[RaftMember, str, Gate]:
    """Start a group; return its leader, and a follower all of whose syncs pass a gate.  The third one is stopped."""
    await group.start()
    leader = await group.leader()
    assert leader.leader is not None
    gated, stopped = (one.id for one in group.places if one.id != leader.leader)
    await group.stop(gated)
    gate = Gate()
    member = group.build(gated, in_thread=gate.in_thread)
    await member.start()

    async def follows() -> bool:
        return member.leader == leader.leader

    await until(follows)
    await group.stop(stopped)
    return leader, gated, gate


async def test_nothing_is_acknowledged_before_the_sync(group: LocalGroup) -> None:
    leader, _, gate = await _with_gate(group)
    gate.close()
    proposing = asyncio.create_task(leader.propose(b"x", timeout_ms=5000))
    await asyncio.sleep(0.3)
    assert not proposing.done()
    gate.open()
    assert await proposing


async def test_no_vote_leaves_before_the_sync(group: LocalGroup) -> None:
    leader, gated, gate = await _with_gate(group)
    leader_id = leader.leader
    assert leader_id is not None
    third = next(one.id for one in group.places if one.id not in (leader_id, gated))
    gate.close()
    await group.stop(leader_id)
    await group.start(third)
    # Long enough for several elections, which need the vote of the gated member, or its own.
    await asyncio.sleep(2.5)
    assert not any(one.is_leader for one in group.members.values())
    gate.open()
    await group.leader()


async def test_a_command_is_answered_by_every_member_alike(group: LocalGroup) -> None:
    await group.start()
    leader = await group.leader()
    answers = await asyncio.gather(*(leader.propose(b"%d" % at, timeout_ms=60_000) for at in range(500)))
    assert answers == [b"%d %d" % (at + 1, at) for at in range(500)]

    async def all_have_them() -> bool:
        return all(len(one.commands) == 500 for one in group.machines.values())

    await until(all_have_them)
    await leader.confirm_leadership(timeout_ms=30_000)


async def test_a_follower_refuses_commands_and_names_the_leader(group: LocalGroup) -> None:
    await group.start()
    leader = await group.leader()

    async def all_follow() -> bool:
        return all(one.leader == leader.leader for one in group.members.values())

    await until(all_follow)
    for member in group.members.values():
        if member is not leader:
            with pytest.raises(NotLeaderError, match=f"ask {leader.leader}"):
                await member.propose(b"x", timeout_ms=1000)
            with pytest.raises(NotLeaderError):
                await member.confirm_leadership(timeout_ms=1000)


async def test_a_command_that_is_too_large_is_refused(group: LocalGroup) -> None:
    await group.start()
    leader = await group.leader()
    with pytest.raises(ValueError, match="the maximum is"):
        await leader.propose(bytes(MAX_USER_COMMAND_BYTES + 1), timeout_ms=1000)
    large = bytes(MAX_USER_COMMAND_BYTES)
    answers = await asyncio.gather(*(leader.propose(large, timeout_ms=5000) for _ in range(6)))
    assert [one.partition(b" ")[0] for one in answers] == [b"1", b"2", b"3", b"4", b"5", b"6"]


async def test_a_leader_without_a_majority_confirms_nothing_and_steps_down(group: LocalGroup) -> None:
    await group.start()
    leader = await group.leader()
    own_id = leader.leader
    for one in group.places:
        if one.id != own_id:
            await group.stop(one.id)
    proposing = asyncio.create_task(leader.propose(b"x", timeout_ms=1500))
    with pytest.raises(NotLeaderError):
        await leader.confirm_leadership(timeout_ms=300)
    with pytest.raises(OutcomeUnknownError):
        await proposing

    async def steps_down() -> bool:
        return not leader.is_leader and leader.leader is None

    await until(steps_down)
    with pytest.raises(NotLeaderError):
        await leader.propose(b"y", timeout_ms=100)


async def test_a_group_of_one_works(tmp_path: Path) -> None:
    group = LocalGroup(tmp_path, 1)
    for at in range(2):
        await group.start()
        leader = await group.leader()
        assert await leader.propose(b"x", timeout_ms=2000) == b"%d x" % (at + 1)
        await leader.confirm_leadership(timeout_ms=1000)
        await group.close()


async def test_a_member_far_behind_gets_a_snapshot_in_parts(group: LocalGroup, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "COMPACT_ENTRIES", 20)
    await group.start()
    leader = await group.leader()
    behind = next(one.id for one in group.places if one.id != leader.leader)
    await group.stop(behind)
    # More bytes than may be on the way at once.
    for at in range(40):
        await leader.propose(b"%d " % at + bytes(100_000), timeout_ms=5000)
    await group.start(behind)
    wanted = group.machines[leader.leader or ""].commands

    async def has_them() -> bool:
        return group.machines[behind].commands == wanted

    await until(has_them)
    await group.propose(b"after")
    # It starts again from that snapshot.
    await group.stop(behind)
    await group.start(behind)

    async def has_all() -> bool:
        return group.machines[behind].commands == [*wanted[:40], b"after"]

    await until(has_all)


async def test_a_disk_error_stops_a_member_and_the_others_go_on(
    group: LocalGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    await group.start()
    leader = await group.leader()
    failing = leader.leader
    assert failing is not None
    storage = leader._storage

    def fail(*_: object) -> None:
        raise DiskFailed("no more")

    monkeypatch.setattr(storage, "write", fail)
    with pytest.raises((OutcomeUnknownError, NotLeaderError)):
        await leader.propose(b"lost", timeout_ms=2000)

    async def failed() -> bool:
        return failing in group.failures

    await until(failed)
    assert isinstance(group.failures[failing], DiskFailed)
    assert not leader.is_leader and leader.leader is None
    with pytest.raises(NotLeaderError):
        await leader.propose(b"x", timeout_ms=100)
    await group.stop(failing)
    assert await group.propose(b"y")


async def test_listeners_hear_of_each_leader_once(group: LocalGroup) -> None:
    heard: list[tuple[str | None, int]] = []
    await group.start("n1", "n2")
    member = group.build("n0", listeners=[lambda leader, term: heard.append((leader, term))])
    await member.start()
    leader = await group.leader()
    await asyncio.sleep(0.2)
    assert heard[-1] == (leader.leader, leader.term)
    assert len(heard) == len(set(heard))


async def test_a_member_is_forgotten_only_while_it_is_away(group: LocalGroup) -> None:
    await group.start()
    leader = await group.leader()
    other = next(one.id for one in group.places if one.id != leader.leader)
    with pytest.raises(ConsensusError, match="is connected"):
        await leader.forget_member(other, timeout_ms=1000)
    with pytest.raises(ConsensusError, match="not another member"):
        await leader.forget_member("n9", timeout_ms=1000)
    await group.propose(b"x")
    await group.stop(other)
    (group.root / other).rename(group.root / "lost")
    await group.start(other)
    await asyncio.sleep(1.5)
    assert group.members[other].leader is None
    await leader.forget_member(other, timeout_ms=2000)

    async def follows() -> bool:
        return group.machines[other].commands == [b"x"]

    await until(follows)


# Starts that are refused


def test_members_are_read_as_rocketmq_writes_them() -> None:
    members = parse_members("n0-127.0.0.1:9877;n1-host-a.b:9878; n2-[::1]:9879")
    assert members == (Member("n0", "127.0.0.1", 9877), Member("n1", "host-a.b", 9878), Member("n2", "::1", 9879))
    assert parse_members(";".join(str(one) for one in members)) == members


@pytest.mark.parametrize("text", ["n0", "n0-host", "n0-:1", "n0-host:0", "n0-host:65536", "n0-host:x", "host:1"])
def test_what_is_no_member_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="write <id>-<host>:<port>"):
        parse_members(text)


@pytest.mark.parametrize(
    ("text", "own_id", "words"),
    [
        ("", "n0", "no members"),
        ("n0-a:1;n1-b:1", "n2", "own id 'n2' is not among the members n0, n1"),
        ("n0-a:1;n0-b:1", "n0", "more than one member has the id n0"),
        ("n0-a:1;n1-a:1", "n0", "more than one member has the address a:1"),
        ("n 0-a:1", "n 0", "the member id 'n 0' is refused"),
        (";".join(f"n{at}-a:{at + 1}" for at in range(10)), "n0", "the maximum is 9"),
    ],
)
def test_members_that_cannot_form_a_group_are_refused(text: str, own_id: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        check_members(parse_members(text), own_id)


async def test_a_port_that_is_taken_is_named(group: LocalGroup) -> None:
    own = group.places[0]
    server = await asyncio.start_server(lambda reader, writer: None, own.host, own.port)
    with pytest.raises(ConfigError, match=f"member {own} cannot listen"):
        await group.build("n0").start()
    del group.members["n0"]
    server.close()
    # It left nothing behind.
    await group.start("n0")
