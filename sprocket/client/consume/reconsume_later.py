"""Decision of a handler to have its message redelivered."""

from datetime import timedelta

from sprocket.client import arguments


class ReconsumeLater(Exception):
    """Raised by a handler that wants its message redelivered, without an error in the log.

    `delay` is a timedelta or seconds.  A `Consumer` rounds it up to the next of RocketMQ's delay levels; for an
    `OrderlyConsumer` it is how long the queue waits, 10 ms to 30 s; for a `SimpleConsumer` it is exact.

    `delay_level` 1 to 18 chooses the level directly (delayLevelWhenNextConsume), 0 leaves it to the broker and its
    retry policy, -1 sends the message to the dead-letter topic.  `suspend_s` is the wait of an `OrderlyConsumer` alone
    (suspendCurrentQueueTimeMillis).
    """

    def __init__(
        self, delay_level: int = 0, *, delay: timedelta | float | None = None, suspend_s: float | None = None
    ) -> None:
        """Raises IllegalArgument."""
        arguments.delay_level(delay_level, low=-1)
        if delay is not None:
            delay_level, suspend_s = arguments.level_of_delay("delay", delay), arguments.seconds("delay", delay)
        elif suspend_s is not None:
            arguments.seconds("suspend_s", suspend_s)
        super().__init__(f"delay_level={delay_level}" if suspend_s is None else f"suspend_s={suspend_s:g}")
        self.delay_level = delay_level
        self.suspend_s = suspend_s
