"""Delivery of an acting slave's messages to another master of the cluster.

Nothing is ever appended to the slave's own log, which stays a copy of the lost master's.  While enableRemoteEscape is
off, or no other master accepts a message, the message waits.  The caller's position advances once a whole batch is
stored there.  Source: RocketMQ 5.3.3, `EscapeBridge.putMessage`, `asyncPutMessage`.  Unlike there, a message counts as
delivered if another master stored it but has not yet flushed or replicated it: a second send would duplicate it.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final

from broker.config.live_config import LiveConfig
from broker.failover.escaped_message import STORED, EscapedMessage
from broker.failover.other_masters import OtherMasters, chosen
from broker.periodic import pause
from broker.role import Role
from broker.topic.moved_queues import PresentPlaces, PresentQueues
from sprocket.client.connection.name_servers import NameServers
from sprocket.common.clock import Clock
from sprocket.common.errors import ClientError
from sprocket.common.logs.peer_lines import peer_lines
from sprocket.remoting.client import RemotingClient
from sprocket.remoting.codes import RequestCode, ResponseCode
from store.delivery import Delivery
from store.message_store import MessageStore
from store.record.record import PendingMessage

logger = logging.getLogger(__name__)

# `EscapeBridge.SEND_TIMEOUT`
_SEND_TIMEOUT_S: Final = 3.0
_RETRY_S: Final = 1.0
# Responses after which no master will ever accept the message.
_REFUSED: Final = frozenset({ResponseCode.MESSAGE_ILLEGAL})


class EscapeBridge:
    """Sender to other masters.  Lives in the event loop's thread; one task per batch."""

    is_own_log: Final = False

    def __init__(self, config: LiveConfig, client: RemotingClient, masters: OtherMasters) -> None:
        self._config = config
        self._client = client
        self._masters = masters
        self._tasks: set[asyncio.Task[None]] = set()
        # Called with each message that goes to another master.
        self.on_message: list[Callable[[EscapedMessage], None]] = []
        self.escaped = 0  # messages that other masters have stored

    def deliver(self, messages: Sequence[PendingMessage], done: Callable[[], None]) -> "asyncio.Task[None]":
        """Send `messages` until all are stored, then call `done`.  The returned task can be cancelled."""
        batch = [EscapedMessage(message) for message in messages]
        for listener in self.on_message:
            for message in batch:
                listener(message)
        task = asyncio.get_running_loop().create_task(self._send_all(batch))
        self._tasks.add(task)

        def ended(task: "asyncio.Task[None]") -> None:
            self._tasks.discard(task)
            if not task.cancelled():
                task.result()
                done()

        task.add_done_callback(ended)
        return task

    def refusals(self, messages: Sequence[PendingMessage]) -> dict[int, str]:
        """Return nothing: the other master's own limits apply, and it answers for each message."""
        return {}

    async def _send_all(self, batch: list[EscapedMessage]) -> None:
        attempt = 0
        waiting = batch
        while waiting:
            if self._config.broker.enable_remote_escape:
                results = await asyncio.gather(*(self._send(message, attempt) for message in waiting))
                refusals = [reason for reason in results if reason]
                waiting = [message for message, reason in zip(waiting, results, strict=True) if reason]
                attempt += 1
                if waiting:
                    peer_lines.warning(
                        logger, "", "event=escape_postponed waiting=%d of=%d topic=%s reason=%r",
                        len(waiting), len(batch), waiting[0].topic, refusals[0],
                    )  # fmt: skip
            if waiting:
                await pause(_RETRY_S)

    async def _send(self, message: EscapedMessage, attempt: int) -> str:
        """Send one message; return why it must be sent again, or the empty text."""
        masters = await self._masters.of(message.topic)
        master = chosen(masters, message.topic, message.queue_id, attempt)
        if master is None:
            return "no other master accepts messages of the topic"
        config = self._config.broker
        own_group = f"InnerProducerGroup_{config.broker_name}_{config.broker_id}"
        header = message.header(message.queue_id % master.queues, own_group, master.broker_name)
        try:
            response = await self._client.invoke(
                master.address, RequestCode.SEND_MESSAGE_V2, header, message.body, timeout_s=_SEND_TIMEOUT_S
            )
        except ClientError as error:
            self._masters.forget(message.topic)
            return str(error)
        if response.code in STORED:
            self.escaped += 1
            return ""
        if response.code in _REFUSED:
            peer_lines.error(
                logger, "", "event=escape_refused topic=%s broker=%s reason=%r", message.topic, master.broker_name,
                response.remark,
            )  # fmt: skip
            return ""
        self._masters.forget(message.topic)
        return f"{master.broker_name} answers {response.code} {response.remark}"


def delivery(
    config: LiveConfig, role: Role, store: MessageStore, client: RemotingClient, clock: Clock, places: PresentPlaces
) -> Delivery:
    """Return where messages go that the broker itself makes: its own log, or for a slave another master."""
    if not role.is_slave:
        return PresentQueues(store, places)
    broker = config.broker
    name_servers = NameServers(client, broker.name_servers) if broker.name_servers else None
    others = OtherMasters(name_servers, broker.broker_cluster_name, broker.broker_name, clock)
    return EscapeBridge(config, client, others)
