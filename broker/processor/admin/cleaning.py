"""Cleaning on request: expired segments, and queues whose messages have all expired.

Source: RocketMQ 5.3.3, `AdminBrokerProcessor.deleteExpiredCommitLog`, `cleanExpiredConsumeQueue`.
"""

import asyncio
import logging
from typing import Any

from broker.core import BrokerCore
from sprocket.common.logs.peer_lines import peer_lines
from sprocket.common.next_turn import to_its_end
from sprocket.remoting.codes import RequestCode
from sprocket.remoting.command import Request, Response
from sprocket.remoting.routes import Action, NoHeader, Resource, Route
from store.retention.queue_removal import Removal

logger = logging.getLogger(__name__)


class CleaningProcessor:
    """Handler of both requests."""

    def __init__(self, core: BrokerCore) -> None:
        self._tier = core.tier
        self._store = core.store
        self._topics = core.topics

    def routes(self) -> list[Route]:
        """The routes of this processor."""
        return [
            Route(code, NoHeader, handle, Resource.CLUSTER, Action.DELETE)
            for code, handle in (
                (RequestCode.DELETE_EXPIRED_COMMITLOG, self.delete_expired_commit_log),
                (RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE, self.clean_expired_consume_queue),
            )
        ]

    def delete_expired_commit_log(self, request: Request[NoHeader]) -> Response:
        """Let the next twenty rounds of cleaning delete expired segments at any hour."""
        peer_lines.info(
            logger, request.channel.peer, "event=delete_expired_commit_log peer=%s:%s", *request.channel.peer
        )
        self._store.cleaner.clean_now()
        return Response()

    def _is_kept(self, topic: str) -> bool:
        # A queue that is removed begins at 0 again, but its archived messages have the offsets before.
        return self._topics.is_system(topic) or self._tier.has_topic(topic)

    async def clean_expired_consume_queue(self, request: Request[NoHeader]) -> Response:
        """Delete queues whose messages have all expired, except those of system topics."""
        removed = await to_its_end(remove_queues(self._store.expired_removal(self._is_kept)))
        peer_lines.info(
            logger, request.channel.peer, "event=clean_expired_consume_queue peer=%s:%s removed=%d",
            *request.channel.peer, removed,
        )  # fmt: skip
        return Response()


async def remove_queues(removal: Removal[Any]) -> int:
    """Remove queues; return how many.  Only a thread waits for the disk.  Raises `DiskFull` or `DiskFailed`."""
    while removal.must_note():
        await asyncio.to_thread(removal.note)
    return removal.finish()
