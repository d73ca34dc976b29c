"""Long polling of pop: pops that found nothing are held until a message arrives.

A pop is held under its topic, group and queue; queue -1 stands for any queue.  A message of the topic wakes one pop of
each group at its queue, and one at queue -1.  If an answered pop leaves messages, it wakes the next one (`wake`), so
that few pops get many messages each.
Source: RocketMQ 5.3.3, `PopLongPollingService`, `PopRequest`.
"""

from bisect import bisect_left, insort
from collections.abc import Callable, Sequence
from enum import Enum, auto
from functools import partial
from itertools import count, islice
from typing import Any, Final, TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt

from broker.config.live_config import LiveConfig
from broker.longpolling.held_pulls import Looks, PullFilter, QueueEnds, codes_of, look_always
from broker.longpolling.held_table import HeldTable
from broker.topic.retry_topics import retry_topic_v1, retry_topic_v2
from broker.turns import CallLater
from sprocket.common.clock import Clock
from sprocket.common.next_turn import at_once
from sprocket.remoting.command import Request
from store.flush.confirmation import Arrival
from store.queue.record_filter import RecordFilter

# A held pop is answered this long before its deadline, so that the response arrives in time.
MARGIN_MS: Final = 50
ANY_QUEUE: Final = -1
# Max time that a pop is held, whatever the client asks for.
_MAX_POLL_MS: Final = 10 * 60 * 1000
# Deadlines within this time share one call of the timer.
_TICK_S: Final = 0.02

# Answers a request.  The flag is whether it may be held again: false after its deadline, or if the broker stops.
AnswerPop: TypeAlias = Callable[[Request[Any], bool], None]


class HoldResult(Enum):
    """Outcome of `hold` for a pop that found nothing."""

    HELD = auto()
    FULL = auto()  # too many are held: POLLING_FULL
    TIMEOUT = auto()  # its deadline has passed: POLLING_TIMEOUT
    NOT_HELD = auto()  # the client does not want to wait, or the broker stops


class HeldPop(msgspec.Struct, eq=False, gc=False):
    """One held pop; `matches` is None if every message matches."""

    request: Request[Any] | None
    channel_id: int
    group: "_Group"
    queue_id: int
    matches: PullFilter | None
    deadline: float
    number: int


# Deadline, number, pop.
_Entry: TypeAlias = tuple[float, int, HeldPop]


class _Group:
    """Held pops of one group and topic: by queue, ordered by deadline."""

    __slots__ = ("arrivals", "group", "queues", "topic")

    def __init__(self, topic: str, group: str) -> None:
        self.topic = topic
        self.group = group
        # Messages of these topics wake the group's pops.
        self.arrivals = (topic, retry_topic_v1(topic, group), retry_topic_v2(topic, group))
        self.queues: dict[int, list[_Entry]] = {}


