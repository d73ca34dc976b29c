"""Bugs of epochs in replication: acknowledged messages are lost, or two masters' logs mixed; see `definitions`."""

from typing import Final

from tests.mutants.mutant import Mutant

_SESSION: Final = ("tests/ha/test_session_epochs.py",)
_SET: Final = ("tests/ha/test_replicas_in_set.py",)
_FILE: Final = ("tests/ha/epochs/test_epoch_file.py",)

EPOCH_MUTANTS: Final = (
    Mutant(
        "epoch of a master not compared",
        "ha/slave_session.py",
        "            if self.epoch < self._epochs.accepted:\n",
        "            if False:\n",
        "a slave goes back to a master that was replaced, and acknowledges for it",
        _SESSION,
    ),
    Mutant(
        "newer epoch of a slave not seen",
        "ha/greeting.py",
        "        elif hello.standing is not None and hello.standing.epoch > self._epoch:\n",
        "        elif False:\n",
        "a replaced master does not learn of its successor",
        _SESSION,
    ),
    Mutant(
        "epochs of the logs ignored",
        "ha/slave_session.py",
        "        return high if common is None else max(low, min(common, high))\n",
        "        return high\n",
        "a tail whose bytes happen to be equal counts as the new master's",
        _SESSION,
    ),
    Mutant(
        "truncation at the wrong end",
        "ha/epochs/epoch_history.py",
        "                return min(self._end_of(epoch.number, own_end), other._end_of(epoch.number, other_end))\n",
        "                return max(self._end_of(epoch.number, own_end), other._end_of(epoch.number, other_end))\n",
        "a slave keeps what its own master wrote after the new one had begun",
        _SESSION,
    ),
    Mutant(
        "epoch start written after the bytes",
        "ha/slave_session.py",
        "            if start + size > self._next_epoch_at:\n"
        "                self._begin_epochs(start + size)\n"
        "            self._log.append(start, taken)\n",
        "            self._log.append(start, taken)\n"
        "            if start + size > self._next_epoch_at:\n"
        "                self._begin_epochs(start + size)\n",
        "after a crash bytes of an epoch count as those of the epoch before",
        _SESSION,
    ),
    Mutant(
        "epochs taken over without a comparison",
        "ha/slave_session.py",
        "            return self._resume(now, is_compared=not log.end_offset)\n",
        "            return self._resume(now)\n",
        "a log that nobody compared has the master's epochs, and wins elections with them",
        _SESSION,
    ),
    Mutant(
        "end of a slave not compared with its epochs",
        "ha/master_session.py",
        "        if reason := self._reason_against(offset):\n",
        "        if False and (reason := self._reason_against(offset)):\n",
        "a slave acknowledges a log that another master wrote",
        _SESSION,
    ),
    Mutant(
        "epoch counts before it is on the disk",
        "ha/epochs/epoch_file.py",
        "            self._write(self.path, content)\n            self._history = history\n",
        "            self._history = history\n            self._write(self.path, content)\n",
        "a master leads in an epoch that a crash forgets",
        _FILE,
    ),
    Mutant(
        "epochs of a truncated log kept",
        "ha/epochs/epoch_file.py",
        "        cut = found.cut_at(log_end)\n",
        "        cut = found\n",
        "a log that lost the bytes of an epoch wins elections with it",
        _FILE,
    ),
    Mutant(
        "controllers' set ignored",
        "ha/replicas.py",
        "        return slave.is_in_sync and (self._only is None or slave.broker_id in self._only)\n",
        "        return slave.is_in_sync\n",
        "a slave that cannot be elected acknowledges, and the one that is elected lacks the message",
        _SET,
    ),
    Mutant(
        "slave that may lead not awaited",
        "ha/replicas.py",
        "        self._may_lead = broker_ids if may_lead is None else may_lead | broker_ids\n",
        "        self._may_lead = broker_ids\n",
        "while a change of the set is not decided, a replica leads that lacks an acknowledged message",
        _SET,
    ),
    Mutant(
        "lost slave of the set ignored by consumers",
        "ha/replicas.py",
        "        return min((has.get(broker_id, -1) for broker_id in self._may_lead), default=NO_LIMIT)\n",
        "        return min((has[broker_id] for broker_id in self._may_lead if broker_id in has), default=NO_LIMIT)\n",
        "a consumer sees a message that the next master does not have",
        _SET,
    ),
    Mutant(
        "end of a connection reaches the next role",
        "broker/replication/replication.py",
        "        if self._is_over or progress == before:\n",
        "        if progress == before:\n",
        "a slave that had been the master hides its newest messages",
        ("tests/broker/replication/test_replication.py",),
    ),
)
