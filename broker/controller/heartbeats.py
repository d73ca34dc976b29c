"""Heartbeats of one broker to all its controllers, by which a master also asks for its lease.

A controller that does not answer delays no other.  Source: RocketMQ 5.3.3, `ReplicasManager.sendHeartbeatToController`.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from broker.controller.controllers import ControllerRefused, Controllers
from sprocket.common.errors import ClientError, ProtocolError
from sprocket.remoting.headers.namesrv import BrokerHeartbeatRequestHeader, BrokerHeartbeatResponseHeader

logger = logging.getLogger(__name__)

# `BrokerConfig.brokerHeartbeatInterval`
_PERIOD_S: Final = 1.0
# A master asks so many times in one lease, and at this interval while it has none.
_PER_LEASE: Final = 4
_EAGER_PERIOD_S: Final = 0.1
_SHORTEST_PERIOD_S: Final = 0.05
_TIMEOUT_S: Final = 1.0
# Heartbeats to one controller without an answer.
_MAX_UNANSWERED: Final = 10

Answered = Callable[[BrokerHeartbeatRequestHeader, float, BrokerHeartbeatResponseHeader], None]


class Heartbeats:
    """Heartbeats that `compose` makes; `answered` gets each with the time at which it left and its answer."""

    def __init__(
        self,
        controllers: Controllers,
        compose: Callable[[], BrokerHeartbeatRequestHeader],
        now_s: Callable[[], float],
        answered: Answered,
    ) -> None:
        self._controllers = controllers
        self._compose = compose
        self._now_s = now_s
        self._answered = answered
        self._lease_s: float | None = None
        self._hurry = asyncio.Event()
        self._unanswered: dict[str, set[asyncio.Task[None]]] = {}

    async def run(self) -> None:
        """Send heartbeats until cancelled."""
        while True:
            header = self.beat()
            self._hurry.clear()
            try:
                async with asyncio.timeout(self._period_s(header)):
                    await self._hurry.wait()
            except TimeoutError:
                pass

    def _period_s(self, header: BrokerHeartbeatRequestHeader) -> float:
        if header.lease_epoch is None:
            return _PERIOD_S
        if self._lease_s is None:
            return _EAGER_PERIOD_S
        return min(max(self._lease_s / _PER_LEASE, _SHORTEST_PERIOD_S), _PERIOD_S)

    def hurry(self) -> None:
        """Send the next heartbeat at once; the broker's role has changed."""
        self._lease_s = None
        self._hurry.set()

    def beat(self) -> BrokerHeartbeatRequestHeader:
        """Send one heartbeat to each controller, without waiting."""
        header = self._compose()
        for address in self._controllers.addresses:
            waiting = self._unanswered.setdefault(address, set())
            if len(waiting) < _MAX_UNANSWERED:
                task = asyncio.get_running_loop().create_task(self._beat(address, header))
                waiting.add(task)
                task.add_done_callback(waiting.discard)
        return header

    async def answers(self) -> None:
        """Wait for the answers to all heartbeats that were sent, or for the end of their time."""
        tasks = [task for waiting in self._unanswered.values() for task in waiting]
        if tasks:
            await asyncio.wait(tasks)

    def stop(self) -> None:
        """Cancel the heartbeats without an answer."""
        for waiting in self._unanswered.values():
            for task in waiting:
                task.cancel()

    async def _beat(self, address: str, header: BrokerHeartbeatRequestHeader) -> None:
        sent_s = self._now_s()
        try:
            answer = await self._controllers.beat(address, header, _TIMEOUT_S)
        except ControllerRefused as error:
            self._controllers.say_once(f"{address}: {error}")
            return
        except (ClientError, ProtocolError) as error:
            logger.debug("event=heartbeat_unanswered addr=%s reason=%r", address, str(error))
            return
        if answer.lease_millis is not None:
            self._lease_s = answer.lease_millis / 1000
        self._answered(header, sent_s, answer)
