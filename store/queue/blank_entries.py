"""Searches of a queue that skip blank entries.

A blank entry stands for a message that is not in this queue.  RocketMQ writes them before the first message of a queue
that begins late (`ConsumeQueue.fillPreBlank`); repair writes one for a lost message.  A blank has no physical offset
and no time, so a search uses the next entry that is not a blank.
"""

from bisect import bisect_left
from collections.abc import Callable
from typing import Final

from store.queue.consume_queue import BLANK_SIZE
from store.queue.logic_queue import Entry, LogicQueue

# Units checked in one array.
_SPAN: Final = 64 * 1024


def next_entry(queue: LogicQueue, unit: int, end: int) -> tuple[int, Entry] | None:
    """Return the first unit of ``[unit, end)`` that is not a blank, and its entry; None if there is none."""
    while unit < end:
        entry = queue.unit(unit)
        if entry is None:
            return None
        if entry[1] != BLANK_SIZE:
            return unit, entry
        unit += 1
        is_entry = queue.entries(unit, min(end - unit, _SPAN))["size"] != BLANK_SIZE
        unit += int(is_entry.argmax()) if is_entry.any() else is_entry.size
    return None


def first_unit(queue: LogicQueue, start: int, end: int, holds: Callable[[Entry], bool]) -> int:
    """Return the first unit of ``[start, end)`` that is not a blank and whose entry `holds`; `end` if there is none.

    `holds` must be false for the first entries and true for all entries after them.
    """

    def is_behind(unit: int) -> bool:
        found = next_entry(queue, unit, end)
        # After the last blanks no entry shows that the searched unit comes later.
        return found is None or holds(found[1])

    found = next_entry(queue, start + bisect_left(range(start, end), True, key=is_behind), end)
    return end if found is None else found[0]
