"""Mark of a copied message: a property that says where the message has been, and which message of the source it is.

Its form is ``path;check;offset;queueId;brokerName``.  The path names the clusters that the message was in, with commas,
the first one is its origin and the last one the source of this copy.  The check binds the mark to its message: an
application that sends all properties of a message again sends a new message, not a copy.

A copy of a copy also says which message of its origin it is: a property of the form ``offset;queueId;brokerName``.
"""

import re
from dataclasses import dataclass
from typing import Final, NamedTuple
from zlib import crc32

from sprocket.remoting.codec.java_text import java_text
from sprocket.remoting.message.properties import encoded_name, find_last, own_unique_key

MARK: Final = "REPLICATED_FROM"
ORIGIN: Final = "REPLICATED_ORIGIN"
_NAME, _ORIGIN_NAME = encoded_name(MARK), encoded_name(ORIGIN)
CLUSTER_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,32}")
# A longer path is that of a circle that nobody wanted.
MAX_PATH: Final = 16
# A longer name is that of no broker.  Names of origins are kept in checkpoints.
_MAX_BROKER_NAME: Final = 255


class Origin(NamedTuple):
    """Where a message was first: message `offset` of a queue of `cluster`."""

    cluster: str
    broker_name: str
    queue_id: int
    offset: int

    def encode(self) -> str:
        """Return the value of the property."""
        return f"{self.offset};{self.queue_id};{self.broker_name}"


@dataclass(frozen=True, slots=True)
class Mark:
    """Where a copy comes from: message `offset` of a queue of the last cluster in `path`."""

    path: tuple[str, ...]
    check: str
    broker_name: str
    queue_id: int
    offset: int

    def encode(self) -> str:
        """Return the value of the property."""
        return f"{','.join(self.path)};{self.check};{self.offset};{self.queue_id};{self.broker_name}"

    @property
    def source(self) -> str:
        """The cluster that the copy was made from."""
        return self.path[-1]


def check_of(topic: str, unique_key: str) -> str:
    """Return the text that binds a mark to a message."""
    return f"{crc32(f'{topic} {unique_key}'.encode()):08x}"


def mark_in(topic: str, properties: bytes) -> Mark | None:
    """Return the mark of a stored message; None for a message that is no copy."""
    value = find_last(properties, _NAME)
    parts = [] if value is None else java_text(value).split(";", 4)
    if len(parts) != 5:
        return None
    path, check, offset, queue_id, broker_name = parts
    clusters = tuple(path.split(","))
    is_named = len(clusters) <= MAX_PATH and all(CLUSTER_ID.fullmatch(cluster) for cluster in clusters)
    if not (is_named and _is_number(offset) and _is_number(queue_id)):
        return None
    if check != check_of(topic, own_unique_key(properties)):
        return None
    return Mark(clusters, check, broker_name, int(queue_id), int(offset))


def origin_in(mark: Mark, properties: bytes) -> Origin | None:
    """Return where a copy was first; None if it does not say so."""
    if len(mark.path) == 1:
        return _origin(mark.source, mark.broker_name, mark.queue_id, mark.offset)
    value = find_last(properties, _ORIGIN_NAME)
    parts = [] if value is None else java_text(value).split(";", 2)
    if len(parts) != 3 or not (_is_number(parts[0]) and _is_number(parts[1])):
        return None
    return _origin(mark.path[0], parts[2], int(parts[1]), int(parts[0]))


def _origin(cluster: str, broker_name: str, queue_id: int, offset: int) -> Origin | None:
    return Origin(cluster, broker_name, queue_id, offset) if len(broker_name) <= _MAX_BROKER_NAME else None


def is_wanted(mark: Mark | None, source: str, target: str, *, forwards: bool) -> bool:
    """Return whether a message of `source` is copied to `target`.

    It is not if it was in the target already, or if it is a copy and the link does not forward copies.
    """
    if mark is None:
        return source != target
    return forwards and target not in mark.path and source not in mark.path and len(mark.path) < MAX_PATH


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= 18
