"""Settings of a consumer.  Source: RocketMQ 5.3.3, `DefaultMQPushConsumer`, `MessageModel`."""

from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from sprocket.client import arguments
from sprocket.client.pull.pull import PullSettings


class MessageModel(Enum):
    """Whether members of a group share the messages or each gets all of them."""

    CLUSTERING = "CLUSTERING"
    BROADCASTING = "BROADCASTING"


@dataclass(frozen=True, kw_only=True)
class ConsumeSettings:
    """Settings of consumption under RocketMQ's names."""

    pull: PullSettings = field(default_factory=PullSettings)
    max_reconsume_times: int = 16  # then the message goes to the dead-letter topic
    consume_message_batch_max_size: int = 1  # of `run_batches`; 1 to 1024
    consume_timeout_s: float = 15 * 60.0  # a message that is not acknowledged by then is redelivered
    local_offset_store_dir: Path = field(default_factory=lambda: Path.home() / ".rocketmq_offsets")

    def __post_init__(self) -> None:
        """Raises IllegalArgument; limits are those of `DefaultMQPushConsumerImpl.checkConfig`."""
        arguments.check(self, _CHECKS)


_CHECKS = {
    "pull": arguments.of_kind(PullSettings),
    "max_reconsume_times": arguments.at_least(-1, 2**31 - 1),  # -1 leaves it to the broker
    "consume_message_batch_max_size": arguments.at_least(1, 1024),
    "consume_timeout_s": arguments.timeout,
    "local_offset_store_dir": arguments.of_kind(Path),
}
