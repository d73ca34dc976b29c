"""Messages of a query that no longer exist: an error or a warning with their ranges."""

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from spark.queues.positions import QueueId
from sprocket.common.errors import StoreError

logger = logging.getLogger(__name__)

_ADVICE = "option failOnDataLoss=false skips them"


@dataclass(frozen=True, order=True)
class LostRange:
    """Queue offsets [`begin`, `end`) of a queue, and the reason why they cannot be read."""

    queue: QueueId
    begin: int
    end: int
    reason: str = "expired"

    def __str__(self) -> str:
        return f"{self.queue} [{self.begin}, {self.end}) {self.reason}"


class MessagesLost(StoreError):
    """Messages of the query have expired, or their topic was deleted; `lost` has every range."""

    def __init__(self, lost: Sequence[LostRange]) -> None:
        super().__init__(f"messages are lost: {'; '.join(map(str, sorted(lost)))}; {_ADVICE}")
        self.lost = tuple(lost)

    def __reduce__(self) -> tuple[type["MessagesLost"], tuple[tuple[LostRange, ...]]]:
        return MessagesLost, (self.lost,)


def report_loss(lost: Iterable[LostRange], fail: bool) -> int:
    """Log each range as a warning and return the number of lost messages.  Raises MessagesLost if `fail`."""
    ranges = list(lost)
    if ranges and fail:
        raise MessagesLost(ranges)
    for each in ranges:
        logger.warning(
            "event=messages_lost broker=%s topic=%s queue_id=%d begin=%d end=%d count=%d reason=%s",
            each.queue.broker_name, each.queue.topic, each.queue.queue_id,
            each.begin, each.end, max(0, each.end - each.begin), each.reason,
        )  # fmt: skip
    return sum(max(0, each.end - each.begin) for each in ranges)
