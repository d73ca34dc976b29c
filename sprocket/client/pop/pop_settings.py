"""Settings of consumers that pop."""

from dataclasses import dataclass

from sprocket.client import arguments
from sprocket.client.pop.pop_requests import MAX_POP_NUMS


@dataclass(frozen=True, kw_only=True)
class PopSettings:
    """How messages are popped, under RocketMQ's names.  Source: RocketMQ 5.3.3, `DefaultMQPushConsumer`."""

    pop_invisible_time_s: float = 60.0  # a message that is neither acknowledged nor renewed by then is redelivered
    pop_batch_nums: int = MAX_POP_NUMS
    pop_threshold_for_queue: int = 96  # maximum number of messages that an iteration or `run` holds
    poll_time_s: float = 15.0  # how long a broker holds a pop that finds nothing
    renew_limit_s: float = 15 * 60.0  # consumeTimeout: a message in work is renewed up to this time
    remember_s: float = 0.0  # a message that was acknowledged is not given again for this time; not for lite topics

    def __post_init__(self) -> None:
        """Raises IllegalArgument."""
        arguments.check(self, _CHECKS)


_CHECKS = {
    "pop_invisible_time_s": arguments.timeout,
    "pop_batch_nums": arguments.at_least(1, MAX_POP_NUMS),
    "pop_threshold_for_queue": arguments.at_least(1),
    "poll_time_s": arguments.seconds,
    "renew_limit_s": arguments.timeout,
    "remember_s": arguments.seconds,
}
