"""Options of reads by queue offset: start, end, queues, size of a micro-batch."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from spark.options.option_values import MAX_DIGITS, whole_number, yes_or_no
from spark.queues.positions import EARLIEST, LATEST, OffsetsOption, assigned_queues, offsets_option
from sprocket.common.errors import ConfigError

QUEUE_OPTIONS: Final = (
    "startingOffsets",  # earliest, latest or JSON: see `spark.queues.positions`
    "endingOffsets",  # exclusive; batch only
    "assign",  # JSON {topic: [queueId, ...]}
    "maxOffsetsPerTrigger",  # maximum number of messages in a micro-batch
    "failOnDataLoss",  # true (default): messages that have expired, or a topic made again, stop the query
)


@dataclass(frozen=True)
class QueueOptions:
    """Values of the options; None for an option that is not set."""

    starting: OffsetsOption | None = None
    ending: OffsetsOption | None = None
    assigned: Mapping[str, frozenset[int]] | None = None
    max_offsets_per_trigger: int | None = None
    fail_on_data_loss: bool = True
    min_partitions: int | None = None

    @property
    def are_given(self) -> bool:
        """Whether a batch must be read by queue offsets."""
        return self.starting is not None or self.ending is not None or self.assigned is not None


def read_queue_options(given: Mapping[str, str]) -> QueueOptions:
    """Return the options of `QUEUE_OPTIONS` in `given`.  Raises ConfigError."""
    others = [name for name in ("subscribe", "subscribePattern") if name in given]
    if "assign" in given and others:
        raise ConfigError(f"options 'assign' and {others[0]!r} exclude each other")
    return QueueOptions(
        starting=offsets_option(given["startingOffsets"], "startingOffsets", EARLIEST)
        if "startingOffsets" in given
        else None,
        ending=offsets_option(given["endingOffsets"], "endingOffsets", LATEST) if "endingOffsets" in given else None,
        assigned=assigned_queues(given["assign"]) if "assign" in given else None,
        max_offsets_per_trigger=_positive(given, "maxOffsetsPerTrigger"),
        fail_on_data_loss=yes_or_no(given, "failOnDataLoss", True),
        min_partitions=_positive(given, "minPartitions"),
    )


def _positive(given: Mapping[str, str], name: str) -> int | None:
    return whole_number(given, name, 1, 1, MAX_DIGITS) if name in given else None