class HeldPops:
    """Table of held pops, with one timer for all; an idle pop costs only memory.

    `answer` gets each request once: when a matching message has arrived, or at its deadline.  The pop with the earliest
    deadline is woken first.  With `wakes_each` the latest deadline is first, and every message wakes one: notifications
    are held this way, because they take no messages.
    """

    def __init__(
        self,
        config: LiveConfig,
        store: QueueEnds,
        clock: Clock,
        call_later: CallLater,
        answer: AnswerPop,
        looks: Looks = look_always,
        *,
        wakes_each: bool = False,
    ) -> None:
        self._looks = looks
        self._config = config
        self._store = store
        self._clock = clock
        self._call_later = call_later
        self._answer = answer
        self._wakes_each = wakes_each
        self._groups: dict[tuple[str, str], _Group] = {}
        # Topic of an arriving message -> groups whose pops it may wake.
        self._concerned: dict[str, dict[_Group, None]] = {}
        self._queue_count = 0
        self._table = HeldTable[HeldPop](clock, call_later, partial(self._finish, may_hold=False), _TICK_S)
        self.drop_channel: Final = self._table.drop_channel
        # Holds no more requests, and answers those that are held with what there is, each in one step.
        self.answer_all: Final = self._table.expire_all
        self._numbers = count()
        # A wake during `answer` runs in a later turn of the loop, which avoids recursion and starvation.
        self._is_answering = False
        self._wakes: list[tuple[str, str, int]] = []

    def __len__(self) -> int:
        return len(self._table)

    def count(self, topic: str, group: str, queue_id: int) -> int:
        """Return the number of pops held for exactly this queue, where -1 is a queue of its own; for POLLING_INFO."""
        held = self._groups.get((topic, group))
        return self._open_count(held.queues.get(queue_id, ())) if held is not None else 0

    # Hold

    def hold(
        self,
        request: Request[Any],
        topic: str,
        group: str,
        queue_id: int,
        matches: PullFilter | None,
        poll_time_ms: int,
        born_time_ms: int,
    ) -> HoldResult:
        """Hold a pop until `poll_time_ms` after `born_time_ms`, the client's wall clock, where 0 means now.

        Never hold it longer than `poll_time_ms` from now, so that a client whose clock is ahead does not wait forever.
        """
        if poll_time_ms <= 0 or self._table.is_closed:
            return HoldResult.NOT_HELD
        broker = self._config.broker
        if self._table.is_full(broker.max_pop_polling_size):
            return HoldResult.FULL
        left_ms = min(poll_time_ms, _MAX_POLL_MS)
        if born_time_ms > 0:
            left_ms = min(left_ms, born_time_ms + poll_time_ms - self._clock.wall_ms())
        if left_ms < MARGIN_MS:
            return HoldResult.TIMEOUT
        held = self._groups.get((topic, group))
        queue = held.queues.get(queue_id) if held is not None else None
        if queue is None:
            if self._queue_count >= broker.pop_polling_map_size:
                return HoldResult.FULL
        elif len(queue) > broker.pop_polling_size and self._open_count(queue) > broker.pop_polling_size:
            return HoldResult.FULL
        if held is None:
            held = self._add_group(topic, group)
        deadline = self._clock.monotonic() + (left_ms - MARGIN_MS) / 1000
        self._add(HeldPop(request, request.channel.id, held, queue_id, matches, deadline, next(self._numbers)))
        return HoldResult.HELD

    def _open_count(self, queue: Sequence[_Entry]) -> int:
        # A queue far beyond its limit is not looked through for each request.
        if not self._table.dropped or len(queue) > 2 * self._config.broker.pop_polling_size + 2:
            return len(queue)
        return sum(self._table.is_open(pop) for _, _, pop in queue)

    def _add_group(self, topic: str, group: str) -> _Group:
        held = self._groups[topic, group] = _Group(topic, group)
        for name in held.arrivals:
            self._concerned.setdefault(name, {})[held] = None
        return held

    def _add(self, pop: HeldPop) -> None:
        entry = (pop.deadline, pop.number, pop)
        queue = pop.group.queues.get(pop.queue_id)
        if queue is None:
            queue = pop.group.queues[pop.queue_id] = []
            self._queue_count += 1
        insort(queue, entry)
        self._table.add(pop)

    # Wake

    def arrived(self, arrivals: list[Arrival]) -> None:
        """Wake pops for new messages: a listener of the store."""
        if self._concerned:
            for queue, first_offset, max_offset in arrivals:
                self._arrived(queue.topic, queue.queue_id, first_offset, max_offset)

    def _arrived(self, topic: str, queue_id: int, first_offset: int, max_offset: int) -> None:
        """Wake pops for the messages of a queue from `first_offset` to before `max_offset`."""
        concerned = self._concerned.get(topic)
        if concerned is None:
            return
        interval = self._config.broker.pop_long_polling_force_notify_interval
        is_forced = interval > 0 and max_offset // interval > first_offset // interval
        arrival = None if is_forced else _Arrival(self._store, self._looks, topic, queue_id, max_offset, first_offset)
        most = max_offset - first_offset if self._wakes_each else 1
        ready: list[HeldPop] = []
        for held in concerned:
            for one in self._queues_to_wake(held, topic, queue_id):
                ready += self._wanting(held.queues.get(one, ()), arrival, most)
        for pop in ready:
            self._finish(pop)

    def wake(self, topic: str, group: str, queue_id: int) -> bool:
        """Answer one pop of exactly this queue, whatever its filter; return whether there is one.

        For messages that are left, or a released order lock.  Within `answer`, the pop is answered in a later turn of
        the loop.
        """
        held = self._groups.get((topic, group))
        chosen = self._wanting(held.queues.get(queue_id, ()), None, 1) if held is not None else []
        if not chosen:
            return False
        if not self._is_answering:
            self._finish(chosen[0])
            return True
        if not self._wakes:
            self._call_later(0.0, self._wake_asked)
        self._wakes.append((topic, group, queue_id))
        return True

    def lock_released(self, topic: str, group: str, queue_id: int) -> bool:
        """Answer one pop of any queue, else of this queue: its order lock was released, and it has messages."""
        return self.wake(topic, group, ANY_QUEUE) or self.wake(topic, group, queue_id)

    def close(self) -> None:
        """Answer all held pops, refuse new ones, and stop the timer."""
        at_once(self.answer_all())
        self._wakes.clear()
        self._table.close()
        for held in self._groups.values():
            held.queues.clear()
        self._groups.clear()
        self._concerned.clear()
        self._queue_count = 0

    # Inside

    def _queues_to_wake(self, held: _Group, topic: str, queue_id: int) -> tuple[int, ...]:
        if topic == held.topic or ANY_QUEUE in held.queues or queue_id in held.queues:
            return (ANY_QUEUE, queue_id)
        # A pop of any queue reads all queues of the retry topics.
        usable = [one for one, queue in held.queues.items() if self._wanting(queue, None, 1)]
        return (min(usable, key=lambda one: held.queues[one][0]),) if usable else ()

    def _wanting(self, queue: Sequence[_Entry], arrival: "_Arrival | None", most: int) -> list[HeldPop]:
        entries = reversed(queue) if self._wakes_each else iter(queue)
        open_pops = (pop for _, _, pop in entries if self._table.is_open(pop))
        wanting = (pop for pop in open_pops if arrival is None or arrival.is_wanted(pop))
        return list(islice(wanting, most))

    def _wake_asked(self) -> None:
        wakes, self._wakes = self._wakes, []
        for wake in wakes:
            self.wake(*wake)

    def _finish(self, pop: HeldPop, *, may_hold: bool = True) -> None:
        if pop.request is None:
            return
        request = self._table.take(pop)
        self._leave_queue(pop)
        if request is None:
            return
        was_answering, self._is_answering = self._is_answering, True
        try:
            self._answer(request, may_hold)
        finally:
            self._is_answering = was_answering

    def _leave_queue(self, pop: HeldPop) -> None:
        held = pop.group
        queue = held.queues[pop.queue_id]
        del queue[bisect_left(queue, (pop.deadline, pop.number))]
        if queue:
            return
        del held.queues[pop.queue_id]
        self._queue_count -= 1
        if not held.queues:
            self._remove_group(held)

    def _remove_group(self, held: _Group) -> None:
        del self._groups[held.topic, held.group]
        for name in held.arrivals:
            concerned = self._concerned[name]
            del concerned[held]
            if not concerned:
                del self._concerned[name]


class _Arrival:
    """Messages that arrived, and which filters match any of them; calls each filter once."""

    def __init__(
        self, store: QueueEnds, looks: Looks, topic: str, queue_id: int, max_offset: int, first_offset: int
    ) -> None:
        self._store = store
        self._looks = looks
        self._place = (topic, queue_id, first_offset, max_offset)
        self._codes: npt.NDArray[np.int64] | None = None
        self._wanted: dict[int, bool] = {}

    def is_wanted(self, pop: HeldPop) -> bool:
        """Return whether a pop wants any of the messages; False if nobody may look for it now."""
        matches, request = pop.matches, pop.request
        if matches is None or request is None:
            return True
        if id(matches) not in self._wanted:
            look = partial(self._look, matches)
            if not (self._looks(request.channel, look) if isinstance(matches, RecordFilter) else look()):
                return False
        return self._wanted[id(matches)]

    def _look(self, matches: PullFilter) -> bool:
        if isinstance(matches, RecordFilter):
            wanted = self._store.has_wanted(*self._place, matches)
        else:
            if self._codes is None:
                self._codes = codes_of(self._store, *self._place)
            wanted = matches.matches_any(self._codes)
        self._wanted[id(matches)] = wanted
        return wanted
