"""How a broker comes online: at once, or after it has taken over what others of its group have done meanwhile.

With enableSlaveActingMaster a master that starts asks name servers who of its group is there.  It announces itself to
each slave, waits until that follows its log, and takes over its offsets.  Until all that is done it is isolated: name
servers do not know it, and it does none of the group's work.
Source: RocketMQ 5.3.3, `BrokerPreOnlineService`, `BrokerController.startService`.  There a group of totalReplicas = 1,
which is the default, goes online at once; here every group prepares that says enableSlaveActingMaster.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Final

from broker.core import BrokerCore
from broker.failover.group_members import GroupMembers, Members
from broker.failover.group_work import GroupWork
from broker.failover.handed_back import HandedBack
from broker.out.registration import Registration
from broker.periodic import pause
from broker.replication.ha_exchange import HaExchange
from sprocket.common.errors import SprocketError, StoreError
from sprocket.remoting.bodies.route import MASTER_ID
from sprocket.remoting.client import split_address

logger = logging.getLogger(__name__)

_RETRY_S: Final = 1.0
_POLL_S: Final = 0.1
# How long a slave may take to follow a master that has announced itself.
_JOIN_LIMIT_S: Final = 10.0


class PreOnline:
    """Lives in the event loop's thread.  `slave_hosts` tells the hosts of the slaves that follow this broker's log."""

    def __init__(
        self,
        core: BrokerCore,
        registration: Registration,
        work: GroupWork,
        members: GroupMembers,
        exchange: HaExchange,
        handed_back: HandedBack,
        slave_hosts: Callable[[], Iterable[str]],
    ) -> None:
        self._core = core
        self._registration = registration
        self._work = work
        self._members = members
        self._exchange = exchange
        self._handed_back = handed_back
        self._slave_hosts = slave_hosts
        self._task: asyncio.Task[None] | None = None
        self._taken: set[int] = set()  # ids of members whose work was taken over

    def start(self) -> None:
        """Come online, or begin to prepare for it."""
        config = self._core.config.broker
        if config.enable_slave_acting_master and not config.skip_pre_online and config.name_servers:
            self._task = asyncio.get_running_loop().create_task(self._prepare())
        else:
            self._go_online()

    async def stop(self) -> None:
        """Leave: no preparation goes on."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def _go_online(self) -> None:
        self._members.is_online = True
        if self._taken:
            self._work.handed_back()
        self._work.start()
        self._registration.start()

    async def _prepare(self) -> None:
        logger.info("event=isolated reason=%r", "others of the group may have worked for this broker")
        while True:
            try:
                reason = await self._prepare_once()
            except StoreError as error:
                self._core.fail(error)
                return
            except SprocketError as error:
                reason = str(error)
            except Exception as error:
                # Whatever it is: what is isolated for ever without a word is worse.
                logger.exception("event=pre_online_failed")
                reason = str(error)
            if not reason:
                break
            logger.warning("event=still_isolated reason=%r", reason)
            await pause(_RETRY_S)
        logger.info("event=online taken_over_from=%s", sorted(self._taken))
        self._go_online()

    async def _prepare_once(self) -> str:
        """One try; why it is to be tried again, or the empty text."""
        members = await self._members.ask()
        if members is None:
            return "no name server answers"
        own_id, own_address = self._core.config.broker.broker_id, self._registration.address
        others = {member: address for member, address in members.items() if member != own_id and address != own_address}
        if not self._core.role.is_slave:
            return await self._prepare_master(others)
        if others and MASTER_ID not in others:
            # The one that acts knows more than this one does.
            await self._take_from(min(others), others)
        return ""

    async def _prepare_master(self, slaves: Members) -> str:
        for member in sorted(slaves):
            address = slaves[member]
            await self._exchange.announce(address)
            if not await self._is_followed_by(split_address(address)[0]):
                return f"the slave {address} does not follow within {_JOIN_LIMIT_S:g} s; see its log"
            if not self._core.role.serves_group:
                # Offsets would be cut to the end of a log that is not whole yet.
                return f"the log is not recovered yet, {address} may give what it lacks"
            await self._take_from(member, slaves)
        return ""

    async def _is_followed_by(self, host: str) -> bool:
        for _ in range(round(_JOIN_LIMIT_S / _POLL_S)):
            if host in self._slave_hosts():
                return True
            await pause(_POLL_S)
        return False

    async def _take_from(self, member: int, members: Members) -> None:
        await self._handed_back.take(members[member])
        self._taken.add(member)
