"""Renewal of held handles: each stays invisible while its client lives, and is released when the client dies.

Source: RocketMQ 5.3.3, `DefaultReceiptHandleManager`, `ReceiptHandleProcessor`.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Final

from proxy.brokers.brokers import Brokers
from proxy.brokers.metadata import Metadata
from proxy.brokers.receipts import Receipt, parse_receipt
from proxy.clients.connections import Connections
from proxy.clients.registry import Clients
from proxy.config import ProxyConfig
from proxy.convert.settings import retry_delay_ms
from proxy.handles.held_handles import Held, HeldHandles
from proxy.status import Refusal
from sprocket.client.errors import ClientError, ConnectFailed, ConnectionLost, RemotingTimeout
from sprocket.common.logs.peer_lines import peer_lines
from sprocket.common.next_turn import next_turn
from sprocket.grpc_wire import messaging_pb2 as wire
from sprocket.remoting.bodies.group import SubscriptionGroupConfig

logger = logging.getLogger(__name__)

# Requests at a time, so that a client with many messages that dies is no storm for a broker.
_AT_ONCE: Final = 64
# Messages that are looked at in one turn of the loop.
_SLICE: Final = 1024
# A call that comes sooner may have been on its way when the connection broke.
_ON_ITS_WAY_S: Final = 1.0
# Limit of an acknowledgement's wait for the renewal of its handle.
_RENEWAL_LIMIT_S: Final = 3.0


# Takes a handle of a client from the worker of this proxy that holds it: client, group, message id, handle.
Elsewhere = Callable[[str, str, str, str], Awaitable[Held | None]]


async def nowhere_else(client_id: str, group: str, message_id: str, given: str) -> Held | None:
    """Return None: a proxy of one process has no other worker."""
    return None


class Renewal:
    """Renewer of the handles in `held`; `spawn` runs work until the proxy ends.

    `elsewhere` takes a handle that is not held here from another worker.
    """

    def __init__(
        self,
        held: HeldHandles,
        brokers: Brokers,
        metadata: Metadata,
        config: ProxyConfig,
        connections: Connections,
        clients: Clients,
        spawn: Callable[[Coroutine[object, object, None]], object],
        elsewhere: Elsewhere = nowhere_else,
    ) -> None:
        self._connections = connections
        self._clients = clients
        self.held = held
        self._elsewhere = elsewhere
        self._brokers = brokers
        self._metadata = metadata
        self._config = config
        self._spawn = spawn
        self._clock = brokers.instance.clock
        self._slots = asyncio.Semaphore(_AT_ONCE)

    async def take(self, client_id: str, group: str, message_id: str, given: str) -> tuple[Receipt, Held | None]:
        """Return the receipt to use for the handle that a client has, and what was held under it; renew it no more.

        Raises Refusal.
        """
        held = self.held.take(client_id, group, message_id, given)
        if held is None and self._elsewhere is not nowhere_else:
            held = await self._elsewhere(client_id, group, message_id, given)
        if held is None:
            return parse_receipt(given), None
        try:
            await self._settled(held)
        except asyncio.CancelledError:
            self.hold_again(held)  # the call ended before it used the handle
            raise
        return held.receipt, held

    def put_back(self, held: Held | None, error: Exception) -> None:
        """Hold a handle again after a request that no broker answered: the client tries again with the old handle."""
        if isinstance(error, ConnectFailed | ConnectionLost | RemotingTimeout):
            self.hold_again(held)

    def hold_again(self, held: Held | None) -> None:
        """Hold a handle again that a call has taken; release it if its client has ended meanwhile."""
        if held is None:
            return
        if self._clients.get(held.client_id) is not None:
            self.held.add(held)
        else:  # nothing would end its renewals
            self._spawn(self._release(held))

    async def renew_due(self) -> None:
        """Start the renewals that are due, and release what clients do not have.

        Nothing else looks at the messages while their clients work, so that one costs nothing until it is due.
        """
        now, now_ms, ahead_ms = self._clock.monotonic(), self._clock.wall_ms(), self._config.renew_ahead_time_millis
        for number, held in enumerate(self.held, 1):
            if not number % _SLICE:
                await next_turn()  # a proxy may hold 100,000 messages
            if not held.is_delivered and self.held.is_held(held):
                self._look_at_delivery(held, now)
            if held.is_due(now_ms, ahead_ms) and self.held.is_held(held):
                held.renewing = asyncio.get_running_loop().create_future()
                self._spawn(self._renew(held, held.renewing))

    def _look_at_delivery(self, held: Held, now: float) -> None:
        """Learn whether an answer reached its client, or was lost with its connection: nothing else tells.

        What went out before the connection was seen alive has arrived: TCP repeats it until then.  Clients send a
        heartbeat every 10 s.
        """
        if self._connections.lived(held.peer, held.received_at + _ON_ITS_WAY_S):
            held.is_delivered = True
        elif now - held.received_at >= self._config.client_lost_timeout_millis / 1000 and held.renewing is None:
            self._drop(held, "its connection brought no call since, so the client may not have it")
            self._spawn(self._release(held))

    def release_client(self, client_id: str) -> None:
        """Release what a client that has died holds: it is redelivered soon."""
        taken = self.held.take_client(client_id)
        if taken:
            peer_lines.info(logger, client_id, "event=handles_released client=%r count=%d", client_id, len(taken))
            self._spawn(self.release(taken))

    async def release(self, taken: Iterable[Held]) -> None:
        """Make messages visible soon."""
        await asyncio.gather(*(self._release(held) for held in taken))

    async def release_receipt(self, receipt: Receipt, group: str, topic: str, *, suspend: bool = False) -> None:
        """Make one message visible soon; with `suspend` its next delivery is not counted."""
        async with self._slots:
            try:
                delay_ms = self._config.invisible_time_millis_when_clear
                await self._brokers.change_invisible(receipt, group, topic, delay_ms, suspend=suspend)
            except (ClientError, Refusal) as error:
                peer_lines.info(logger, "", "event=release_failed handle=%r reason=%r", receipt.encode(), str(error))

    async def _release(self, held: Held) -> None:
        await self._settled(held)
        await self.release_receipt(held.receipt, held.group, held.topic)

    async def _settled(self, held: Held) -> None:
        """Wait for the renewal under way: it replaces the handle, and a broker refuses the old one."""
        if held.renewing is not None:
            await asyncio.wait([held.renewing], timeout=_RENEWAL_LIMIT_S)

    async def _renew(self, held: Held, done: "asyncio.Future[None]") -> None:
        async with self._slots:
            try:
                await self._renew_or_end(held)
            except Refusal as refused:
                if refused.code == wire.INVALID_RECEIPT_HANDLE:
                    # The message is redelivered, or its broker is gone: nothing can change that.
                    self._drop(held, str(refused))
                else:
                    self._failed(held, str(refused))
            except ClientError as error:
                self._failed(held, str(error))
            finally:
                held.renewing = None
                done.set_result(None)

    async def _renew_or_end(self, held: Held) -> None:
        if held.failures >= self._config.max_renew_retry_times:
            self._drop(held, f"{held.failures} renewals failed")
        elif self._clock.wall_ms() - held.received_ms < self._config.renew_max_time_millis:
            invisible_ms = held.next_invisible_ms
            if not held.is_delivered:
                # For a short time only, until it is known whether the client has it.
                invisible_ms = min(self._config.default_invisible_time_mills, invisible_ms)
            held.renewed(await self._brokers.change_invisible(held.receipt, held.group, held.topic, invisible_ms))
        else:
            group = await self._metadata.group(held.group) or SubscriptionGroupConfig(held.group)
            delay_ms = retry_delay_ms(group, held.reconsume_times)
            self._drop(held, f"received {self._config.renew_max_time_millis} ms ago")
            await self._brokers.change_invisible(held.receipt, held.group, held.topic, delay_ms)

    def _failed(self, held: Held, reason: str) -> None:
        held.failures += 1
        peer_lines.warning(
            logger, held.client_id, "event=renewal_failed message=%s failures=%d reason=%r", held.message_id,
            held.failures, reason,
        )  # fmt: skip

    def _drop(self, held: Held, reason: str) -> None:
        if self.held.drop(held):
            peer_lines.warning(
                logger, held.client_id, "event=renewal_ended message=%s client=%r reason=%r", held.message_id,
                held.client_id, reason,
            )  # fmt: skip
