"""What is relied upon in pysyncobj, one test per assumption: an upgrade that breaks one fails here.

docs/dependencies.md lists the same.  Nothing of ours is tested here, but how pysyncobj itself behaves.
"""

import inspect
from typing import Any

import pysyncobj
import pytest
from pysyncobj.config import FAIL_REASON, SERIALIZER_STATE
from pysyncobj.journal import Journal as PlainJournal
from pysyncobj.journal import MemoryJournal
from pysyncobj.node import Node
from pysyncobj.serializer import Serializer
from pysyncobj.transport import Transport

from ha.raft.engine import Engine, Outlet
from ha.raft.journal import NO_OP, REGULAR, Journal
from ha.raft.snapshots import Snapshots

_PRIVATE = "_SyncObj__"


class _Recorder(Transport):  # type: ignore[misc]
    """A transport that keeps what is sent."""

    def __init__(self) -> None:
        super().__init__(None, None, ())
        self.sent: list[tuple[str, dict[str, Any]]] = []

    def send(self, node: Node, message: dict[str, Any]) -> bool:
        self.sent.append((node.id, message))
        return True

    def destroy(self) -> None:
        pass

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [message for _, message in self.sent if message["type"] == kind]


class _Raft(pysyncobj.SyncObj):  # type: ignore[misc]
    """pysyncobj as the engine configures it, with its own journal in memory."""

    def __init__(self, others: str = "bc", **settings: Any) -> None:
        self.applied: list[bytes] = []
        self.transport = _Recorder()
        self.peers = [Node(one) for one in others]
        conf = pysyncobj.SyncObjConf(
            autoTick=False, raftMinTimeout=1e9, raftMaxTimeout=2e9, connectionTimeout=2e9, appendEntriesUseBatch=True,
            appendEntriesPeriod=0.05, leaderFallbackTimeout=5.0, commandsWaitLeader=False, useFork=False, **settings,
        )  # fmt: skip
        super().__init__(Node("a"), self.peers, conf, transport=self.transport)

    def _SyncObj__doApplyCommand(self, command: bytes) -> Any:  # noqa: N802
        self.applied.append(command)
        return b"answer"

    def lead(self) -> None:
        """Become the leader of the next term."""
        for peer in self.peers:
            self.transport._onNodeConnected(peer)
        message = {"type": "timeout_now", "term": self.raftCurrentTerm}
        self.transport._onMessageReceived(self._getLeader(), message)
        self.doTick(0.0)
        for peer in self.peers:
            self.transport._onMessageReceived(peer, {"type": "response_vote", "term": self.raftCurrentTerm})

    def acknowledge(self, peer: Node, next_index: int) -> None:
        message = {"type": "next_node_idx", "next_node_idx": next_index, "reset": False, "success": True}
        self.transport._onMessageReceived(peer, message)

    def private(self, name: str) -> Any:
        return getattr(self, _PRIVATE + name)

    def append(self, term: int, previous: tuple[int, int], entries: list[Any], commit: int = 1) -> None:
        message = {"type": "append_entries", "term": term, "commit_index": commit, "entries": entries,
                   "prevLogIdx": previous[0], "prevLogTerm": previous[1]}  # fmt: skip
        self.transport._onMessageReceived(self.peers[0], message)


def test_without_auto_tick_it_starts_no_thread_and_opens_no_file() -> None:
    import threading

    before = threading.active_count()
    raft = _Raft()
    assert threading.active_count() == before
    assert isinstance(raft.private("raftLog"), MemoryJournal)
    assert f"{_PRIVATE}pipeNotifier" not in raft.__dict__


def test_the_transport_that_is_given_is_used_and_gets_the_callbacks() -> None:
    raft = _Raft()
    assert raft.private("transport") is raft.transport
    assert raft.transport.ready


