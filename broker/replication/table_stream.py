"""Tables between two Sprocket replicas: changes travel in the stream of the log.

A master looks for changes five times a second.  Of consumer offsets it sends the changes.  Of another table it sends
all, and only if its mark changed.  Each follows the log as it was at the look.  So a slave never has an offset without
its message, and a group moves back at most by what was committed since the last look.

Early tables, such as topics, do not wait for a look: they precede the next piece of the log.  So a slave that has a
message has its topic, and can serve it when the master is lost.  Awaited tables do the same after a change for whose
safety somebody waits.
"""

import logging
from collections.abc import Callable, Hashable
from typing import Final

import msgspec

from broker.offset.consumer_offsets import ConsumerOffsets
from broker.periodic import Periodic
from broker.replicated_table import ReplicatedTable, changes_name
from broker.replication.replicated_tables import ReplicatedTables
from broker.replication.safe_changes import SafeChanges
from broker.role import Role
from broker.service import Service
from ha.listener import SlaveListener
from ha.master_session import MasterSession
from ha.table_queue import TableContent, TableUpdate
from sprocket.common.logs.peer_lines import peer_lines
from store.message_store import MessageStore

logger = logging.getLogger(__name__)

LOOK_S: Final = 0.2


class EarlyTables:
    """A master's end for its early tables.  Lives in the event loop's thread."""

    def __init__(self, tables: ReplicatedTables, changes: SafeChanges) -> None:
        self._tables = [table for table in tables.all if table.is_early]
        self._awaited = [table for table in tables.all if table.is_awaited]
        self._changes = changes
        # By the table's name: its mark, the mark that the changes are for (None: all of it), and what is sent.
        self._encoded: dict[str, tuple[Hashable, Hashable, TableUpdate]] = {}

    def send(self, session: MasterSession) -> None:
        """Queue each table before the next piece of the log, if it differs from what this slave has."""
        slave = session.tables
        awaited = self._awaited if slave.await_changes(self._changes.count) else ()
        for table in (*self._tables, *awaited):
            known, mark = slave.mark(table.name), table.mark()
            if known != mark:
                slave.hurry(self._update(table, known), table.name, mark)

    def _update(self, table: ReplicatedTable, known: Hashable) -> TableUpdate:
        """Return the table as it is now, or what changed since `known`."""
        mark = table.mark()
        since = None if table.merge_changes is None else known
        encoded = self._encoded.get(table.name)
        if encoded is None or encoded[:2] != (mark, since):
            changes = None if since is None else table.encode_changes(since)
            # They require nothing of the log.
            if changes is None:
                update = TableUpdate(0, table.name, table.encode())
            else:
                update = TableUpdate(0, changes_name(table.name), changes)
            encoded = self._encoded[table.name] = mark, since, update
        return encoded[2]


class TableSender(Service):
    """A master's end for all other tables.  Lives in the event loop's thread."""

    def __init__(
        self, store: MessageStore, offsets: ConsumerOffsets, listener: SlaveListener, tables: ReplicatedTables
    ) -> None:
        self._store = store
        self._offsets = offsets
        self._listener = listener
        self._tables = tables
        self._marks: dict[str, Hashable] = {}

    def periodic(self) -> list[Periodic]:
        """Send changed tables."""
        return [Periodic("table_stream", LOOK_S, self.look)]

    def look(self) -> None:
        """Send what changed since the last look, and every table to slaves that have none yet."""
        listener, offsets = self._listener, self._offsets
        sessions = listener.sessions
        if not sessions:
            offsets.forget_deltas()
            self._marks.clear()
            return
        position = self._store.wrote_offset
        listener.publish(self._changed(position))
        newcomers = [session for session in sessions if session.tables.wants_all]
        if newcomers:
            everything = [TableUpdate(position, one.name, one.encode(), one.mark()) for one in self._others()]
            for session in newcomers:
                session.tables.begin(everything)
            listener.log_grew()

    def _others(self) -> list[ReplicatedTable]:
        return [table for table in self._tables.all if not table.is_early]

    def _changed(self, position: int) -> list[TableUpdate]:
        updates = []
        for table in self._others():
            if table is not self._tables.consumer_offsets and self._marks.get(table.name) != (mark := table.mark()):
                self._marks[table.name] = mark
                updates.append(TableUpdate(position, table.name, table.encode(), mark))
        # After the others: a group precedes its offsets.
        changes = self._offsets.take_deltas()
        if changes:
            name = changes_name(self._tables.consumer_offsets.name)
            updates.append(TableUpdate(position, name, msgspec.json.encode(changes)))
        return updates


class TableReceiver:
    """A slave's end.  Lives in the event loop's thread.

    While a slave acts for its master, its own tables are newer than the returning master's, so it drops the master's.
    After the master has taken over, `reconnect` is called once to receive all tables again.
    """

    def __init__(self, role: Role, tables: ReplicatedTables, reconnect: Callable[[str], None]) -> None:
        self._role = role
        self._installers: dict[str, Callable[[bytes], None]] = {table.name: table.apply for table in tables.all}
        self._installers |= {changes_name(one.name): one.merge_changes for one in tables.all if one.merge_changes}
        self._reconnect = reconnect
        self._has_dropped = False

    def apply(self, table: TableContent) -> None:
        """Install a table of the master.  Raises ProtocolError for content that is no such table."""
        if self._role.is_acting:
            self._has_dropped = True
            return
        if self._has_dropped:
            self._has_dropped = False
            self._reconnect("tables were dropped while this replica acted for its master")
            return
        install = self._installers.get(table.name)
        if install is None:
            peer_lines.info(logger, "", "event=table_ignored name=%s reason=unknown", table.name)
            return
        install(table.content)
