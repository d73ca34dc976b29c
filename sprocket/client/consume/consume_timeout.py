"""Consume timeout: redeliver messages that an application held for too long, so that none of them stops its queue.

Source: RocketMQ 5.3.3, `ConsumeMessageConcurrentlyService.cleanExpireMsg`, `ProcessQueue.cleanExpiredMsg`.
Different here: every message that the application holds is checked, not only the first of each queue, and more often
than once per timeout.
"""

import logging
from collections.abc import Awaitable, Callable, Iterable

from sprocket.client.connection.wakeup import pause
from sprocket.client.message import ReceivedMessage
from sprocket.client.pull.process_queue import ProcessQueue
from sprocket.common.errors import ClientError

logger = logging.getLogger(__name__)

# Delay level of such a redelivery.
_DELAY_LEVEL = 3
_MAX_INTERVAL_S = 60.0


async def give_back_expired(
    held: Callable[[], Iterable[ProcessQueue]],
    nack: Callable[[ReceivedMessage, int], Awaitable[None]],
    monotonic: Callable[[], float],
    timeout_s: float,
) -> None:
    """Forever reject messages of the queues in `held` that were taken `timeout_s` ago and are not acknowledged."""
    while True:
        await pause(min(timeout_s / 4, _MAX_INTERVAL_S))
        limit = monotonic() - timeout_s
        for queue in held():
            for message in queue.taken_before(limit):
                logger.warning("event=consume_timeout message=%r timeout_s=%g", message, timeout_s)
                try:
                    await nack(message, _DELAY_LEVEL)
                except ClientError as error:
                    logger.warning("event=nack_failed message=%r reason=%r", message, str(error))
