"""Responses that wait until the appended messages are safe: one entry per batch, one timer for all.

Source: RocketMQ 5.3.3, `CommitLog.handleDiskFlushAndHA`, `GroupCommitService` (syncFlushTimeout),
`GroupTransferService` (slaveTimeout); RocketMQ 4.9, `CommitLog.submitReplicaRequest` (SLAVE_NOT_AVAILABLE).
"""

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Callable
from typing import Final, Protocol

from broker.config.broker_config import BrokerRole
from broker.turns import CallLater, NextTurn
from sprocket.common.clock import Clock
from sprocket.common.errors import LeaseEnded, StoreError
from sprocket.common.figures import Declared, FigureFamily
from sprocket.common.logs.peer_lines import peer_lines
from sprocket.metrics.declared import Kind, Metric
from sprocket.metrics.distribution import Distributions
from sprocket.remoting.codes import ResponseCode
from store.config.store_config import FlushDiskType, StoreConfig
from store.message_store import MessageStore

logger = logging.getLogger(__name__)

_SUCCESS: Final = ResponseCode.SUCCESS
_DISK: Final = ResponseCode.FLUSH_DISK_TIMEOUT
_SLAVE: Final = ResponseCode.FLUSH_SLAVE_TIMEOUT
_NOBODY: Final = ResponseCode.SLAVE_NOT_AVAILABLE
_WAITS_MS: Final = (0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000)
_UNSAFE: Final = (_DISK, _SLAVE, _NOBODY)


# (error, code).  With an error the messages will never be safe.  Else they are stored, and the code says how safely:
# SUCCESS: as the configuration demands; FLUSH_DISK_TIMEOUT, FLUSH_SLAVE_TIMEOUT: the timeout has passed;
# SLAVE_NOT_AVAILABLE: too few slaves are in sync, so only this replica has them.
Answer = Callable[[StoreError | None, ResponseCode], None]


# Whether this master holds its lease now.
HoldsLease = Callable[[], bool]


class AwaitedTables(Protocol):
    """Part of `TopicTable` that tells when a topic is in its file."""

    is_relied_on: bool

    def when_saved(self, callback: Callable[[StoreError | None], None], /) -> None: ...


class _NoTables:
    """Tables of a broker that creates nothing on first use."""

    is_relied_on = False

    def when_saved(self, callback: Callable[[StoreError | None], None]) -> None:
        callback(None)


