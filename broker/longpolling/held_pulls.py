"""Pulls that found nothing and are held until something comes: RocketMQ's long polling.

Source: RocketMQ 5.3.3, `PullRequestHoldService`, `NotifyMessageArrivingListener`.
"""

from collections.abc import Callable
from typing import Any, Final, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from broker.filter.subscription_filter import TagFilter
from broker.longpolling.deadlines import Deadlines
from broker.send.confirm_waits import CallLater
from sprocket.common.clock import Clock
from sprocket.remoting.command import Request
from store.queue.record_filter import RecordFilter

PullFilter: TypeAlias = TagFilter | RecordFilter

# A held pull that messages passed by, none of them for it, is answered after this: its offset moves on.
PASSED_BY_S: Final = 5.0
# A client that has this many pulls held gets the next one answered at once.
MAX_HELD_PER_CHANNEL: Final = 8192
# Deadlines this close together share a turn of the timer.
_TICK_S: Final = 0.05

AnswerPull: TypeAlias = Callable[[Request[Any]], None]


class QueueEnds(Protocol):
    """The part of `MessageStore` that tells where queues end."""

    def max_offset(self, topic: str, queue_id: int, /) -> int: ...

    def tags_codes(self, topic: str, queue_id: int, first_offset: int, end_offset: int, /) -> npt.NDArray[np.int64]: ...

    def has_wanted(
        self, topic: str, queue_id: int, first_offset: int, end_offset: int, wants: RecordFilter, /
    ) -> bool: ...


def codes_of(store: QueueEnds, topic: str, queue_id: int, first_offset: int, end_offset: int) -> npt.NDArray[np.int64]:
    """Tags codes of what has come, also where a file of the queue ends in between."""
    codes = store.tags_codes(topic, queue_id, first_offset, end_offset)
    if 0 < len(codes) < end_offset - first_offset:
        codes = np.append(codes, store.tags_codes(topic, queue_id, first_offset + len(codes), end_offset))
    return codes


class HeldPull:
    """One held pull, from `offset` on; `matches` is None when every message will do."""

    __slots__ = ("__weakref__", "answer", "channel_id", "deadline", "key", "matches", "offset", "request")

    def __init__(
        self,
        request: Request[Any],
        topic: str,
        queue_id: int,
        offset: int,
        matches: PullFilter | None,
        deadline: float,
        answer: AnswerPull,
    ) -> None:
        self.answer = answer
        self.request: Request[Any] | None = request  # None once it is answered or dropped
        self.channel_id: int = request.channel.id
        self.key = (topic, queue_id)
        self.offset = offset
        self.matches = matches
        self.deadline = deadline


class HeldPulls:
    """Held pulls by topic and queue.  One timer for all of them; an idle one costs memory and nothing else.

    Each pull names who answers it.  That gets the request again, once: when a message has come, or when its time is up.
    """

    def __init__(self, store: QueueEnds, clock: Clock, call_later: CallLater) -> None:
        self._store = store
        self._clock = clock
        # Sets that keep their order: who was held first is answered first.
        self._by_queue: dict[tuple[str, int], dict[HeldPull, None]] = {}
        self._by_channel: dict[int, set[HeldPull]] = {}
        self._count = 0
        self._deadlines = Deadlines[HeldPull](clock, call_later, self._finish, _TICK_S)

    def __len__(self) -> int:
        return self._count

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
        """Hold a pull for at most `timeout_s`, then `answer` it; False if its client has too many held."""
        held = self._by_channel.get(request.channel.id)
        if held is None:
            held = self._by_channel[request.channel.id] = set()
        elif len(held) >= MAX_HELD_PER_CHANNEL:
            return False
        deadline = self._clock.monotonic() + timeout_s
        pull = HeldPull(request, topic, queue_id, offset, matches, deadline, answer)
        held.add(pull)
        self._by_queue.setdefault(pull.key, {})[pull] = None
        self._count += 1
        self._deadlines.expect(pull, self._count)
        return True

    def arrived(self, topic: str, queue_id: int, max_offset: int, first_offset: int) -> None:
        """Messages `first_offset` to before `max_offset` can now be read: a listener of the store."""
        pulls = self._by_queue.get((topic, queue_id))
        if pulls is None:
            return
        codes: npt.NDArray[np.int64] | None = None
        ready = []
        for pull in pulls:
            if max_offset <= pull.offset:
                continue
            if isinstance(pull.matches, RecordFilter):
                if not self._store.has_wanted(topic, queue_id, first_offset, max_offset, pull.matches):
                    self._hasten(pull)
                    continue
            elif pull.matches is not None:
                if codes is None:
                    codes = codes_of(self._store, topic, queue_id, first_offset, max_offset)
                if not pull.matches.matches_any(codes):
                    self._hasten(pull)
                    continue
            ready.append(pull)
        for pull in ready:
            self._finish(pull)

    def drop_channel(self, channel_id: int) -> None:
        """The connection is gone: nobody waits any more."""
        for pull in self._by_channel.pop(channel_id, ()):
            pull.request = None
            self._leave_queue(pull)

    def wake(self, topic: str, queue_id: int, is_meant: Callable[[Request[Any]], bool]) -> None:
        """Answer the pulls of one queue that `is_meant` says, as they are."""
        for pull in list(self._by_queue.get((topic, queue_id), ())):
            if pull.request is not None and is_meant(pull.request):
                self._finish(pull)

    def wake_all(self) -> None:
        """Answer everything held, as it is: the broker stops or its role changes."""
        for pulls in list(self._by_channel.values()):
            for pull in list(pulls):
                self._finish(pull)

    def close(self) -> None:
        """Stop the timer."""
        self._deadlines.close()

    # Inside

    def _finish(self, pull: HeldPull) -> None:
        request, pull.request = pull.request, None
        if request is None:
            return
        held = self._by_channel.get(pull.channel_id)
        if held is not None:
            held.discard(pull)
            if not held:
                del self._by_channel[pull.channel_id]
        self._leave_queue(pull)
        pull.answer(request)

    def _leave_queue(self, pull: HeldPull) -> None:
        self._count -= 1
        pulls = self._by_queue[pull.key]
        del pulls[pull]
        if not pulls:
            del self._by_queue[pull.key]

    def _hasten(self, pull: HeldPull) -> None:
        soon = self._clock.monotonic() + PASSED_BY_S
        if soon < pull.deadline:
            pull.deadline = soon
            # From here on messages that do not match change nothing: the new deadline is at most this far away.
            self._deadlines.expect(pull, self._count)
