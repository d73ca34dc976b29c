"""Bugs of the Raft layer.  Each loses acknowledged entries or lets two members lead; see `definitions`."""

from typing import Final

from tests.mutants.mutant import Mutant

_CORE: Final = ("tests/ha/raft/test_core.py",)
_JOURNAL: Final = ("tests/ha/raft/test_journal.py",)
_MEMBER: Final = ("tests/ha/raft/test_member.py",)
_GREETING: Final = ("tests/ha/raft/test_greeting.py",)

RAFT_MUTANTS: Final = (
    Mutant(
        "vote without sync",
        "ha/raft/storage.py",
        "        if unsynced is not None and unsynced.vote is not None:\n",
        "        if False and unsynced is not None and unsynced.vote is not None:\n",
        "a member that lost power votes twice in a term, and two members lead",
        (f"{_CORE[0]}::test_a_vote_is_remembered_over_a_power_cut", *_JOURNAL),
    ),
    Mutant(
        "acknowledge without sync",
        "ha/raft/journal_file.py",
        "        self._file.sync()\n        self._end +=",
        "        self._end +=",
        "a power cut takes entries that a majority acknowledged",
        _JOURNAL,
    ),
    Mutant(
        "sent before the sync",
        "ha/raft/member.py",
        "                await self._sync(core)\n                self._send_all(core)\n",
        "                self._send_all(core)\n                await self._sync(core)\n",
        "votes and acknowledgements leave before they are on the disk",
        _MEMBER,
    ),
    Mutant(
        "tail cut by a late message",
        "ha/raft/journal.py",
        "            self._entries += removed[kept - added_from :]\n            self._clean = self._removed_clean\n",
        "            self._is_rewrite = True\n",
        "a late message takes entries that this member acknowledged",
        _JOURNAL,
    ),
    Mutant(
        "acknowledgement of an earlier term counts",
        "ha/raft/core.py",
        "        if message.term != self.term or not self.engine.is_raft_leader:\n            return\n        end",
        "        if not self.engine.is_raft_leader:\n            return\n        end",
        "a leader takes for replicated what the follower has replaced since",
        _CORE,
    ),
    Mutant(
        "vote of a member counted twice",
        "ha/raft/core.py",
        "        if message.term == self.term and member_id not in members:\n",
        "        if message.term == self.term:\n",
        "a candidate leads without a majority",
        _CORE,
    ),
    Mutant(
        "vote while a leader is heard",
        "ha/raft/core.py",
        "        if not self._may_vote or self.engine.is_raft_leader or self.elections.hears_leader(now):\n",
        "        if not self._may_vote:\n",
        "a member that was cut off deposes a healthy leader",
        _CORE,
    ),
    Mutant(
        "member without a past votes",
        "ha/raft/core.py",
        "        if self.journal.vote.is_founder or self._knows_own_disk:\n",
        "        if True:\n",
        "a member that lost its disk elects one that lacks what was committed",
        _CORE,
    ),
    Mutant(
        "another disk accepted",
        "ha/raft/replicated.py",
        '    if known is None or (known.disk_id == disk_id and known.starts <= starts):\n        return ""\n',
        '    if True:\n        return ""\n',
        "a member that forgot what it acknowledged takes part",
        _CORE,
    ),
    Mutant(
        "commit index beside a snapshot's parts",
        "ha/raft/messages.py",
        '"commit_index": 0, "serialized"',
        '"commit_index": 10**9, "serialized"',
        "a follower applies entries that nobody compared with the leader's",
        _CORE,
    ),
    Mutant(
        "damaged middle taken for a torn end",
        "ha/raft/journal_file.py",
        "        if _body_at(content, later, salt, None) is not None:\n",
        "        if False:\n",
        "a flipped bit takes all acknowledged entries after it, silently",
        _JOURNAL,
    ),
    Mutant(
        "proof not checked",
        "ha/raft/greeting.py",
        '        if self._secret and not hmac.compare_digest(self._digest(b"dial"), proof.proof):\n',
        "        if False:\n",
        "anybody who reaches the port is a member",
        _GREETING,
    ),
)
