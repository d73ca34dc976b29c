"""What the target knows about its links: a compacted topic, read as a table.

Keys are ``queue/<source>/<topic>/<broker>/<queueId>``, ``link/<source>``, ``pair/<a>/<b>``,
``refused/<source>/<topic>/<broker>/<queueId>/<offset>`` and ``first/<holder>/<source>/<topic>/<broker>/<queueId>``: an
early checkpoint of a queue, which each broker of the target holds.  While a broker is away, the table lacks its
records, and without an early checkpoint a queue would be taken for a new one and copied again, perhaps elsewhere.
"""

from collections.abc import Mapping
from typing import Final
from urllib.parse import quote, unquote

import msgspec

from replicate.config import Config
from replicate.protocol.copies import SourceQueue
from replicate.protocol.position import Checkpoint
from replicate.protocol.steps import Pair, newest

TOPIC: Final = "REPLICATION_STATE"
QUEUES: Final = 4
_DAY_MS: Final = 24 * 3600 * 1000


class Link(msgspec.Struct, frozen=True, omit_defaults=True):
    """One direction, as the target knows it: which replicator copies it, and when that one said so last."""

    source: str
    forwards: bool
    target: str = ""
    at_ms: int = 0
    owner: str = ""
    unplaced: int = 0  # groups that get no offset in some queue, as their place there is not known


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


def first_key(queue: SourceQueue, holder: str) -> str:
    """Return the key of a queue's early checkpoint at the broker `holder`."""
    return queue_key(queue).replace("queue/", f"first/{quote(holder, safe='')}/", 1)


def newest_of(*checkpoints: Checkpoint | None) -> Checkpoint | None:
    """Return the newest of the checkpoints of a queue; None if there is none."""
    return max(filter(None, checkpoints), key=lambda one: (one.epoch, one.next_offset), default=None)


def first_checkpoints(table: Mapping[str, Record]) -> dict[SourceQueue, Checkpoint]:
    """Return the newest early checkpoint of each queue that has one at any broker."""
    found = dict[SourceQueue, Checkpoint]()
    for key, record in list(table.items()):
        kind, _, rest = key.partition("/")
        queue = queue_of(f"queue/{rest.partition('/')[2]}") if kind == "first" else None
        checkpoint = None if queue is None else newest_of(found.get(queue), record.queue)
        if queue is not None and checkpoint is not None:
            found[queue] = checkpoint
    return found


def queue_of(key: str) -> SourceQueue | None:
    """Return the queue of a key; None for a key of another kind."""
    parts = key.split("/")
    if parts[0] != "queue" or len(parts) != 5 or not parts[4].isdecimal():
        return None
    return SourceQueue(parts[1], unquote(parts[2]), unquote(parts[3]), int(parts[4]))


def link_key(source: str) -> str:
    """Return the key of a link."""
    return f"link/{source}"


def uncounted(table: Mapping[str, Record], links: Config, source: str, target: str, now_ms: int) -> list[str]:
    """Return the clusters beside `target` that are copied to `source`, whose table it is, by none of `links`.

    Those that were copied in the last day count, and those of a replicator of an older version, which does not say when
    it copied.
    """
    known = [record.link for record in table.values() if record.link is not None]
    copied = {link.source for link in known if link.at_ms > now_ms - _DAY_MS or not link.at_ms}
    return sorted(each for each in copied - {target} if links.link(each, source) is None)


def pair_key(one: str, other: str) -> str:
    """Return the key of the state of a pair, in both clusters."""
    return "pair/" + "/".join(sorted((one, other)))


def pair_in(one: str, other: str, *tables: Mapping[str, Record]) -> Pair | None:
    """Return the state of a pair that counts of those in `tables`; None if there is none."""
    records = (table.get(pair_key(one, other)) for table in tables)
    return newest(*(None if record is None else record.pair for record in records))


def refused_key(queue: SourceQueue, offset: int) -> str:
    """Return the key of a message that was left out."""
    return queue_key(queue).replace("queue/", "refused/", 1) + f"/{offset}"
