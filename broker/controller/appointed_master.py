"""The master that controllers appointed, and a slave's way to the address of its port for slaves."""

import asyncio
import logging
from typing import Final

from broker.failover.ha_exchange import HaExchange
from broker.periodic import pause
from broker.service import Service
from broker.slave.master_follower import MasterFollower
from sprocket.common.errors import ClientError, ProtocolError

logger = logging.getLogger(__name__)

# An appointed master answers once it leads, and its senders may wait for its slaves.
_RETRY_S: Final = 0.1
# How soon a lost connection is noticed; meanwhile the follower tries the known address.
_LOOK_S: Final = 1.0


class AppointedMaster(Service):
    """Address of the appointed master of one slave.  Lives in the event loop's thread."""

    def __init__(self, following: MasterFollower, exchange: HaExchange) -> None:
        self._following = following
        self._exchange = exchange
        self._address = ""
        self._task: asyncio.Task[None] | None = None
        self._said = ""

    @property
    def is_resting(self) -> bool:
        """Whether there is no master to follow."""
        return not self._address

    def follow(self, address: str) -> None:
        """Follow the master at ``host:port``, its address for clients, from now on; nobody if empty."""
        if address != self._address:
            self._address = address
            self.stop()
            self._following.master_lost()
            if address:
                self._task = asyncio.get_running_loop().create_task(self._find(address))

    async def _find(self, address: str) -> None:
        """Ask the master for its port for slaves, until it answers, and again whenever the connection is lost."""
        while True:
            wait_s = _LOOK_S
            if not self._following.is_master_online():
                try:
                    found, reason = await self._exchange.ask(address), "it does not lead yet"
                except (ClientError, ProtocolError) as error:
                    found, reason = "", str(error)
                if found:
                    self._following.master_found(address, found)
                else:
                    wait_s = _RETRY_S
                self._say(address, "" if found else reason)
            await pause(wait_s)

    def _say(self, address: str, reason: str) -> None:
        """Log a reason once."""
        if reason != self._said:
            self._said = reason
            if reason:
                logger.warning("event=master_not_followed address=%s reason=%r", address, reason)

    def stop(self) -> None:
        """Stop asking."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
