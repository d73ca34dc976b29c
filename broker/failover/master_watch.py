"""What a slave makes of who is online: it acts for a master that is gone if its own id is the smallest that is left.

A master that comes back announces itself.  From then on the slave delivers nothing more, so that what the master takes
over from it stands still; consumers go on reading from it until name servers know the master.
Source: RocketMQ 5.3.3, `BrokerController.updateMinBroker`, `onMinBrokerChange`, `onMasterOffline`, `onMasterOnline`.
Unlike there the slave stops when the master announces itself, not when it is online: what is delivered in between came
twice.
"""

import asyncio
import logging
from typing import Final

from broker.core import BrokerCore
from broker.failover.group_members import GroupMembers, Members
from broker.failover.returned_offsets import ReturnedOffsets
from broker.replication.ha_exchange import HaExchange
from broker.service import Service
from broker.slave.following import Following
from sprocket.common.errors import SprocketError
from sprocket.remoting.bodies.route import MASTER_ID

logger = logging.getLogger(__name__)

# A master that has announced itself and is not online after this time has failed again.
_COMING_S: Final = 20.0


class MasterWatch(Service):
    """Lives in the event loop's thread of a slave."""

    def __init__(self, core: BrokerCore, members: GroupMembers, following: Following, exchange: HaExchange) -> None:
        self._core = core
        self._following = following
        self._exchange = exchange
        self._offsets = ReturnedOffsets(core)
        self._coming_until = 0.0
        self._finding: asyncio.Task[None] | None = None
        members.on_members.append(self.members_known)
        exchange.on_master.append(self.master_comes)

    def stop(self) -> None:
        """Act no more."""
        if self._finding is not None:
            self._finding.cancel()

    def master_comes(self, address: str, ha_address: str) -> None:
        """The master is about to come online and takes over what was done for it; its log is followed already.

        Not before it is asked what it speaks: only a session shows logs that parted, or what the master lacks.
        """
        self._coming_until = self._core.clock.monotonic() + _COMING_S
        # What was done is to be told now: nothing of it may wait for the disk.
        self._core.store.flush()
        self._core.role.hand_over()
        self._following.found(address, ha_address)

    def members_known(self, members: Members) -> None:
        """Name servers know these members of the group."""
        own_id = self._core.config.broker.broker_id
        is_announced = self._core.clock.monotonic() < self._coming_until
        if MASTER_ID in members:
            if is_announced:
                self._core.role.act(False)
            self._coming_until = 0.0
            self._master_online(members[MASTER_ID], is_new=is_announced)
        elif not is_announced:
            self._following.lost()
            self._core.role.act(own_id <= min(members))

    def _master_online(self, address: str, *, is_new: bool) -> None:
        is_known = not is_new and not self._core.role.is_acting and self._following.knows(address)
        if self._finding is None and not is_known:
            self._finding = asyncio.get_running_loop().create_task(self._find(address))

    async def _find(self, address: str) -> None:
        """Follow the master; if it has not taken over what was done for it, tell it first."""
        role = self._core.role
        try:
            if role.is_acting:
                role.hand_over()
                await self._offsets.give(address)
                role.act(False)
            self._following.found(address, await self._exchange.ask(address))
        except SprocketError as error:
            logger.warning("event=master_not_followed address=%s reason=%r", address, str(error))
        finally:
            self._finding = None
