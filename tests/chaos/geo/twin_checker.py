"""What must hold of a topic that two clusters copy to each other, once both have all of it.

A queue is a list of keys in the order of offsets.  A key begins with the name of the cluster that it was sent to.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Final

# (broker name, queue id) -> keys
Queues = Mapping[tuple[str, int], Sequence[str]]
_MAX_PROBLEMS: Final = 20


def is_of(key: str, site: str) -> bool:
    """Return whether the message was sent to `site`."""
    return key.startswith(f"{site}-")


def problems(contents: Mapping[str, Queues], acknowledged: Mapping[str, set[str]]) -> list[str]:
    """Return what is wrong: lost, doubled, missing at the other cluster, or out of order there."""
    found: list[str] = []
    placed = {site: _places(site, queues, found) for site, queues in contents.items()}
    for site, queues in contents.items():
        found += [f"{key} was acknowledged by {site} and is lost" for key in acknowledged[site] - placed[site].keys()]
        for other in contents.keys() - {site}:
            found += [f"{key} is not in {other}" for key in placed[site].keys() - placed[other].keys()]
            for queue, keys in queues.items():
                found += _out_of_order(queue, [key for key in keys if is_of(key, site)], other, placed[other])
    return found[:_MAX_PROBLEMS]


def _places(site: str, queues: Queues, found: list[str]) -> dict[str, tuple[tuple[str, int], int]]:
    places: dict[str, tuple[tuple[str, int], int]] = {}
    for queue, keys in queues.items():
        for place, key in enumerate(keys):
            if key in places:
                found.append(f"{key} stands twice in {site}: at {places[key]} and at {(queue, place)}")
            places[key] = queue, place
    return places


def _out_of_order(
    queue: tuple[str, int], keys: Sequence[str], other: str, places: Mapping[str, tuple[tuple[str, int], int]]
) -> list[str]:
    there = [(key, places[key]) for key in keys if key in places]
    return [
        f"{later} stands before {earlier} in {other}, or in another queue; in {queue} it is after it"
        for (earlier, one), (later, two) in pairwise(there)
        if one[0] != two[0] or one[1] > two[1]
    ]
