"""Place of a table in the log of each broker, kept in the table's own commits.

The log of a broker is one sequence, so one number is enough: every message of the topic that begins before that
physical offset is in the table or in its dead letters, and none at or after it.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from sprocket.common.errors import StoreError


@dataclass(frozen=True)
class BrokerPlace:
    """Place in one log; `end` is the physical offset up to which the log is in the table.

    Physical offset and store timestamp (ms) of the last written message identify the log; -1 without a message.
    """

    end: int
    last_offset: int = -1
    last_timestamp: int = -1


Places = Mapping[str, BrokerPlace]


class PlaceMoved(StoreError):
    """Another process has written to the table; this commit was not made."""


def as_json(places: Places) -> str:
    """Return the text for `from_json`; equal places give equal texts."""
    return json.dumps({name: asdict(place) for name, place in sorted(places.items())}, sort_keys=True)


def from_json(text: str) -> dict[str, BrokerPlace]:
    """Return the places in a text of `as_json`."""
    return {name: BrokerPlace(**place) for name, place in json.loads(text).items()}


def attempt_of(places: Places) -> str:
    """Return a name for the files of the next commit: files with it that are in no commit are from a failed attempt."""
    return hashlib.blake2b(as_json(places).encode(), digest_size=6).hexdigest()
