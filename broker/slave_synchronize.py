"""A slave asks its master again and again for what it has beside the log.

This is how RocketMQ's slaves do it, and how a slave of ours does it with a master of RocketMQ.  All are asked for every
ten seconds, as before RocketMQ 5 (5.3.3 does it once a minute), the timer's checkpoint every three.  Topics are asked
for then, too, when a message came of one that is not known.

Stricter than the reference: what says how far messages were delivered waits until this replica's log has all that the
master's had when it said so.  RocketMQ's slave takes it at once; if it then has to go on alone, what was delivered by
records that it does not have is lost.
Source: RocketMQ 5.3.3, `SlaveSynchronize`, `BrokerController.initializeBrokerScheduledTasks`.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from broker.core import BrokerCore
from broker.following import Following
from broker.periodic import Periodic
from broker.replicated_tables import ReplicatedTable, ReplicatedTables
from broker.service import Service
from remoting.bodies.stats import HARuntimeInfo, KVTable
from remoting.client import ConnectFailed
from remoting.codes import RequestCode, ResponseCode
from remoting.command import ReceivedResponse
from remoting.fastjson import loads
from remoting.pending import ConnectionLost
from sprocket.common.errors import ClientError, ProtocolError, StoreError
from store.consume_queue_table import is_light

logger = logging.getLogger(__name__)

_TURN_S: Final = 1.0
_ALL_S: Final = 10.0
_CHECKPOINT_S: Final = 3.0
_TIMEOUT_S: Final = 5.0
# A table of this size is read in another thread.
_LARGE_BYTES: Final = 64 * 1024

Install = Callable[[], None]


class SlaveSynchronize(Service):
    """Keeps the tables of a slave.  Lives in the event loop's thread.

    It stands back while `is_delivered` says that a session with the master brings the tables.
    """

    def __init__(self, core: BrokerCore, following: Following, tables: ReplicatedTables) -> None:
        self._core = core
        self._following = following
        self._tables = tables
        self.is_delivered: Callable[[], bool] = lambda: False
        self.all_s = _ALL_S
        self.checkpoint_s = _CHECKPOINT_S
        self._asked = ""  # the master that was asked last
        self._all_at = self._checkpoint_at = float("-inf")
        # What waits for the log: table -> end of the master's log when it was read, and what puts it in place.
        self._held: dict[str, tuple[int, Install]] = {}
        # Why a table is not what the master's is.
        self._failures: dict[str, str] = {}
        self._is_in_step = False
        self._is_lost = False
        # Whether a message came of a topic that is not known yet.
        self._lacks_topic = False
        core.store.on_arrival.append(self._arrived)

    def _arrived(self, topic: str, queue_id: int, end: int, first: int) -> None:
        if topic not in self._core.topics.by_name and not is_light(topic):
            self._lacks_topic = True

    def periodic(self) -> list[Periodic]:
        """Look what is to be asked."""
        return [Periodic("slave_synchronize", _TURN_S, self.turn)]

    async def turn(self) -> None:
        """Ask for what is due."""
        master = self._following.master_address
        if not self._may_ask(master):
            self._forget()
            return
        if master != self._asked:
            self._forget()
            self._asked = master
        self._install_held()
        now = self._core.clock.monotonic()
        due = self._due(now)
        if due:
            await self._synchronize(master, due)

    def _may_ask(self, master: str) -> bool:
        """Whether `master` is the one to ask, now."""
        is_known = bool(master) and master == self._following.master_address
        return is_known and not self._core.role.is_acting and not self.is_delivered()

    def _forget(self) -> None:
        """What one master said says nothing of another's log."""
        self._asked = ""
        self._all_at = self._checkpoint_at = float("-inf")
        self._held.clear()
        self._failures.clear()
        self._is_in_step = False

    def _due(self, now: float) -> list[ReplicatedTable]:
        """The tables to ask for; one that waits for the log is not asked for again."""
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
        """What puts the master's table in the place of ours.  Raises ClientError or ProtocolError."""
        assert table.code is not None
        response = await self._ask(master, table.code)
        if response.code != ResponseCode.SUCCESS:
            raise ClientError(f"code {response.code}: {response.remark}")
        body = bytes(response.body)
        return await asyncio.to_thread(table.prepare, body) if len(body) > _LARGE_BYTES else table.prepare(body)

    async def _ask(self, master: str, code: RequestCode) -> ReceivedResponse:
        return await self._core.client.invoke(master, code, timeout_s=_TIMEOUT_S)

    # What waits for the log

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
        """Where the master's log ends.  Raises ClientError or ProtocolError."""
        response = await self._ask(master, RequestCode.GET_BROKER_HA_STATUS)
        if response.code == ResponseCode.SUCCESS:
            return loads(bytes(response.body), HARuntimeInfo).master_commit_log_max_offset
        # One that does not know the request, as before RocketMQ 5.
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

    # One line for each change

    def _failed(self, name: str, master: str, reason: str) -> None:
        if self._failures.get(name) != reason:
            self._failures[name] = reason
            logger.warning("event=table_not_synchronized table=%s master=%s reason=%r", name, master, reason)
        self._is_in_step = False

    def _lost(self, master: str, reason: str) -> None:
        """It would be the same with every table."""
        if not self._is_lost:
            self._is_lost = True
            logger.warning("event=master_not_asked master=%s reason=%r", master, reason)
        self._is_in_step = False

    def _settled(self, name: str) -> None:
        if self._failures.pop(name, None) is not None:
            logger.info("event=table_synchronized table=%s", name)
