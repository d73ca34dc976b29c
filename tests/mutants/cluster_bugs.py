"""Bugs of replication that the simulated cluster finds within its first seeds; see `tests.mutants.definitions`."""

from typing import Final

from tests.mutants.mutant import Mutant

_CLUSTER: Final = tuple(
    f"tests/sim/cluster/test_cluster.py::test_nothing_promised_is_lost_and_all_catches_up[{first}]" for first in (0, 10)
)

CLUSTER_MUTANTS: Final = (
    Mutant(
        "acknowledged before a slave has it",
        "store/flush/confirmation.py",
        "        elif self.local_offset >= physical_offset and self.awaited_offset >= physical_offset:\n"
        "            callback(None, self._acknowledged >= physical_offset)\n",
        "        elif self.local_offset >= physical_offset:\n            callback(None, True)\n",
        "SYNC_MASTER answers SEND_OK for what is lost with the master's disk",
        _CLUSTER,
    ),
    Mutant(
        "report of what was not sent counted",
        "ha/master_link.py",
        "        elif offset > self.next_offset:\n",
        "        elif offset < 0:\n",
        "any peer at the port for slaves acknowledges what no slave has",
        _CLUSTER,
    ),
    Mutant(
        "slave's log not compared with its master's",
        "ha/slave_session.py",
        "        if search.end == end:\n            return self._resume(now)\n",
        "        if search.end <= end:\n            return self._resume(now)\n",
        "a slave goes on behind records that its master has lost",
        _CLUSTER,
    ),
    Mutant(
        "replicas do not limit what consumers see",
        "store/flush/confirmation.py",
        "        return min(self.local_offset, self._limit)\n",
        "        return self.local_offset\n",
        "consumers see what is lost with the master's disk",
        _CLUSTER,
    ),
    Mutant(
        "slave's log ends within a record",
        "store/replica/replica_log.py",
        "            batch.end_offset = self._dispatch(dispatch, batch, before, received, parts)\n",
        "            batch.end_offset = max(received, self._dispatch(dispatch, batch, before, received, parts))\n",
        "a slave acknowledges a record that is not whole, and its queues lack it",
        _CLUSTER,
    ),
    Mutant(
        "slave reports what it was sent",
        "ha/slave_session.py",
        "        self._reported = log.end_offset\n        self._flushed_reported",
        "        self._reported = max(log.end_offset, self.master_offset)\n        self._flushed_reported",
        "a slave acknowledges what it does not have",
        _CLUSTER,
    ),
    Mutant(
        "log flush skipped",
        "store/flush/group_commit.py",
        "                file.sync()\n                _AFTER_FILE()",
        "                _AFTER_FILE()",
        "a power cut takes what was answered for as flushed",
        _CLUSTER,
    ),
    Mutant(
        "master waits for no tail",
        "broker/replication/master_sessions.py",
        "        return report is not None and not report.was_clean",
        "        return False",
        "after a power cut a master writes over what it has acknowledged and a slave has",
        _CLUSTER,
    ),
    Mutant(
        "part of a list taken for the list",
        "broker/out/registration.py",
        "await self._register(name_server, part, part_version, is_part=True)",
        "await self._register(name_server, part, part_version)",
        "a name server that deletes removes the routes of the other parts",
        ("tests/broker/out/test_registration.py",),
    ),
    Mutant(
        "route removed before a whole table went by",
        "namesrv/named_topics.py",
        "last[topic] <= moment - 4",
        "last[topic] <= moment - 2",
        "a part that names the fixed topics removes routes that are in use",
        ("tests/namesrv/test_named_topics.py",),
    ),
    Mutant(
        "changed topics taken for the list",
        "broker/out/registration.py",
        "await self._register(name_server, topics, self._topics.part_version(), is_part=True)",
        "await self._register(name_server, topics, self._topics.part_version())",
        "a name server that deletes removes all other routes of the broker",
        ("tests/broker/out/test_registration.py",),
    ),
)
