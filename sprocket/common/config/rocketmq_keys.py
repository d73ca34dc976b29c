"""Every configuration key that Apache RocketMQ 5.3.3 or 5.5.1 knows, with type, default and whether `-m` prints it.

The data lie in ``rocketmq_keys.tsv``; its head says where they come from.
"""

from functools import cache
from pathlib import Path
from typing import NamedTuple


class ReferenceKey(NamedTuple):
    """One key of RocketMQ.  `type` is Java's (``int``, ``long``, ``boolean``, ``String``, ...) or an enum's names."""

    owner: str
    key: str
    type: str
    default: str
    important: bool


# Ranges of Java's integer types, inclusive.
INTEGER_RANGES = {"int": (-(2**31), 2**31 - 1), "long": (-(2**63), 2**63 - 1)}


@cache
def reference_keys() -> dict[str, ReferenceKey]:
    """Return all keys by name; a key of several classes has the data of the first."""
    text = Path(__file__).with_name("rocketmq_keys.tsv").read_text(encoding="utf-8")
    keys: dict[str, ReferenceKey] = {}
    for line in text.splitlines():
        if line.startswith("#"):
            continue
        owner, key, java_type, default, important = [*line.split("\t"), "", ""][:5]
        keys.setdefault(key, ReferenceKey(owner, key, java_type, default, important == "important"))
    return keys
