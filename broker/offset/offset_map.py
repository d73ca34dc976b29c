"""Offsets of groups by topic and queue, in little memory.  Pure.

A usual topic has a dictionary of its queues for each group.  A light topic has one queue, and a broker may have
hundreds of thousands of them: their offsets are in one dictionary for each group.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from sprocket.remoting.message.topic_names import LIGHT_QUEUE_ID, is_light

SEPARATOR: Final = "@"

# Each ``topic@group`` with its queues.
Entries = Iterable[tuple[str, dict[int, int]]]


def split(key: str) -> tuple[str, str]:
    """Return topic and group of ``topic@group``."""
    topic, _, group = key.partition(SEPARATOR)
    return topic, group


class OffsetMap:
    """``topic@group`` -> queue id -> offset.

    `name_of` returns an equal string of a light topic's name that is in memory anyway: a name takes 100 bytes.
    """

    __slots__ = ("_light_sums", "light", "name_of", "usual")

    def __init__(self, name_of: Callable[[str], str] = str) -> None:
        self.name_of = name_of
        self.usual: dict[str, dict[int, int]] = {}
        self.light: dict[str, dict[str, int]] = {}  # group -> light topic -> offset of its queue
        self._light_sums: Counter[str] = Counter()  # of `light`, by group

    def share_names(self, name_of: Callable[[str], str]) -> None:
        """Keep the names that `name_of` returns, from now on."""
        self.name_of = name_of

    def __len__(self) -> int:
        return len(self.usual) + sum(map(len, self.light.values()))

    def __iter__(self) -> Iterator[tuple[str, str, int, int]]:
        """Iterate over topic, group, queue id and offset; the map must not change meanwhile."""
        for key, queues in self.usual.items():
            topic, group = split(key)
            for queue_id, offset in queues.items():
                yield topic, group, queue_id, offset
        for group, topics in self.light.items():
            for topic, offset in topics.items():
                yield topic, group, LIGHT_QUEUE_ID, offset

    # Offsets

    def get(self, topic: str, group: str, queue_id: int) -> int | None:
        """Return the offset, if there is one."""
        if queue_id == LIGHT_QUEUE_ID and is_light(topic):
            topics = self.light.get(group)
            return None if topics is None else topics.get(topic)
        queues = self.usual.get(topic + SEPARATOR + group)
        return None if queues is None else queues.get(queue_id)

    def put(self, topic: str, group: str, queue_id: int, offset: int) -> int | None:
        """Set the offset; return the one before, if any."""
        if queue_id == LIGHT_QUEUE_ID and is_light(topic):
            topics = self.light.get(group)
            if topics is None:
                topics = self.light[group] = {}
            before = topics.get(topic)
            topics[topic if before is not None else self.name_of(topic)] = offset
            self._light_sums[group] += offset - (before or 0)
            return before
        key = topic + SEPARATOR + group
        queues = self.usual.get(key)
        if queues is None:
            queues = self.usual[key] = {}
        before = queues.get(queue_id)
        queues[queue_id] = offset
        return before

    def fill(self, entries: Entries) -> None:
        """Put new entries, which come from a file."""
        name_of, light = self.name_of, self.light
        for key, queues in entries:
            if not is_light(key):
                self.usual[key] = queues
                continue
            topic, group = split(key)
            offset = queues.pop(LIGHT_QUEUE_ID, None)
            if offset is not None:
                topics = light.get(group)
                if topics is None:
                    topics = light[group] = {}
                topics[name_of(topic)] = offset
                self._light_sums[group] += offset
            if queues:
                self.usual[key] = queues

    # Queues of a key

    def queues(self, topic: str, group: str) -> dict[int, int]:
        """Return a copy of the offsets of a group in a topic; empty if there are none."""
        found = dict(self.usual.get(topic + SEPARATOR + group, ()))
        light = self.get(topic, group, LIGHT_QUEUE_ID) if is_light(topic) else None
        if light is not None:
            found[LIGHT_QUEUE_ID] = light
        return found

    def put_queues(self, key: str, queues: dict[int, int]) -> None:
        """Replace the offsets of a key; none remove it."""
        topic, group = split(key)
        self.remove(topic, group)
        for queue_id, offset in queues.items():
            self.put(topic, group, queue_id, offset)

    def remove(self, topic: str, group: str) -> bool:
        """Remove the offsets of a group in a topic; return whether there were any."""
        was_there = self.usual.pop(topic + SEPARATOR + group, None) is not None
        topics = self.light.get(group) if is_light(topic) else None
        offset = None if topics is None else topics.pop(topic, None)
        if offset is not None:
            was_there = True
            self._light_sums[group] -= offset
            if not topics:
                del self.light[group], self._light_sums[group]
        return was_there

    # All

    def entries(self) -> Entries:
        """Return all entries as they are now; a queue's offset may be a later one when it is read.

        Any thread may iterate over them, also while the map changes.
        """
        usual = list(self.usual.items())
        light = [(group, list(topics.items())) for group, topics in self.light.items()]
        return _entries(usual, light)

    def light_sums(self) -> Mapping[str, int]:
        """Return the sum of the offsets of each group in light topics."""
        return self._light_sums

    def topics_of(self, group: str) -> set[str]:
        """Return the topics in which a group has offsets."""
        # Most of 100,000 keys are told apart without a call in Python.
        end = SEPARATOR + group
        found = {topic for topic, owner in map(split, [k for k in self.usual if k.endswith(end)]) if owner == group}
        return found.union(self.light.get(group, ()))

    def groups_of(self, topic: str) -> set[str]:
        """Return the groups that have offsets in a topic."""
        if is_light(topic):
            found = {group for group, topics in self.light.items() if topic in topics}
            if found:
                return found
        begin = topic + SEPARATOR
        return {split(key)[1] for key in [k for k in self.usual if k.startswith(begin)]}


def _entries(
    usual: list[tuple[str, dict[int, int]]], light: list[tuple[str, list[tuple[str, int]]]]
) -> Iterator[tuple[str, dict[int, int]]]:
    others = {key: queues for key, queues in usual if is_light(key)}
    for key, queues in usual:
        if key not in others:
            yield key, dict(queues)
    for group, topics in light:
        for topic, offset in topics:
            key = topic + SEPARATOR + group
            yield key, {**others.pop(key, {}), LIGHT_QUEUE_ID: offset}
    yield from others.items()