def test_its_own_timer_starts_no_election() -> None:
    raft = _Raft()
    raft.transport._onNodeConnected(raft.peers[0])
    for _ in range(5):
        raft.doTick(0.0)
    assert not raft.transport.sent and raft.raftCurrentTerm == 0


def test_timeout_now_starts_an_election_at_the_next_tick() -> None:
    raft = _Raft()
    raft.transport._onNodeConnected(raft.peers[0])
    raft.transport._onMessageReceived(raft._getLeader(), {"type": "timeout_now", "term": 0})
    assert raft.raftCurrentTerm == 0
    raft.doTick(0.0)
    assert raft.raftCurrentTerm == 1
    [first, second] = raft.transport.of("request_vote")
    assert first == second == {"type": "request_vote", "term": 1, "last_log_index": 1, "last_log_term": 0}
    raft.doTick(0.0)
    assert raft.raftCurrentTerm == 1


def test_timeout_now_works_for_a_follower_and_a_candidate() -> None:
    raft = _Raft()
    raft.append(1, (1, 0), [])
    raft.transport._onNodeConnected(raft.peers[0])
    for term in (1, 2):
        raft.transport._onMessageReceived(raft._getLeader(), {"type": "timeout_now", "term": term})
        raft.doTick(0.0)
        assert raft.raftCurrentTerm == term + 1


def test_a_request_that_cannot_be_granted_raises_the_term_alone() -> None:
    raft = _Raft()
    raft.lead()
    message = {"type": "request_vote", "term": 9, "last_log_term": -1, "last_log_index": 0}
    raft.transport._onMessageReceived(raft.peers[0], message)
    assert raft.raftCurrentTerm == 9 and not raft._isLeader() and raft._getLeader() is None
    assert not raft.transport.of("response_vote")
    assert raft.private("votedForNodeId") is None


def test_term_and_vote_reach_the_journal_before_the_vote_is_sent() -> None:
    raft = _Raft()
    seen: list[Any] = []
    journal = raft.private("raftLog")
    raft.transport.send = lambda node, message: seen.append(  # type: ignore[method-assign]
        (message["type"], journal.getCurrentTerm(), journal.getVotedForNodeId())
    )
    message = {"type": "request_vote", "term": 3, "last_log_term": 0, "last_log_index": 1}
    raft.transport._onMessageReceived(raft.peers[0], message)
    assert seen == [("response_vote", 3, "b")]


def test_a_leader_begins_its_term_with_a_no_op() -> None:
    raft = _Raft()
    raft.lead()
    assert raft._isLeader() and raft._getLeader() == Node("a")
    assert raft.private("raftLog")[-1] == (NO_OP, 2, 1)


def test_commands_are_committed_by_a_majority_at_the_next_tick_and_answered_in_it() -> None:
    raft = _Raft()
    raft.lead()
    outcomes: list[Any] = []
    raft._applyCommand(REGULAR + b"x", lambda result, reason: outcomes.append((result, reason)))
    raft.doTick(0.0)
    assert raft.private("raftLog")[-1] == (REGULAR + b"x", 3, 1)
    raft.doTick(0.0)
    assert not outcomes
    raft.acknowledge(raft.peers[0], 4)
    assert not outcomes
    raft.doTick(0.0)
    assert outcomes == [(b"answer", FAIL_REASON.SUCCESS)]
    assert raft.applied == [NO_OP, REGULAR + b"x"]
    assert raft.raftLastApplied == raft.raftCommitIndex == 3


def test_a_command_type_is_not_added_to_a_command_without_one() -> None:
    assert "commandType is None" in inspect.getsource(pysyncobj.SyncObj._applyCommand)


def test_a_command_goes_to_the_followers_when_it_is_asked_for() -> None:
    raft = _Raft()
    raft.lead()
    raft._applyCommand(REGULAR + b"x", None)
    raft.doTick(0.0)
    raft.transport.sent.clear()
    raft.private("sendAppendEntries")()
    assert [one["entries"] for one in raft.transport.of("append_entries")] == [[(REGULAR + b"x", 3, 1)]] * 2


