"""Refuses what has waited for too long before it was read: under too much load some are told so in time.

Source: RocketMQ 5.3.3, `BrokerFastFailure.cleanExpiredRequestInQueue`.  There a request waits in the queue of its
thread pool; here in the buffers of sockets, see `remoting.shedding`.
"""

import logging
from typing import Final

from broker.live_config import LiveConfig
from remoting.routes import Lane
from sprocket.common.clock import Clock

logger = logging.getLogger(__name__)

CHECK_S: Final = 1.0


class FastFailure:
    """Which requests of one broker are late.  Lives in the event loop's thread.

    Beyond the reference: they have to be late for as long as they may wait.  A single pause refuses nothing.
    """

    def __init__(self, config: LiveConfig, clock: Clock) -> None:
        self._config = config
        self._clock = clock
        self.reads_refused = 0  # of whose requests some were
        self._late_since: dict[Lane, float] = {}
        self._refused_before = 0  # at the last look
        self._is_refusing = False

    def reason(self, lane: Lane, waited_s: float, count: int) -> str | None:
        """Why requests of `lane` are refused, of a read that brought `count`; None for what is served."""
        broker = self._config.broker
        if lane is Lane.SEND:
            most_ms = broker.wait_time_mills_in_send_queue
        elif lane is Lane.PULL:
            most_ms = broker.wait_time_mills_in_pull_queue
        else:
            # Heartbeats and operators are few, and to turn them away makes things worse.
            return None
        waited_ms = int(waited_s * 1000)
        if waited_ms < most_ms or not broker.broker_fast_failure_enable:
            self._late_since.pop(lane, None)
            return None
        now = self._clock.monotonic()
        if (now - self._late_since.setdefault(lane, now)) * 1000 < most_ms:
            return None
        self.reads_refused += 1
        return (
            f"[TIMEOUT_CLEAN_QUEUE]broker busy, start flow control for a while, period in queue: {waited_ms}ms, "
            f"size of queue: {count}; retry after {waited_ms} ms"
        )

    def look(self) -> None:
        """Say once that it begins, and that it is over."""
        is_refusing = self.reads_refused > self._refused_before
        self._refused_before = self.reads_refused
        if is_refusing != self._is_refusing:
            self._is_refusing = is_refusing
            state = "refusing" if is_refusing else "serving"
            logger.warning("event=overload state=%s reads_refused=%d", state, self.reads_refused)
