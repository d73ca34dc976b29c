"""Long polling: pulls that found nothing are held until a message arrives.

Source: RocketMQ 5.3.3, `PullRequestHoldService`, `NotifyMessageArrivingListener`.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, Final, Protocol, TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt

from broker.filter.subscription_filter import TagFilter
from broker.longpolling.held_table import HeldTable
from broker.turns import CallLater
from sprocket.common.clock import Clock
from sprocket.remoting.command import Request
from store.flush.confirmation import Arrival
from store.queue.record_filter import RecordFilter

PullFilter: TypeAlias = TagFilter | RecordFilter

# After messages that do not match, a held pull is answered within this time, so that its offset advances.
PASSED_BY_S: Final = 5.0
# Max held pulls of a client; further ones are answered at once.
MAX_HELD_PER_CHANNEL: Final = 8192
# Pulls of a queue that its new messages wake at once: some 20 us each.  The others follow in slices of the next turns.
_AT_ONCE: Final = 32
# Deadlines within this time share one call of the timer.
_TICK_S: Final = 0.05

AnswerPull: TypeAlias = Callable[[Request[Any]], None]
# Calls a function that evaluates SQL for a channel, or returns False.
Looks: TypeAlias = Callable[[Any, Callable[[], bool]], bool]


def look_always(channel: object, look: Callable[[], bool]) -> bool:
    """Let everybody look."""
    return look()


class QueueEnds(Protocol):
    """Part of `MessageStore` that returns the ends of queues."""

    def max_offset(self, topic: str, queue_id: int, /) -> int: ...

    def tags_codes(self, topic: str, queue_id: int, first_offset: int, end_offset: int, /) -> npt.NDArray[np.int64]: ...

    def has_wanted(
        self, topic: str, queue_id: int, first_offset: int, end_offset: int, wants: RecordFilter, /
    ) -> bool: ...


def codes_of(store: QueueEnds, topic: str, queue_id: int, first_offset: int, end_offset: int) -> npt.NDArray[np.int64]:
    """Return the tags codes of new entries, also across files of the queue."""
    codes = store.tags_codes(topic, queue_id, first_offset, end_offset)
    if 0 < len(codes) < end_offset - first_offset:
        codes = np.append(codes, store.tags_codes(topic, queue_id, first_offset + len(codes), end_offset))
    return codes


class HeldPull(msgspec.Struct, eq=False, gc=False):
    """One held pull from `offset` on; `matches` is None if every message matches."""

    request: Request[Any] | None
    channel_id: int
    key: tuple[str, int]  # topic and queue
    offset: int
    matches: PullFilter | None
    deadline: float
    answer: AnswerPull


class HeldPulls:
    """Table of held pulls by topic and queue, with one timer for all; an idle pull costs only memory.

    Each pull has its own `answer`, which gets the request once: when a message has arrived, or at the deadline.
    `looks` charges who pulls with a look at records.
    """

    def __init__(self, store: QueueEnds, clock: Clock, call_later: CallLater, looks: Looks = look_always) -> None:
        self._looks = looks
        self._store = store
        self._clock = clock
        # Ordered sets: pulls are answered in the order in which they were held.
        self._by_queue: dict[tuple[str, int], dict[HeldPull, None]] = {}
        self._table = HeldTable[HeldPull](clock, call_later, self._finish, _TICK_S)
        self.drop_channel: Final = self._table.drop_channel
        # Holds no more requests, and answers those that are held with what there is, each in one step.
        self.answer_all: Final = self._table.expire_all

    def __len__(self) -> int:
        return len(self._table)

    def hold(
        self,
        request: Request[Any],
        topic: str,
        queue_id: int,
        offset: int,
        matches: PullFilter | None,
        timeout_s: float,
        answer: AnswerPull,
    ) -> bool:
        """Hold a pull for at most `timeout_s`, then `answer` it.

        Return False if its client has too many held pulls, or if all are being answered for good.
        """
        if self._table.is_closed or self._table.count(request.channel.id) >= MAX_HELD_PER_CHANNEL:
            return False
        deadline = self._clock.monotonic() + timeout_s
        pull = HeldPull(request, request.channel.id, (topic, queue_id), offset, matches, deadline, answer)
        self._by_queue.setdefault(pull.key, {})[pull] = None
        self._table.add(pull)
        return True

    def arrived(self, arrivals: list[Arrival]) -> None:
        """Wake pulls for new messages: a listener of the store."""
        if self._by_queue:
            for queue, first_offset, max_offset in arrivals:
                self._arrived(queue.topic, queue.queue_id, first_offset, max_offset)

    def _arrived(self, topic: str, queue_id: int, first_offset: int, max_offset: int) -> None:
        """Wake pulls for the messages of a queue from `first_offset` to before `max_offset`."""
        pulls = self._by_queue.get((topic, queue_id))
        if pulls is None:
            return
        codes: npt.NDArray[np.int64] | None = None
        wanted: dict[TagFilter, bool] = {}
        ready = []
        for pull in pulls:
            if max_offset <= pull.offset:
                continue
            if isinstance(pull.matches, RecordFilter) and pull.request is not None:
                look = partial(self._store.has_wanted, topic, queue_id, first_offset, max_offset, pull.matches)
                if not self._looks(pull.request.channel, look):
                    self._hasten(pull)
                    continue
            elif isinstance(pull.matches, TagFilter):
                if codes is None:
                    codes = codes_of(self._store, topic, queue_id, first_offset, max_offset)
                if pull.matches not in wanted:
                    wanted[pull.matches] = pull.matches.matches_any(codes)
                if not wanted[pull.matches]:
                    self._hasten(pull)
                    continue
            ready.append(pull)
        for pull in ready[:_AT_ONCE]:
            self._finish(pull)
        if len(ready) > _AT_ONCE:
            for pull in ready[_AT_ONCE:]:
                self._leave_queue(pull)  # the next message does not look at it again
            self._table.expire_soon(ready[_AT_ONCE:])

    def wake(self, topic: str, queue_id: int, is_meant: Callable[[Request[Any]], bool]) -> None:
        """Answer those pulls of one queue for which `is_meant` is true."""
        for pull in list(self._by_queue.get((topic, queue_id), ())):
            if pull.request is not None and is_meant(pull.request):
                self._finish(pull)

    def wake_topic(self, topic: str) -> None:
        """Answer all pulls of a topic soon: another broker may serve them from now on."""
        self._table.expire_soon(pull for key, pulls in self._by_queue.items() if key[0] == topic for pull in pulls)

    def answer_soon(self) -> None:
        """Answer all held pulls with what there is, in the next turns of the loop."""
        self._table.expire_soon(self._table.all())

    def close(self) -> None:
        """Stop the timer, and forget what is held."""
        self._table.close()
        self._by_queue.clear()

    # Inside

    def _finish(self, pull: HeldPull) -> None:
        request = self._table.take(pull)
        self._leave_queue(pull)
        if request is not None:
            pull.answer(request)

    def _leave_queue(self, pull: HeldPull) -> None:
        pulls = self._by_queue.get(pull.key, {})
        if pull in pulls:
            del pulls[pull]
            if not pulls:
                del self._by_queue[pull.key]

    def _hasten(self, pull: HeldPull) -> None:
        soon = self._clock.monotonic() + PASSED_BY_S
        if soon < pull.deadline:
            # From now on, messages that do not match change nothing: the deadline is within `PASSED_BY_S`.
            self._table.move(pull, soon)
