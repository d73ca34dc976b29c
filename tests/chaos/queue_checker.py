"""What must hold of queues after faults, whatever was killed when.

An acknowledged send is at the offset that the broker named; an unanswered one is unknown: it may be there
or not.  A queue's offsets have no gap, and no acknowledged message stands at two places.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass
class QueueChecker:
    """Collects what was acknowledged and compares it with what is read back."""

    # (queue id, queue offset) -> message key
    acknowledged: dict[tuple[int, int], str] = field(default_factory=dict)
    unknown: set[str] = field(default_factory=set)
    problems: list[str] = field(default_factory=list)

    def on_acknowledged(self, key: str, queue_id: int, queue_offset: int) -> None:
        place = queue_id, queue_offset
        other = self.acknowledged.get(place)
        if other is not None:
            self.problems.append(f"queue {queue_id} offset {queue_offset} was given to {other} and to {key}")
        self.acknowledged[place] = key

    def check(
        self, queues: dict[int, list[tuple[int, str]]], first_offsets: Mapping[int, int] | None = None
    ) -> list[str]:
        """`queues` holds every queue from its first message: (queue offset, key) in reading order.

        Where retention removes messages, `first_offsets` says where each queue begins now.
        """
        first = first_offsets or {}
        problems = list(self.problems)
        seen: dict[str, tuple[int, int]] = {}
        for queue_id, messages in queues.items():
            for expected, (offset, key) in enumerate(messages, first.get(queue_id, 0)):
                if offset != expected:
                    problems.append(f"queue {queue_id}: offset {offset} where {expected} was expected")
                    break
                if key in seen:
                    problems.append(f"{key} stands at {seen[key]} and at {(queue_id, offset)}")
                seen[key] = queue_id, offset
        for place, key in self.acknowledged.items():
            if place[1] < first.get(place[0], 0):
                continue
            found = seen.get(key)
            if found is None:
                problems.append(f"{key}, acknowledged at {place}, is lost")
            elif found != place:
                problems.append(f"{key}, acknowledged at {place}, stands at {found}")
        known = set(self.acknowledged.values()) | self.unknown
        problems += [f"{key} was never sent" for key in seen if key not in known]
        return problems