class ConfirmWaits:
    """Responses held until disk and slaves have the messages, or until a timeout.

    The disk has syncFlushTimeout, slaves have slaveTimeout.  The first that is late when its timeout has passed decides
    the code; if both are late, the later one.  `answer(error, code)` is called exactly once for each wait.
    """

    def __init__(
        self,
        store: MessageStore,
        clock: Clock,
        call_later: CallLater,
        role: BrokerRole = BrokerRole.ASYNC_MASTER,
        tables: AwaitedTables | None = None,
        holds_lease: HoldsLease | None = None,
    ) -> None:
        self._tables = tables or _NoTables()
        self._holds_lease = holds_lease
        self._store = store.confirmation
        self._clock = clock
        self._next_turn = NextTurn(self._on_timer, clock.monotonic, call_later)
        self._is_for_slaves = role is BrokerRole.SYNC_MASTER
        # All waits of a stage have the same timeout, so the first entry expires first.
        self._stages = self._new_stages(store.config)
        # Whether responses wait for the disk or for slaves; else an appended message is already as safe as configured.
        self._waits_for_disk = store.config.flush_disk_type is FlushDiskType.SYNC_FLUSH
        self._is_limited = self._is_for_slaves or self._waits_for_disk
        # Times that batches waited, ms, by what they waited for.
        self.times = Distributions(_WAITS_MS)
        # Number of responses by code, without SUCCESS.
        self._unsafe: Counter[ResponseCode] = Counter()

    def _new_stages(self, config: StoreConfig) -> "list[_Stage]":
        limits = []
        if config.flush_disk_type is FlushDiskType.SYNC_FLUSH:
            limits.append((config.sync_flush_timeout / 1000, _DISK))
        if self._is_for_slaves:
            limits.append((config.slave_timeout / 1000, _SLAVE))
        return [_Stage(*limit) for limit in sorted(limits)] or [_Stage(0.0, _DISK)]

    def configure(self, config: StoreConfig) -> None:
        """Apply changed timeouts, also to waits that have begun."""
        stages = self._new_stages(config)
        if [(stage.limit_s, stage.code) for stage in stages] == [(old.limit_s, old.code) for old in self._stages]:
            return
        waits = sorted((wait for stage in self._stages for wait in stage.waits), key=lambda wait: wait.began)
        # A wait whose first timeout has passed moves to the next stage when the timer finds it.
        stages[0].waits.extend(waits)
        self._stages = stages
        self.close()
        self._set_timer()

    @property
    def is_needed(self) -> bool:
        """Whether responses of this turn of the loop must wait; else appended messages are as safe as configured."""
        lease = self._holds_lease
        return self._is_limited or self._tables.is_relied_on or (lease is not None and not lease())

    @property
    def is_for_slaves(self) -> bool:
        """Whether responses wait for slaves."""
        return self._is_for_slaves

    @property
    def may_acknowledge(self) -> bool:
        """Whether no other master can lead now; else a wait ends with `LeaseEnded`, however safe the messages are."""
        return self._holds_lease is None or self._holds_lease()

    def __len__(self) -> int:
        return sum(wait.answer is not None for stage in self._stages for wait in stage.waits)

    def wait(self, end_offset: int, answer: Answer, prepare: Callable[[], None] | None = None) -> None:
        """Call `answer` when the log is safe up to `end_offset`, when it cannot become safe, or after the timeout.

        If it has to wait, `prepare` is called before: what it does while disk and slaves work delays no response.
        If a topic was created in this turn of the loop, also wait for the topic's file, without a timeout.
        A master without its lease acknowledges nothing: the answer is `LeaseEnded`.
        """
        if self._tables.is_relied_on:
            answer = self._after_tables(answer if self._holds_lease is None else self._with_lease(answer))
        wait = _Wait(end_offset, answer, self._clock.monotonic(), self._ended)
        waits = self._stages[0].waits
        while waits and waits[0].answer is None:
            waits.popleft()
        self._store.when_stored(end_offset, wait.finish)
        if self._waits_for_disk and self._is_for_slaves and wait.answer is not None:
            self._store.when_flushed(end_offset, lambda _: self._note_flushed(wait))
        if wait.answer is not None:
            waits.append(wait)
            if len(waits) == 1:
                self._set_timer()
            if prepare is not None:
                try:
                    prepare()
                except Exception:
                    # The messages are stored and will be answered: without what was to be prepared.
                    peer_lines.error(logger, "", "event=responses_not_prepared", exc_info=True)

    async def outcome(self, end_offset: int) -> ResponseCode:
        """Wait as `wait`, and return the code.  Raises StoreError."""
        answered: asyncio.Future[tuple[StoreError | None, ResponseCode]] = asyncio.get_running_loop().create_future()
        self.wait(end_offset, lambda *found: None if answered.done() else answered.set_result(found))
        error, code = await answered
        if error is not None:
            raise error
        return code

    def _with_lease(self, answer: Answer) -> Answer:
        """Return an `answer` that looks at the lease at the moment of the answer."""

        def leased(error: StoreError | None, code: ResponseCode) -> None:
            answer(LeaseEnded() if error is None and not self.may_acknowledge else error, code)

        return leased

    def _ended(self, wait: "_Wait", error: StoreError | None, code: ResponseCode) -> StoreError | None:
        """Count the end of a wait: its code, the time until the disk had the batch, and the time after that.

        Return the error of the answer: the lease counts at this moment.
        """
        if error is not None:
            return error
        if not self.may_acknowledge:
            return LeaseEnded()
        if code is not _SUCCESS:
            self._unsafe[code] += 1
        now = self._clock.monotonic()
        flushed_at = (wait.flushed_at or now) if self._waits_for_disk else wait.began
        if self._waits_for_disk:
            self.times.add(("flush",), (flushed_at - wait.began) * 1000)
        if self._is_for_slaves:
            self.times.add(("slave",), (now - flushed_at) * 1000)
        return None

    def _note_flushed(self, wait: "_Wait") -> None:
        wait.flushed_at = self._clock.monotonic()

    def _after_tables(self, answer: Answer) -> Answer:
        """Return an `answer` that waits for both: the log and the files of the tables."""
        outcomes: list[tuple[StoreError | None, ResponseCode]] = []
        failures: list[StoreError | None] = []

        def finish() -> None:
            if outcomes and failures:
                error, code = outcomes[0]
                answer(error or failures[0], code)

        def stored(error: StoreError | None, code: ResponseCode) -> None:
            outcomes.append((error, code))
            finish()

        def saved(error: StoreError | None) -> None:
            failures.append(error)
            finish()

        self._tables.when_saved(saved)
        return stored

    def _set_timer(self) -> None:
        deadlines = [stage.waits[0].began + stage.limit_s for stage in self._stages if stage.waits]
        if deadlines:
            self._next_turn.wake_in(min(deadlines) - self._clock.monotonic())

    def _on_timer(self) -> None:
        now = self._clock.monotonic()
        for number, stage in enumerate(self._stages):
            waits = stage.waits
            while waits and (waits[0].answer is None or waits[0].began + stage.limit_s <= now):
                wait = waits.popleft()
                if wait.answer is not None:
                    self._expire(wait, number)
        self._set_timer()

    def _expire(self, wait: "_Wait", stage: int) -> None:
        """End a wait whose stage has timed out, unless the late part has a longer timeout."""
        is_last = stage + 1 == len(self._stages)
        code = self._stages[stage].code
        if not is_last:
            behind = {_DISK: self._store.local_offset, _SLAVE: self._store.awaited_offset}
            if any(behind[later.code] < wait.end_offset for later in self._stages[stage + 1 :]):
                self._stages[stage + 1].waits.append(wait)
                return
        elif self._store.awaited_offset < wait.end_offset:
            code = _SLAVE  # as in RocketMQ: if both are late, the slaves are named
        elif self._store.local_offset < wait.end_offset:
            code = _DISK
        wait.give(None, code)

    def figures(self) -> list[Declared]:
        """Return the number of batches that were confirmed less safely than configured.  Not in RocketMQ."""
        return [
            FigureFamily(
                "putBatchesAnswered_<code>",
                "batches of messages that were stored, but confirmed less safely than configured, for each code: "
                + ", ".join(f"`{code.name.lower()}`" for code in _UNSAFE),
                lambda: {code.name.lower(): self._unsafe[code] for code in _UNSAFE},
            )
        ]

    def metrics(self) -> list[Metric]:
        """Return the times that sends waited.  Not in RocketMQ."""
        return [
            Metric(
                "sprocket_send_wait", Kind.HISTOGRAM,
                "time that batches of sends waited until the disk had them (flush), and then for slaves (slave)",
                self.times.read, ("stage",), "milliseconds",
            )
        ]  # fmt: skip

    def close(self) -> None:
        """Stop the timer; the store's shutdown answers the waits that are left."""
        self._next_turn.cancel()


class _Stage:
    """Waits with the same timeout, in the order in which they expire."""

    __slots__ = ("code", "limit_s", "waits")

    def __init__(self, limit_s: float, code: ResponseCode) -> None:
        self.limit_s = limit_s
        self.code = code
        self.waits: deque[_Wait] = deque()


class _Wait:
    __slots__ = ("_ended", "answer", "began", "end_offset", "flushed_at")

    def __init__(
        self,
        end_offset: int,
        answer: Answer,
        began: float,
        ended: "Callable[[_Wait, StoreError | None, ResponseCode], StoreError | None]",
    ) -> None:
        self._ended = ended
        self.flushed_at = 0.0  # 0: not yet, or not asked
        self.end_offset = end_offset
        self.answer: Answer | None = answer
        self.began = began

    def finish(self, error: StoreError | None, is_replicated: bool) -> None:
        self.give(error, _SUCCESS if is_replicated else _NOBODY)

    def give(self, error: StoreError | None, code: ResponseCode) -> None:
        answer, self.answer = self.answer, None
        if answer is not None:
            answer(self._ended(self, error, code), code)
