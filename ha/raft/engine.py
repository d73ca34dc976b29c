"""pysyncobj, with a journal, snapshots and a transport of ours.  docs/dependencies.md lists all that is relied upon.

The engine runs in the event loop's thread, without threads and timers of its own: the state machine then has one
owner, a tick costs some ten microseconds, and all that blocks is the disk, which the member syncs in a thread.

Some parts have no parameter in pysyncobj and are replaced by their private names; `Engine` refuses to start if one is
missing.  Its own election timer never expires; `stand` starts an election, by the message of a leader that hands over.
"""

from collections.abc import Callable, Iterable
from typing import Any, Final

import pysyncobj
from pysyncobj.node import Node
from pysyncobj.transport import Transport

from ha.raft.elections import Timing
from ha.raft.journal import Journal
from ha.raft.messages import BATCH_BYTES
from ha.raft.snapshots import Snapshots
from sprocket.common.errors import ConfigError
from store.record.checksum import crc32

Outcome = Callable[[Any, int], None]

# Longer than any process runs.
_NEVER_S: Final = 1e9
_METHODS: Final = (
    "doApplyCommand",
    "parseChangeClusterRequest",
    "loadDumpFile",
    "sendAppendEntries",
    "tryLogCompaction",
)
_FIELDS: Final = (
    "raftLog",
    "serializer",
    "raftCurrentTerm",
    "votedForNodeId",
    "raftCommitIndex",
    "raftElectionDeadline",
)
# Entries after which the log is compacted, and bytes.
COMPACT_ENTRIES: Final = 5000
COMPACT_BYTES: Final = 2 * 1024 * 1024


class _Peer(Node):  # type: ignore[misc]
    """A node whose hash is the same in each process, and with it the order in which pysyncobj serves nodes."""

    def __hash__(self) -> int:
        return crc32(str(self.id).encode())


class Outlet(Transport):  # type: ignore[misc]
    """pysyncobj's transport: hands messages to `send`, and gives `deliver`, `joined` and `left` to the member."""

    def __init__(self, send: Callable[[str, dict[str, Any]], None]) -> None:
        super().__init__(None, None, ())
        self._hand_over = send

    def send(self, node: Node, message: dict[str, Any]) -> bool:
        """Take a message for `node`."""
        self._hand_over(node.id, message)
        return True

    def destroy(self) -> None:
        """Do nothing: the member closes the connections."""

    def deliver(self, node: Node | None, message: dict[str, Any]) -> None:
        """Give a message of `node` to pysyncobj."""
        self._onMessageReceived(node, message)

    def joined(self, node: Node) -> None:
        """Tell pysyncobj that `node` is connected."""
        self._onNodeConnected(node)

    def left(self, node: Node) -> None:
        """Tell pysyncobj that `node` is not connected any more."""
        self._onNodeDisconnected(node)


class Engine(pysyncobj.SyncObj):  # type: ignore[misc]
    """One member's Raft state."""

    def __init__(
        self,
        own_id: str,
        other_ids: Iterable[str],
        timing: Timing,
        outlet: Outlet,
        journal: Journal,
        snapshots: Snapshots,
        apply: Callable[[bytes], Any],
    ) -> None:
        """Take over what `journal` and `snapshots` hold.  Raises `ConfigError` for a pysyncobj that does not fit."""
        self._apply = apply
        self._outlet = outlet
        self.nodes = {one: _Peer(one) for one in other_ids}
        conf = pysyncobj.SyncObjConf(
            autoTick=False,
            raftMinTimeout=_NEVER_S,
            raftMaxTimeout=2 * _NEVER_S,
            connectionTimeout=2 * _NEVER_S,
            appendEntriesPeriod=timing.heartbeat_s,
            leaderFallbackTimeout=timing.step_down_s,
            appendEntriesUseBatch=True,
            appendEntriesBatchSizeBytes=BATCH_BYTES,
            commandsWaitLeader=False,
            dynamicMembershipChange=False,
            logCompactionMinEntries=COMPACT_ENTRIES,
            logCompactionMinTime=_NEVER_S,
            useFork=False,
        )
        _require_methods()
        super().__init__(_Peer(own_id), list(self.nodes.values()), conf, transport=outlet)
        self._require_fields()
        self._SyncObj__raftLog = journal
        self._SyncObj__serializer = snapshots
        self._SyncObj__raftCurrentTerm = max(journal.getCurrentTerm(), journal.last_term)
        self._SyncObj__votedForNodeId = journal.getVotedForNodeId()
        self._SyncObj__raftCommitIndex = journal.getRaftCommitIndex()
        if snapshots.held is not None:
            self._SyncObj__loadDumpFile(clearJournal=False)
            journal.settle()

    def _require_fields(self) -> None:
        missing = [name for name in _FIELDS if f"_SyncObj__{name}" not in self.__dict__]
        if missing:
            raise ConfigError(f"pysyncobj has no {', '.join(missing)}: install a version that setup.cfg allows")

    # pysyncobj unpickles commands here.  Names of one class's privates, so that these are called instead.

    def _SyncObj__doApplyCommand(self, command: bytes) -> Any:  # noqa: N802
        return self._apply(command)

    def _SyncObj__parseChangeClusterRequest(self, command: bytes) -> None:  # noqa: N802
        return None

    # For the member

    def stand(self) -> None:
        """Start an election at the next tick."""
        self._outlet.deliver(self._getLeader(), {"type": "timeout_now", "term": self.raftCurrentTerm})

    def vote_for(self, member_id: str) -> None:
        """Give this member's vote in the current term, which nobody has, without telling anybody."""
        self._SyncObj__votedForNodeId = member_id
        self._SyncObj__raftLog.setCurrentTerm(self.raftCurrentTerm, member_id)

    def raise_term(self, term: int) -> None:
        """Become a follower in `term` without giving the vote, as after a request for a vote that is refused."""
        message = {"type": "request_vote", "term": term, "last_log_term": -1, "last_log_index": 0}
        self._outlet.deliver(next(iter(self.nodes.values())), message)

    def offer(self, command: bytes, outcome: Outcome) -> None:
        """Append `command` at the next tick if this member leads then.  `outcome` gets the answers, and a reason."""
        self._applyCommand(command, outcome)

    def send_entries(self) -> None:
        """Send to the followers what they lack, without waiting for the next heartbeat."""
        self._SyncObj__sendAppendEntries()

    @property
    def is_raft_leader(self) -> bool:
        """Whether pysyncobj has this member as the leader of its term."""
        return bool(self._isLeader())

    @property
    def leader_id(self) -> str | None:
        """Id of the leader of the current term, if this member knows it."""
        leader = self._getLeader()
        return None if leader is None else str(leader.id)


def _require_methods() -> None:
    missing = [name for name in _METHODS if not hasattr(pysyncobj.SyncObj, f"_SyncObj__{name}")]
    if missing:
        raise ConfigError(f"pysyncobj has no {', '.join(missing)}: install a version that setup.cfg allows")
