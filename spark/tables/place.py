"""How far the log of each broker is in a table: part of the table's own commits.

The log of a broker is one sequence, so one number says it all: every message of the topic that begins before that
physical offset is in the table or in its dead letters, and none at or after it.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from sprocket.common.errors import StoreError


@dataclass(frozen=True)
class BrokerPlace:
    """`end`: physical offset up to which the log is in the table.

    The last message that was written, by physical offset and store timestamp in ms, tells the log from another one;
    -1 if there was none.
    """

    end: int
    last_offset: int = -1
    last_timestamp: int = -1


Places = Mapping[str, BrokerPlace]


class PlaceMoved(StoreError):
    """Another process has written to the table meanwhile; nothing of this commit is in it."""


def as_json(places: Places) -> str:
    """Readable by `from_json`; equal places give equal texts."""
    return json.dumps({name: asdict(place) for name, place in sorted(places.items())}, sort_keys=True)


def from_json(text: str) -> dict[str, BrokerPlace]:
    """The opposite of `as_json`."""
    return {name: BrokerPlace(**place) for name, place in json.loads(text).items()}


def attempt_of(places: Places) -> str:
    """A name for what is written from here on: files of it that are in no commit are left from a try that failed."""
    return hashlib.blake2b(as_json(places).encode(), digest_size=6).hexdigest()
