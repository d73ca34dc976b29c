"""A slave's watch over its master: if the master is lost, the member with the smallest id acts for it.

A master that returns announces itself.  From then on the slave delivers nothing, so the offsets that the master fetches
do not move.  Consumers go on reading from the slave until name servers know the master.
Source: RocketMQ 5.3.3, `BrokerController.updateMinBroker`, `onMinBrokerChange`, `onMasterOffline`, `onMasterOnline`.
Unlike there, the slave stops when the master announces itself, not when it is online: what it delivered in between was
delivered twice.
"""

import asyncio
import logging
from typing import Final

from broker.core import BrokerCore
from broker.failover.group_members import GroupMembers, Members
from broker.failover.ha_exchange import HaExchange
from broker.failover.handover_push import HandoverPush
from broker.service import Service
from broker.slave.master_follower import MasterFollower
from sprocket.common.errors import SprocketError
from sprocket.remoting.bodies.route import MASTER_ID

logger = logging.getLogger(__name__)

# A master that announced itself but is not online after this time has failed again.
_ANNOUNCED_S: Final = 20.0


class MasterWatch(Service):
    """Watch of one slave.  Lives in the event loop's thread."""

    def __init__(
        self, core: BrokerCore, members: GroupMembers, following: MasterFollower, exchange: HaExchange
    ) -> None:
        self._core = core
        self._following = following
        self._exchange = exchange
        self._handover = HandoverPush(core.client, core.offsets)
        self._announced_until = 0.0
        self._finding: asyncio.Task[None] | None = None
        members.on_members.append(self.members_known)
        exchange.on_master.append(self.master_announced)

    def stop(self) -> None:
        """Stop looking for the master."""
        if self._finding is not None:
            self._finding.cancel()

    def master_announced(self, address: str, ha_address: str) -> None:
        """Prepare for a master that is about to come online and take over; follow its log already.

        Follow it only after asking which protocol it speaks: only a session detects diverged logs, or what the master
        lacks.
        """
        self._announced_until = self._core.clock.monotonic() + _ANNOUNCED_S
        # The master fetches the offsets now, so they must not wait for the disk.
        self._core.store.flush()
        self._core.role.hand_over()
        self._following.master_found(address, ha_address)

    def members_known(self, members: Members) -> None:
        """Act for the master or follow it, given the members that name servers know."""
        own_id = self._core.config.broker.broker_id
        is_announced = self._core.clock.monotonic() < self._announced_until
        if MASTER_ID in members:
            if is_announced:
                self._core.role.act(False)
            self._announced_until = 0.0
            self._master_online(members[MASTER_ID], is_new=is_announced)
        elif not is_announced:
            self._following.master_lost()
            self._core.role.act(own_id <= min(members))

    def _master_online(self, address: str, *, is_new: bool) -> None:
        is_known = not is_new and not self._core.role.is_acting and self._following.follows(address)
        if self._finding is None and not is_known:
            self._finding = asyncio.get_running_loop().create_task(self._find(address))

    async def _find(self, address: str) -> None:
        """Follow the master; first push the offsets to a master that did not fetch them."""
        role = self._core.role
        try:
            if role.is_acting:
                role.hand_over()
                await self._handover.push(address)
                role.act(False)
            self._following.master_found(address, await self._exchange.ask(address))
        except SprocketError as error:
            logger.warning("event=master_not_followed address=%s reason=%r", address, str(error))
        finally:
            self._finding = None
