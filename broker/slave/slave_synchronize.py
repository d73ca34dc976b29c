"""A slave's regular requests to a plain master for what it has besides the log.

RocketMQ's slaves do this, and so does a Sprocket slave of a RocketMQ master.  It asks for all tables every ten seconds,
as before RocketMQ 5 (5.3.3 asks once a minute), and for the timer's checkpoint every three.  It also asks for topics
when a message of an unknown topic arrives.

Stricter than RocketMQ: a table that tells how far messages were delivered waits until this replica's log has what the
master's log had at that time.  RocketMQ's slave installs it at once.  If it must then go on alone, messages are lost
whose delivery is in records that it does not have.

Also stricter: RocketMQ's slave asks any address that a name server calls the master, and installs any response.  A
master with an empty disk then removes the slave's topics and group offsets.  Here `may_poll` tells whether the logs
were compared, and a master whose log ends before this one is asked for nothing.
Source: RocketMQ 5.3.3, `SlaveSynchronize`, `BrokerController.initializeBrokerScheduledTasks`.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from broker.core import BrokerCore
from broker.out.master_address import MasterAddress
from broker.periodic import Periodic
from broker.replicated_table import ReplicatedTable
from broker.replication.replicated_tables import ReplicatedTables
from broker.service import Service
from sprocket.common.errors import ClientError, ProtocolError, StoreError
from sprocket.remoting.bodies.stats import HARuntimeInfo, KVTable
from sprocket.remoting.client import ConnectFailed
from sprocket.remoting.codec.fastjson import loads
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.command import ReceivedResponse
from sprocket.remoting.message.topic_names import is_light
from sprocket.remoting.pending import ConnectionLost
from store.flush.confirmation import Arrival

logger = logging.getLogger(__name__)

_TURN_S: Final = 1.0
_ALL_S: Final = 10.0
_CHECKPOINT_S: Final = 3.0
_TIMEOUT_S: Final = 5.0
# Tables above this size are decoded in another thread.
_LARGE_BYTES: Final = 64 * 1024

# Name under which a master with a shorter log is logged.
_MASTER_LOG: Final = "(all)"

Install = Callable[[], None]


class SlaveSynchronize(Service):
    """Tables of a slave of a plain master.  Lives in the event loop's thread.

    It asks only while `may_poll` says that the master's log was compared with this one, over a link that is still open.
    """

    def __init__(
        self, core: BrokerCore, master: MasterAddress, tables: ReplicatedTables, *, may_poll: Callable[[], bool]
    ) -> None:
        self._core = core
        self._master = master
        self._tables = tables
        self.may_poll = may_poll
        self.all_s = _ALL_S
        self.checkpoint_s = _CHECKPOINT_S
        self._asked = ""  # the master asked last
        self._all_at = self._checkpoint_at = float("-inf")
        # Tables that wait for the log: table -> end of the master's log at the time of reading, and the installer.
        self._held: dict[str, tuple[int, Install]] = {}
        # Reason for each table that differs from the master's.
        self._failures: dict[str, str] = {}
        self._is_in_step = False
        self._is_lost = False
        # Whether a message of an unknown topic arrived.
        self._lacks_topic = False
        core.store.on_arrival.append(self._arrived)

    def _arrived(self, arrivals: list[Arrival]) -> None:
        known = self._core.topics.by_name
        if any(queue.topic not in known and not is_light(queue.topic) for queue, _, _ in arrivals):
            self._lacks_topic = True

    def periodic(self) -> list[Periodic]:
        """Ask every second for what is due."""
        return [Periodic("slave_synchronize", _TURN_S, self.turn)]

    async def turn(self) -> None:
        """Ask for the tables that are due."""
        master = str(self._master)
        if not self._may_ask(master):
            self._forget()
            return
        if master != self._asked:
            self._forget()
            self._asked = master
        self._install_held()
        now = self._core.clock.monotonic()
        due = self._due(now)
        if due and await self._has_our_log(master):
            await self._synchronize(master, due)

    async def _has_our_log(self, master: str) -> bool:
        """Return whether the master's log reaches as far as this one: a master that lost its log changes no tables.

        The connection to the log may outlive the process behind it; the response to a request cannot.
        """
        own_end = self._core.store.wrote_offset
        if not own_end:
            return True
        try:
            master_end = await self._master_end(master)
        except (ConnectFailed, ConnectionLost) as error:
            self._lost(master, str(error))
        except (ClientError, ProtocolError) as error:
            self._failed(_MASTER_LOG, master, str(error))
        else:
            if master_end >= own_end:
                self._settled(_MASTER_LOG)
                return self._may_ask(master)
            reason = f"the master's log ends at {master_end}, this one at {own_end}: this slave keeps its own tables"
            self._failed(_MASTER_LOG, master, reason)
        # Try again in the next turn, not only when all tables are due.
        self._all_at = self._checkpoint_at = float("-inf")
        return False

    def _may_ask(self, master: str) -> bool:
        """Return whether `master` may be asked now."""
        is_known = bool(master) and master == str(self._master)
        return is_known and not self._core.role.is_acting and self.may_poll()

    def _forget(self) -> None:
        """Forget the last master: its tables do not fit another master's log."""
        self._asked = ""
        self._all_at = self._checkpoint_at = float("-inf")
        self._held.clear()
        self._failures.clear()
        self._is_in_step = False

    def _due(self, now: float) -> list[ReplicatedTable]:
        """Return the tables to ask for, without those that wait for the log."""
        tables = self._tables
        due: list[ReplicatedTable] = []
        if now - self._all_at >= self.all_s:
            self._all_at = self._checkpoint_at = now
            due = list(tables.all)
        elif now - self._checkpoint_at >= self.checkpoint_s:
            self._checkpoint_at = now
            due = [table for table in tables.all if table is tables.timer_checkpoint]
            if self._lacks_topic:
                due.append(tables.topics)
        if tables.topics in due:
            self._lacks_topic = False
        return [table for table in due if table.code is not None and table.name not in self._held]

    async def _synchronize(self, master: str, tables: list[ReplicatedTable]) -> None:
        read: list[tuple[ReplicatedTable, Install]] = []
        for table in tables:
            try:
                install = await self._read(master, table)
                if not self._may_ask(master):
                    return
                if not table.tells_deliveries:
                    install()
                    self._settled(table.name)
                else:
                    read.append((table, install))
            except (ConnectFailed, ConnectionLost) as error:
                self._lost(master, str(error))
                return
            except (ClientError, ProtocolError, StoreError) as error:
                self._failed(table.name, master, str(error))
        self._is_lost = False
        if read:
            await self._hold(master, read)
        if not self._failures and not self._is_in_step:
            self._is_in_step = True
            logger.info("event=slave_synchronized master=%s", master)

    async def _read(self, master: str, table: ReplicatedTable) -> Install:
        """Return the function that installs the master's table.  Raises ClientError or ProtocolError."""
        assert table.code is not None
        response = await self._ask(master, table.code)
        if response.code != ResponseCode.SUCCESS:
            raise ClientError(f"code {response.code}: {response.remark}")
        body = bytes(response.body)
        return await asyncio.to_thread(table.prepare, body) if len(body) > _LARGE_BYTES else table.prepare(body)

    async def _ask(self, master: str, code: RequestCode) -> ReceivedResponse:
        return await self._core.client.invoke(master, code, timeout_s=_TIMEOUT_S)

    # Tables that wait for the log

    async def _hold(self, master: str, read: list[tuple[ReplicatedTable, Install]]) -> None:
        try:
            end_offset = await self._master_end(master)
        except (ClientError, ProtocolError) as error:
            for table, _ in read:
                self._failed(table.name, master, str(error))
            return
        if not self._may_ask(master):
            return
        for table, install in read:
            self._held[table.name] = end_offset, install
        self._install_held()

    async def _master_end(self, master: str) -> int:
        """Return the end of the master's log.  Raises ClientError or ProtocolError."""
        response = await self._ask(master, RequestCode.GET_BROKER_HA_STATUS)
        if response.code == ResponseCode.SUCCESS:
            return loads(bytes(response.body), HARuntimeInfo).master_commit_log_max_offset
        # A master before RocketMQ 5 does not know the request.
        response = await self._ask(master, RequestCode.GET_BROKER_RUNTIME_INFO)
        end_offset = loads(bytes(response.body), KVTable).table.get("commitLogMaxOffset", "") if response.body else ""
        if not end_offset.isdigit():
            raise ClientError(f"the master does not say where its log ends: {response.code} {response.remark}")
        return int(end_offset)

    def _install_held(self) -> None:
        for name, (end_offset, install) in list(self._held.items()):
            if self._core.store.wrote_offset >= end_offset:
                del self._held[name]
                try:
                    install()
                    self._settled(name)
                except StoreError as error:
                    self._failed(name, self._asked, str(error))

    # One log line per change

    def _failed(self, name: str, master: str, reason: str) -> None:
        if self._failures.get(name) != reason:
            self._failures[name] = reason
            logger.warning("event=table_not_synchronized table=%s master=%s reason=%r", name, master, reason)
        self._is_in_step = False

    def _lost(self, master: str, reason: str) -> None:
        """Log once that the master cannot be reached, because every table would fail in the same way."""
        if not self._is_lost:
            self._is_lost = True
            logger.warning("event=master_not_asked master=%s reason=%r", master, reason)
        self._is_in_step = False

    def _settled(self, name: str) -> None:
        if self._failures.pop(name, None) is not None:
            logger.info("event=table_synchronized table=%s", name)
