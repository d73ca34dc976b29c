"""Callbacks of a consumer: its queues, its connections, its permission."""

import inspect
import logging
from collections.abc import Awaitable, Callable, Sequence

from sprocket.client.errors import PermissionDenied
from sprocket.remoting.bodies.client import MessageQueue
from sprocket.remoting.message.topic_names import RETRY_PREFIX

logger = logging.getLogger(__name__)


class ConsumerListener:
    """Base class of an application's listener; override what you need, as plain or async methods.

    An error that a callback raises is logged and changes nothing.  Queues of the group's retry topic are left out.
    """

    def on_assigned(self, queues: list[MessageQueue]) -> Awaitable[None] | None:
        """The consumer has got `queues`.  `seek` in here decides where it begins."""
        return None

    def on_revoked(self, queues: list[MessageQueue]) -> Awaitable[None] | None:
        """The consumer gives `queues` away after this call.  Acknowledgements in here still count."""
        return None

    def on_connection_lost(self, address: str) -> Awaitable[None] | None:
        """A connection to a broker or name server was closed by the other side, or broke."""
        return None

    def on_connection_restored(self, address: str) -> Awaitable[None] | None:
        """A lost connection is open again."""
        return None

    def on_permission_lost(self, error: PermissionDenied) -> Awaitable[None] | None:
        """Access control refuses the consumer's requests.  It continues to try."""
        return None


class Notifier:
    """Caller of a listener."""

    def __init__(self, listener: ConsumerListener) -> None:
        self._listener = listener

    async def assigned(self, queues: Sequence[MessageQueue]) -> None:
        """Report new queues."""
        await self._queues(self._listener.on_assigned, queues)

    async def revoked(self, queues: Sequence[MessageQueue]) -> None:
        """Report queues that are about to go."""
        await self._queues(self._listener.on_revoked, queues)

    async def _queues(
        self, callback: Callable[[list[MessageQueue]], Awaitable[None] | None], queues: Sequence[MessageQueue]
    ) -> None:
        told = sorted(queue for queue in queues if not queue.topic.startswith(RETRY_PREFIX))
        if told:
            await self.tell(lambda: callback(told))

    async def tell(self, callback: Callable[[], Awaitable[None] | None]) -> None:
        """Call `callback`; an error is logged."""
        try:
            outcome = callback()
            if inspect.isawaitable(outcome):
                await outcome
        except Exception:
            logger.exception("event=listener_failed listener=%r", type(self._listener).__name__)
