"""Result of a read of a queue.  Source: RocketMQ 5.3.3, `GetMessageStatus`, `GetMessageResult`."""

from enum import Enum

import msgspec


class GetStatus(Enum):
    """Outcome of `MessageStore.get`, with RocketMQ's names."""

    FOUND = 0
    NO_MATCHED_MESSAGE = 1
    MESSAGE_WAS_REMOVING = 2
    OFFSET_FOUND_NULL = 3
    OFFSET_OVERFLOW_BADLY = 4
    OFFSET_OVERFLOW_ONE = 5
    OFFSET_TOO_SMALL = 6
    NO_MATCHED_LOGIC_QUEUE = 7
    NO_MESSAGE_IN_QUEUE = 8
    OFFSET_RESET = 9


class Boundary(Enum):
    """End of a run of equal or missing times (`BoundaryType`)."""

    LOWER = "lower"
    UPPER = "upper"


class GetResult(msgspec.Struct, gc=False):
    """Messages of one read.

    `slices` hold the records in order, as parts of the log's mapping; adjacent records are one slice.  They stay valid
    while they are referenced.  `suggest_slave`: the reader lags so far
    that memory probably does not hold the records.
    """

    status: GetStatus
    next_offset: int
    min_offset: int
    max_offset: int
    slices: list[memoryview]
    message_count: int
    size_bytes: int
    suggest_slave: bool
