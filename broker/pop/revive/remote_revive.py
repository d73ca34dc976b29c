"""Revival of other brokers' checkpoints: their messages are fetched, then redelivered here.

Source: RocketMQ 5.3.3, `PopReviveService.reviveMsgFromCk`.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from broker.periodic import pause
from broker.pop.records import PopCheckPoint
from broker.pop.revive.remote_messages import MessageGone, RemoteMessages
from broker.pop.revive.revive_window import Held, open_indexes
from broker.pop.revive.reviver import Due, Reviver
from sprocket.common.errors import ClientError, ProtocolError, StoreError
from sprocket.common.logs.peer_lines import peer_lines
from store.record.record import Record

logger = logging.getLogger(__name__)

_RETRY_S: Final = 1.0


class RemoteRevive:
    """Revival of remote checkpoints.  Lives in the event loop's thread; one task per checkpoint."""

    def __init__(self, own_name: str, messages: RemoteMessages, reviver: Reviver) -> None:
        self._own_name = own_name
        self._messages = messages
        self._reviver = reviver
        self._tasks: set[asyncio.Task[None]] = set()

    def takes(self, checkpoint: PopCheckPoint | None) -> bool:
        """Return whether the checkpoint belongs to another broker that can be asked."""
        is_remote = checkpoint is not None and checkpoint.bn not in (None, "", self._own_name)
        return is_remote and self._messages.is_enabled

    def begin(self, held: Held, done: Callable[[], None]) -> None:
        """Fetch and redeliver the checkpoint's messages; then call `done`."""
        assert held.checkpoint is not None
        task = asyncio.get_running_loop().create_task(self._revive(held.checkpoint, done))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def stop(self) -> None:
        """Cancel all tasks; unfinished checkpoints are read again."""
        for task in self._tasks:
            task.cancel()

    async def _revive(self, checkpoint: PopCheckPoint, done: Callable[[], None]) -> None:
        while True:
            try:
                due = [one for index in open_indexes(checkpoint) if (one := await self._due(checkpoint, index))]
                if not due:
                    done()
                else:
                    self._reviver.deliver(due, done)
                return
            except StoreError as error:
                peer_lines.warning(
                    logger, checkpoint.bn or "", "event=revive_postponed broker=%s reason=%r", checkpoint.bn, str(error)
                )
            await pause(_RETRY_S)

    async def _due(self, checkpoint: PopCheckPoint, index: int) -> Due | None:
        record: Record | str
        try:
            record = await self._messages.find(checkpoint, checkpoint.offset_at(index))
        except MessageGone as gone:
            record = str(gone)
        except (ClientError, ProtocolError) as error:
            peer_lines.warning(
                logger, checkpoint.bn or "", "event=revive_put_off broker=%s reason=%r", checkpoint.bn, str(error)
            )
            return self._reviver.later(checkpoint, index)
        return self._reviver.again(checkpoint, index, record)