def test_entries_of_an_earlier_term_are_not_committed_by_counting() -> None:
    raft = _Raft()
    raft.append(1, (1, 0), [(REGULAR + b"x", 2, 1)])
    raft.lead()
    raft.acknowledge(raft.peers[0], 3)
    raft.doTick(0.0)
    assert raft.raftCommitIndex == 1
    raft.acknowledge(raft.peers[0], 4)
    raft.doTick(0.0)
    assert raft.raftCommitIndex == 3


def test_a_member_that_does_not_lead_refuses_a_command_if_it_knows_no_leader() -> None:
    raft = _Raft()
    outcomes: list[int] = []
    raft._applyCommand(REGULAR, lambda result, reason: outcomes.append(reason))
    raft.doTick(0.0)
    assert outcomes == [FAIL_REASON.MISSING_LEADER]


def test_a_leader_that_nobody_answers_steps_down(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr("pysyncobj.syncobj.monotonicTime", lambda: now[0])
    raft = _Raft()
    raft.lead()
    now[0] += 4.9
    raft.doTick(0.0)
    assert raft._isLeader()
    now[0] += 0.2
    raft.doTick(0.0)
    assert not raft._isLeader() and raft._getLeader() is None


def test_a_follower_appends_and_answers_with_the_next_index() -> None:
    raft = _Raft()
    raft.append(1, (1, 0), [(REGULAR + b"x", 2, 1)], commit=2)
    answer = {"type": "next_node_idx", "next_node_idx": 3, "reset": False, "success": True}
    assert raft.transport.of("next_node_idx") == [answer]
    raft.doTick(0.0)
    assert raft.applied == [REGULAR + b"x"]
    raft.append(1, (7, 1), [])
    assert raft.transport.of("next_node_idx")[-1] == {**answer, "reset": True, "success": False}


def test_a_candidate_counts_votes_without_looking_who_cast_them() -> None:
    """So `ha.raft.core` counts each member once.  When this fails, pysyncobj does it itself."""
    raft = _Raft("bcde")
    raft.transport._onNodeConnected(raft.peers[0])
    raft.transport._onMessageReceived(None, {"type": "timeout_now", "term": 0})
    raft.doTick(0.0)
    for _ in range(2):
        raft.transport._onMessageReceived(raft.peers[0], {"type": "response_vote", "term": 1})
    assert raft._isLeader()


def test_a_late_message_cuts_the_log() -> None:
    """So `ha.raft.journal` puts back what was cut.  When this fails, pysyncobj does it itself."""
    raft = _Raft()
    entries = [(REGULAR + b"%d" % index, index, 1) for index in range(2, 6)]
    raft.append(1, (1, 0), entries)
    raft.append(1, (2, 1), entries[1:2])
    assert len(raft.private("raftLog")) == 3


def test_entries_below_the_limit_are_never_sent_as_pickles() -> None:
    raft = _Raft(appendEntriesBatchSizeBytes=1000)
    raft.lead()
    for size in (998, 500, 998):
        raft._applyCommand(REGULAR + bytes(size), None)
    raft.doTick(0.0)
    raft.transport.sent.clear()
    raft.private("sendAppendEntries")()
    assert raft.transport.sent
    assert not any("transmission" in message for _, message in raft.transport.sent)


def test_the_methods_and_fields_that_the_engine_replaces_are_there() -> None:
    raft = _Raft()
    for name in ("raftLog", "serializer", "raftCurrentTerm", "votedForNodeId", "raftCommitIndex"):
        assert _PRIVATE + name in raft.__dict__
    for name in ("doApplyCommand", "parseChangeClusterRequest", "loadDumpFile", "sendAppendEntries"):
        assert hasattr(pysyncobj.SyncObj, _PRIVATE + name)
    assert _PRIVATE + "doApplyCommand" in Engine.__dict__


def test_nothing_else_of_it_unpickles() -> None:
    """All places that load a pickle: applying a command, a membership change, an entry in parts, and snapshots."""
    source = inspect.getsource(pysyncobj.syncobj)
    assert source.count("pickle.loads(") == 4
    assert source.count("pickle.load(") == 0
    in_apply = inspect.getsource(getattr(pysyncobj.SyncObj, _PRIVATE + "doApplyCommand")).count("pickle.loads(")
    in_change = inspect.getsource(getattr(pysyncobj.SyncObj, _PRIVATE + "parseChangeClusterRequest"))
    in_message = inspect.getsource(getattr(pysyncobj.SyncObj, _PRIVATE + "onMessageReceived"))
    assert (in_apply, in_change.count("pickle.loads("), in_message.count("pickle.loads(")) == (2, 1, 1)
    assert "pickle.loads(self.__recvTransmission)" in in_message


def test_our_journal_and_snapshots_have_all_methods_that_it_may_call() -> None:
    for name, _ in inspect.getmembers(PlainJournal, inspect.isfunction):
        assert hasattr(Journal, name), name
    for name, _ in inspect.getmembers(Serializer, inspect.isfunction):
        if not name.startswith("_"):
            assert hasattr(Snapshots, name), name
    assert set(inspect.signature(PlainJournal.add).parameters) == set(inspect.signature(Journal.add).parameters)


def test_a_transport_has_the_methods_that_the_outlet_uses() -> None:
    for name in ("_onMessageReceived", "_onNodeConnected", "_onNodeDisconnected", "send", "destroy", "addNode"):
        assert callable(getattr(Outlet, name))


def test_snapshots_are_asked_for_with_the_last_entries_and_then_the_log_is_cut() -> None:
    raft = _Raft(logCompactionMinEntries=3)
    calls: list[Any] = []

    class Keeper:
        state = SERIALIZER_STATE.NOT_SERIALIZING

        def checkSerializing(self) -> tuple[int, int]:  # noqa: N802
            return self.state, calls[0][1] if calls else 0

        def serialize(self, data: Any, id: int) -> None:
            calls.append((data, id))

        def cancelTransmisstion(self, node: Node) -> None:  # noqa: N802
            pass

    keeper = Keeper()
    setattr(raft, _PRIVATE + "serializer", keeper)
    entries = [(REGULAR + b"%d" % index, index, 1) for index in range(2, 8)]
    raft.append(1, (1, 0), entries, commit=6)
    raft.doTick(0.0)
    [((_, last, previous, _), index)] = calls
    assert (last, previous, index) == (entries[4], entries[3], 5)
    keeper.state = SERIALIZER_STATE.SERIALIZING
    raft.doTick(0.0)
    assert len(calls) == 1 and len(raft.private("raftLog")) == 7
    keeper.state = SERIALIZER_STATE.SUCCESS
    raft.doTick(0.0)
    assert raft.private("raftLog")[0] == entries[3]


def test_a_leader_asks_for_parts_until_a_member_is_not_connected() -> None:
    """`ha.raft.core` ends that loop so; without it pysyncobj asks for a heartbeat's time."""
    raft = _Raft()
    raft.lead()
    asked: list[Any] = []

    class Keeper:
        def getTransmissionData(self, node: Node) -> None:  # noqa: N802
            asked.append(node)
            raft.transport._onNodeDisconnected(node)

        def cancelTransmisstion(self, node: Node) -> None:  # noqa: N802
            asked.append("cancelled")

    setattr(raft, _PRIVATE + "serializer", Keeper())
    for peer in raft.peers:
        message = {"type": "next_node_idx", "next_node_idx": 1, "reset": True, "success": False}
        raft.transport._onMessageReceived(peer, message)
    raft.private("sendAppendEntries")()
    assert sorted(one.id for one in asked) == ["b", "c"]
    assert raft.transport.of("append_entries")[-1]["serialized"] is None
