"""Bugs of lite topics; see `tests.mutants.definitions`."""

from typing import Final

from tests.mutants.mutant import Mutant

_EVENTS: Final = ("tests/broker/lite/test_events.py",)
_TOPICS: Final = ("tests/broker/lite/test_lite_topics.py",)

LITE_MUTANTS: Final = (
    Mutant(
        "events of an absent client of lite topics kept",
        "broker/lite/events.py",
        "            self._pass_on(queue, client.key.group, chosen)\n        self._wake(chosen)\n\n    # Inside\n",
        "            state.events[queue] = None\n        self._wake(chosen)\n\n    # Inside\n",
        "messages of lite topics wait for a client that hangs",
        _EVENTS,
    ),
    Mutant(
        "lite topics beyond a client's events forgotten",
        "broker/lite/events.py",
        "            self._state(client).missed[queue] = None\n\n    def _share(",
        "            self._state(client)\n\n    def _share(",
        "a client with many lite topics never gets the messages of some",
        _EVENTS,
    ),
    Mutant(
        "lite topics of a client that leaves not given to others",
        "broker/lite/events.py",
        "            if was_missed or was_event:\n",
        "            if was_missed and was_event:\n",
        "messages of lite topics are lost to the group when a client disconnects",
        _EVENTS,
    ),
    Mutant(
        "exclusive lite topic taken back by a stale set",
        "broker/lite/subscriptions.py",
        "        return queue in client.evicted or (bool(others) and client not in others)\n",
        "        return False\n",
        "two clients of an exclusive group get messages of one lite topic",
        ("tests/broker/lite/test_subscriptions.py",),
    ),
    Mutant(
        "lite topic popped again while it waits",
        "broker/processor/lite/pop_lite.py",
        "        if self._order.blocks(header.attempt_id, queue, group, header.invisible_time) and not (\n",
        "        if False and not (\n",
        "messages of a lite topic come out of order, and twice",
        _TOPICS,
    ),
    Mutant(
        "lite topic not continued after its acknowledgement",
        "broker/lite/acks.py",
        "            self._freed(queue, group)\n",
        "            pass\n",
        "a lite topic with unread messages stops",
        _TOPICS,
    ),
    Mutant(
        "busy lite topic deleted with idle ones",
        "store/retention/queue_removal.py",
        "            if self._next_offset(name) != self._ends[name]:\n",
        "            if False:\n",
        "a message that arrives while an idle lite topic is deleted is lost",
        ("tests/store/queue/test_multi_dispatch.py",),
    ),
)
