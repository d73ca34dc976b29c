"""Check for stores with the same log, as a master and its slave or a copy: rows would be read twice."""

import os
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from typing import Final

from spark.files.segment import segment_paths
from sprocket.common.errors import ConfigError
from sprocket.common.files.regular_file import open_regular

_COMPARED_BYTES: Final = 4096
# Common segments of two logs to compare, newest first: a preallocated one is empty.
_LOOKED_AT: Final = 3


def check_copies(logs: Sequence[Path]) -> None:
    """Raise ConfigError if two of these CommitLog directories begin a segment with the same records.

    A slave's log equals its master's byte for byte, at the same physical offsets.  Records of two brokers differ in
    host and time.
    """
    if len(logs) < 2:
        return
    segments = {log: _segments(log) for log in logs}
    for left, right in combinations(logs, 2):
        common = sorted(segments[left].keys() & segments[right].keys(), reverse=True)
        for start in common[:_LOOKED_AT]:
            mine, its = _head(segments[left][start]), _head(segments[right][start])
            if any(mine[:4]) and mine == its:
                raise ConfigError(
                    f"{left.parent} and {right.parent} hold the same log, as a master and its slave or a copy do: "
                    "every row would be read twice; name only one of them in path"
                )


def _segments(log: Path) -> dict[int, Path]:
    try:
        return dict(segment_paths(log))
    except OSError:
        return {}  # the read reports it


def _head(path: Path) -> bytes:
    """Return the first record of the file, up to the length that is compared."""
    try:
        with os.fdopen(open_regular(path), "rb") as file:
            content = file.read(_COMPARED_BYTES)
    except OSError:
        return b""
    return content[: int.from_bytes(content[:4], "big")]
