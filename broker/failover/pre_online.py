"""The way of a broker online: at once, or after it has taken over from the replica that acted for it.

With enableSlaveActingMaster a starting master asks name servers for the members of its group.  It announces itself to
each slave, waits until the slave follows its log, and fetches the slave's offsets.  Until then it is isolated: name
servers do not know it, and it runs none of the group's services.
Source: RocketMQ 5.3.3, `BrokerPreOnlineService`, `BrokerController.startService`.  There a group with
totalReplicas = 1, the default, goes online at once.  Here every group with enableSlaveActingMaster prepares.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Final

from broker.core import BrokerCore
from broker.failover.active_services import ActiveServices
from broker.failover.group_members import GroupMembers, Members
from broker.failover.ha_exchange import HaExchange
from broker.failover.handover_fetch import HandoverFetch
from broker.out.registration import Registration
from broker.periodic import pause
from sprocket.common.errors import SprocketError, StoreError
from sprocket.remoting.addresses import numeric_host, numeric_hosts
from sprocket.remoting.bodies.route import MASTER_ID

logger = logging.getLogger(__name__)

_RETRY_S: Final = 1.0
_POLL_S: Final = 0.1
# How long a slave may take to follow a master that has announced itself.
_JOIN_LIMIT_S: Final = 10.0


class PreOnline:
    """Preparation of one broker, in the event loop's thread.  `slave_hosts` returns the hosts of its slaves."""

    def __init__(
        self,
        core: BrokerCore,
        *,
        registration: Registration,
        services: ActiveServices,
        members: GroupMembers,
        exchange: HaExchange,
        handover: HandoverFetch,
        slave_hosts: Callable[[], Iterable[str]],
    ) -> None:
        self._core = core
        self._registration = registration
        self._services = services
        self._members = members
        self._exchange = exchange
        self._handover = handover
        self._slave_hosts = slave_hosts
        self._task: asyncio.Task[None] | None = None
        self._fetched: set[int] = set()  # ids of members whose offsets were fetched

    def start(self) -> None:
        """Go online, or start to prepare for it."""
        config = self._core.config.broker
        if config.enable_slave_acting_master and not config.skip_pre_online and config.name_servers:
            self._task = asyncio.get_running_loop().create_task(self._prepare())
        else:
            self._go_online()

    async def stop(self) -> None:
        """Cancel the preparation."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def _go_online(self) -> None:
        self._members.go_online()
        if self._fetched:
            self._services.note_handover()
        self._services.start()
        if self._core.config.broker.broker_id or not self._core.role.is_slave:  # else controllers have yet to give it
            self._registration.start()

    async def _prepare(self) -> None:
        logger.info("event=isolated reason=%r", "another member of the group may have acted for this broker")
        while True:
            try:
                reason = await self._prepare_once()
            except StoreError as error:
                self._core.fail(error)
                return
            except SprocketError as error:
                reason = str(error)
            except Exception as error:
                # A broker must not stay isolated for ever without a log line, whatever the error is.
                logger.exception("event=pre_online_failed")
                reason = str(error)
            if not reason:
                break
            logger.warning("event=still_isolated reason=%r", reason)
            await pause(_RETRY_S)
        logger.info("event=online taken_over_from=%s", sorted(self._fetched))
        self._go_online()

    async def _prepare_once(self) -> str:
        """Try once; return why it must be tried again, or the empty text."""
        members = await self._members.ask()
        if members is None:
            return "no name server answers"
        own_id, own_address = self._core.config.broker.broker_id, self._core.config.broker.address
        others = {member: address for member, address in members.items() if member != own_id and address != own_address}
        if not self._core.role.is_slave:
            return await self._prepare_master(others)
        if others and MASTER_ID not in others:
            # The member that acts has newer offsets than this one.
            await self._fetch_from(min(others), others)
        return ""

    async def _prepare_master(self, slaves: Members) -> str:
        for member in sorted(slaves):
            address = slaves[member]
            await self._exchange.announce(address)
            if not await self._is_followed_by(await numeric_hosts(address)):
                return f"the slave {address} does not follow within {_JOIN_LIMIT_S:g} s; see its log"
            if not self._core.role.serves_group:
                # Offsets would be clamped to the end of an incomplete log.
                return f"the log is not recovered yet, {address} may have what it lacks"
            await self._fetch_from(member, slaves)
        return ""

    async def _is_followed_by(self, hosts: frozenset[str]) -> bool:
        for _ in range(round(_JOIN_LIMIT_S / _POLL_S)):
            if not hosts.isdisjoint(map(numeric_host, self._slave_hosts())):
                return True
            await pause(_POLL_S)
        return False

    async def _fetch_from(self, member: int, members: Members) -> None:
        await self._handover.fetch(members[member])
        self._fetched.add(member)
