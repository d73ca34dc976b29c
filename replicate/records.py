"""What the target knows about its links: a compacted topic, read as a table.

Keys are ``queue/<source>/<topic>/<broker>/<queueId>``, ``link/<source>``, ``pair/<a>/<b>`` and
``refused/<source>/<topic>/<broker>/<queueId>/<offset>``.
"""

from typing import Final
from urllib.parse import quote, unquote

import msgspec

from replicate.protocol.copies import SourceQueue
from replicate.protocol.position import Checkpoint
from replicate.protocol.steps import Pair

TOPIC: Final = "REPLICATION_STATE"
QUEUES: Final = 4


class Link(msgspec.Struct, frozen=True):
    """One direction, as the target knows it."""

    source: str
    forwards: bool
    at_ms: int


class Refused(msgspec.Struct, frozen=True):
    """A message that the target does not take; it is left out, and stays in the source."""

    message_id: str
    reason: str
    at_ms: int


class Record(msgspec.Struct, frozen=True, omit_defaults=True):
    """Value of one key: one of these."""

    queue: Checkpoint | None = None
    link: Link | None = None
    pair: Pair | None = None
    refused: Refused | None = None


def queue_key(queue: SourceQueue) -> str:
    """Return the key of a queue of a source."""
    return f"queue/{queue.cluster}/{quote(queue.topic)}/{quote(queue.broker_name)}/{queue.queue_id}"


def queue_of(key: str) -> SourceQueue | None:
    """Return the queue of a key; None for a key of another kind."""
    parts = key.split("/")
    if parts[0] != "queue" or len(parts) != 5 or not parts[4].isdecimal():
        return None
    return SourceQueue(parts[1], unquote(parts[2]), unquote(parts[3]), int(parts[4]))


def link_key(source: str) -> str:
    """Return the key of a link."""
    return f"link/{source}"


def pair_key(one: str, other: str) -> str:
    """Return the key of the state of a pair, in both clusters."""
    return "pair/" + "/".join(sorted((one, other)))


def refused_key(queue: SourceQueue, offset: int) -> str:
    """Return the key of a message that was left out."""
    return queue_key(queue).replace("queue/", "refused/", 1) + f"/{offset}"
