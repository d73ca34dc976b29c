"""Which tables a master sends before a record that follows a change."""

from collections.abc import Hashable
from types import SimpleNamespace
from typing import Any, cast

from broker.replicated_table import ReplicatedTable
from broker.replication.table_stream import EarlyTables
from ha.table_queue import TableQueue, TableUpdate


class _Master:
    """A master with two tables for whose changes somebody waits, and the queue of one slave."""

    def __init__(self) -> None:
        self.versions = {"groups": 1, "quotas": 1}
        self.changes = SimpleNamespace(count=0)
        self.slave = TableQueue()
        tables = [self._table(name) for name in self.versions]
        self._early = EarlyTables(cast("Any", SimpleNamespace(all=tables)), cast("Any", self.changes))

    def _table(self, name: str) -> ReplicatedTable:
        def mark() -> Hashable:
            return self.versions[name]

        def content() -> bytes:
            return b"%d" % self.versions[name]

        return ReplicatedTable(name, None, mark, content, lambda _: lambda: None, is_awaited=True)

    def sent(self) -> list[tuple[str, bytes]]:
        """Return what goes to the slave before the next record."""
        self._early.send(cast("Any", SimpleNamespace(tables=self.slave)))
        return [(update.name, update.content) for update in self.slave.take(0)]


def test_only_what_the_slave_does_not_have_precedes_the_record_after_a_change() -> None:
    master = _Master()
    assert master.sent() == []
    master.slave.begin([TableUpdate(0, "groups", b"1", 1), TableUpdate(0, "quotas", b"1", 1)])
    master.slave.take(0)  # a look sent both
    master.versions["quotas"] = 2
    master.changes.count += 1
    assert master.sent() == [("quotas", b"2")]
    master.versions["groups"] = 2
    assert master.sent() == []  # nobody waits for this one


def test_what_a_look_has_queued_behind_log_is_sent_before_the_record_all_the_same() -> None:
    master = _Master()
    master.slave.begin([TableUpdate(0, "groups", b"1", 1), TableUpdate(0, "quotas", b"1", 1)])
    master.slave.take(0)
    master.versions["groups"] = 2
    master.slave.add(TableUpdate(500, "groups", b"2", 2))
    master.changes.count += 1
    assert master.sent() == [("groups", b"2")]
    assert master.slave.take(500) == [] and master.slave.mark("groups") == 2
