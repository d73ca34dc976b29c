"""Quotas of pulls and pops: a read over its quota is held until the quota admits it, so consumers do not spin.

Source of the idea: RocketMQ 5.3.3, `PullRequestHoldService`; RocketMQ has no quotas of reads.
"""

from collections.abc import Callable
from enum import Enum
from typing import Any, Final

from broker.filter.sql_filter import SqlFilters
from broker.longpolling.held_requests import Answer, HeldRequests
from broker.quota.bucket import Buckets, Kind, charge, longest_wait
from broker.quota.quotas import CallerChannel, Quotas
from broker.turns import CallLater
from sprocket.common.clock import Clock
from sprocket.remoting.command import Request
from sprocket.remoting.routes import FramesChannel

# Max time that a quota holds one read; then the read is answered without messages.
MAX_WAIT_S: Final = 5.0
_TICK_S: Final = 0.01


class Verdict(Enum):
    """What to do with a read."""

    SERVE = "the quotas admit it"
    WAIT = "it is held, and comes again"
    EMPTY = "it has waited long enough: answer it without messages"


class QuotaReads:
    """Admission of reads, and reads that wait.  Lives in the event loop's thread."""

    def __init__(self, quotas: Quotas, clock: Clock, call_later: CallLater, sql: SqlFilters) -> None:
        self._quotas = quotas
        self._sql = sql
        self._clock = clock
        self._held = HeldRequests(clock, call_later, _TICK_S)
        self.drop_channel: Final = self._held.drop_channel
        self.answer_all, self.close = self._held.answer_all, self._held.close
        # Returns the buckets for a planner of reads; charges who reads with the time that a block takes.
        self.of_plan, self.work_of = quotas.of_read, quotas.work_of
        # The read that comes again now, when it must be answered, whether it is still to be charged as a request, and
        # how long it has waited last.
        self._again: tuple[Request[Any], float, bool, float] | None = None

    def __len__(self) -> int:
        return len(self._held)

    def callers(self, channel: CallerChannel) -> Buckets:
        """Return the buckets of who reads on a connection."""
        return self._quotas.callers_out(channel) if self._quotas.has_callers else ()

    def of(self, planned: Buckets, channel: CallerChannel) -> Buckets:
        """Return the buckets of a read: those of its plan, and those of who reads."""
        return planned + self.callers(channel)

    def planned(self, channel: FramesChannel) -> None:
        """Charge who reads on a connection with the SQL filters that were compiled for its plans just now."""
        spent_s = self._sql.take_spent_s()
        if spent_s:
            self._quotas.worked(channel, spent_s)

    def looks(self, channel: FramesChannel, look: Callable[[], bool]) -> bool:
        """Return what `look` finds for a read that is held, charged to who reads.

        Who has used up its share gets no look: the read is answered at the end of its time.
        """
        if self._quotas.has_overworked(channel):
            return False
        with self.work_of(channel):
            return look()

    def admit(self, buckets: Buckets, request: Request[Any], max_s: float, again: Answer, *, is_new: bool) -> Verdict:
        """Decide about a read.  `again` gets the request when it has waited, at most `max_s` in total.

        A read that is admitted and `is_new`, not one that waited for messages, is charged as a request.  The caller
        charges the messages that it finds.
        """
        now_s = self._clock.monotonic()
        comes_again = self._again is not None and self._again[0] is request
        until_s, waited_s = now_s + min(max_s, MAX_WAIT_S), 0.0
        if self._again is not None and comes_again:
            _, until_s, is_new, waited_s = self._again
        bucket, wait_s = longest_wait(buckets)
        if bucket is None:
            if is_new:
                charge((one for one in buckets if one.kind is Kind.REQUESTS), 0, 0)
            return Verdict.SERVE
        if not comes_again:
            self._quotas.exceeded(bucket, request)
        # Of many that wait for one quota, few are admitted, so the others do not come again together each time.
        wait_s = min(max(wait_s, 2 * waited_s), until_s - now_s)
        if wait_s <= 0:
            return Verdict.EMPTY

        def woken(request: Request[Any]) -> None:
            self._again = request, until_s, is_new, wait_s
            try:
                again(request)
            finally:
                self._again = None

        return Verdict.WAIT if self._held.hold(request, wait_s, woken) else Verdict.EMPTY


def charge_found(buckets: Buckets, messages: int, size_bytes: int) -> None:
    """Charge an admitted read with what it has found."""
    charge((bucket for bucket in buckets if bucket.kind is not Kind.REQUESTS), messages, size_bytes)
