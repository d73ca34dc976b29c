"""Bounds of the JSON bodies of requests, checked before any object is made of them.

A decoder makes an object for every value, so the number of values is bounded as well as the size.  It is counted by the
characters that begin a value in a list or a map: commas, braces and brackets.  Those inside texts count as well.
The bounds are far above what clients and tools send; see docs/security.md.
"""

from collections.abc import Sized
from typing import Final, NamedTuple

from sprocket.common.errors import ProtocolError


def count_values(body: bytes) -> int:
    """Return how many values a body has at most."""
    return body.count(b",") + body.count(b"{") + body.count(b"[")


class BodyLimit(NamedTuple):
    """Max bytes and max values of one kind of body.

    `bare_key_bytes` bounds a body with keys that have no quotes, which takes many times longer to read.  No client
    sends such a request; tables by queue, which have such keys, are answers and files.
    """

    size_bytes: int
    values: int
    bare_key_bytes: int = 64 * 1024

    def check(self, body: bytes) -> None:
        """Raise ProtocolError for a body beyond the limit."""
        if len(body) > self.size_bytes:
            raise ProtocolError("body", f"{len(body)} bytes, the limit is {self.size_bytes}; send several requests")
        values = count_values(body)
        if values > self.values:
            raise ProtocolError("body", f"{values} values, the limit is {self.values}; send several requests")


_KIB: Final = 1024
# Bodies with a fixed number of fields.
SMALL: Final = BodyLimit(64 * _KIB, 1_000)
# A subscription group, and the policies of one subject.
SETTINGS: Final = BodyLimit(256 * _KIB, 5_000)
# Lists: groups of a client, acknowledgements, topics, groups.
LISTS: Final = BodyLimit(1024 * _KIB, 30_000)
# Queues to lock: four values each.
QUEUES: Final = BodyLimit(2048 * _KIB, 50_000)
# The mapping of a static topic: ten values for each physical queue.  Its keys, which are numbers, have no quotes.
MAPPING: Final = BodyLimit(512 * _KIB, 30_000, 512 * _KIB)
# The topics of a broker, which a name server reads in a thread: a frame of 16 MiB holds 80,000.  The keys of static
# topics, which are numbers, have no quotes.
REGISTRATION: Final = BodyLimit(16 * 1024 * _KIB, 1_200_000, 1024 * _KIB)
# A client's answer to an operator's question about its queues.
ANSWERS: Final = BodyLimit(2048 * _KIB, 50_000, 512 * _KIB)


def check_count(name: str, items: Sized, limit: int) -> None:
    """Raise ProtocolError if a list of a body has more items than `limit`."""
    if len(items) > limit:
        raise ProtocolError("body", f"{len(items)} {name}, the limit is {limit}; send several requests")
