"""Responses that wait for a flush and for slaves."""

from collections.abc import Callable

import pytest

from broker.config.broker_config import BrokerRole
from broker.longpolling.confirm_waits import ConfirmWaits
from sprocket.common.errors import DiskFailed, LeaseEnded, StoreError
from sprocket.common.figures import values
from sprocket.remoting.codes import ResponseCode
from store.config.store_config import FlushDiskType, StoreConfig
from tests.broker.loop_timer import ManualTimers
from tests.clock import ManualClock

OK, DISK, SLAVE, NOBODY = (
    ResponseCode.SUCCESS,
    ResponseCode.FLUSH_DISK_TIMEOUT,
    ResponseCode.FLUSH_SLAVE_TIMEOUT,
    ResponseCode.SLAVE_NOT_AVAILABLE,
)


class Confirmation:
    """Flushes and replicates by hand."""

    def __init__(self) -> None:
        self.local_offset = 0
        self.awaited_offset = 1000
        self.waiting: list[tuple[int, Callable[[StoreError | None, bool], None]]] = []
        self.flushing: list[tuple[int, Callable[[StoreError | None], None]]] = []

    def when_stored(self, physical_offset: int, callback: Callable[[StoreError | None, bool], None]) -> None:
        self.waiting.append((physical_offset, callback))
        self.reach()

    def when_flushed(self, physical_offset: int, callback: Callable[[StoreError | None], None]) -> None:
        self.flushing.append((physical_offset, callback))

    def reach(self, local: int = 0, awaited: int = 0, error: StoreError | None = None) -> None:
        self.local_offset = max(local, self.local_offset)
        self.awaited_offset = max(awaited, self.awaited_offset)
        flushing, self.flushing = self.flushing, []
        for end, flushed in flushing:
            if end <= self.local_offset:
                flushed(None)
            else:
                self.flushing.append((end, flushed))
        waiting, self.waiting = self.waiting, []
        for end, callback in waiting:
            if error is not None or end <= min(self.local_offset, self.awaited_offset):
                callback(error, self.awaited_offset < 10_000)
            else:
                self.waiting.append((end, callback))


class Waiting:
    def __init__(self, role: BrokerRole = BrokerRole.ASYNC_MASTER, awaited: int = 1000, **config: int) -> None:
        self.clock = ManualClock()
        self.timers = ManualTimers(self.clock)
        self.config = StoreConfig(flush_disk_type=FlushDiskType.SYNC_FLUSH, **config)  # type: ignore[arg-type]
        self.confirmation = Confirmation()
        self.confirmation.awaited_offset = awaited
        self.waits = ConfirmWaits(self, self.clock, self.timers.call_later, role)
        self.answers: list[tuple[int, StoreError | None, int]] = []

    def wait(self, offset: int) -> None:
        self.waits.wait(offset, lambda error, code: self.answers.append((offset, error, code)))

    @property
    def codes(self) -> list[int]:
        return [code for _, _, code in self.answers]


def test_what_is_confirmed_is_answered_at_once() -> None:
    waiting = Waiting()
    waiting.confirmation.local_offset = 10
    waiting.wait(10)
    assert waiting.answers == [(10, None, OK)]
    assert waiting.timers.pending == []


def test_responses_are_prepared_once_if_they_wait_and_never_if_they_need_not() -> None:
    waiting = Waiting()
    prepared: list[int] = []

    def wait(offset: int) -> None:
        waiting.waits.wait(offset, lambda error, code: None, lambda: prepared.append(offset))

    waiting.confirmation.reach(10)
    wait(10)
    assert prepared == []
    wait(20)
    assert prepared == [20]
    waiting.confirmation.reach(30)
    waiting.timers.advance(60)
    assert prepared == [20]


def test_an_error_of_preparing_changes_no_answer() -> None:
    waiting, answers = Waiting(), list[int]()

    def fail() -> None:
        raise ValueError

    waiting.waits.wait(20, lambda error, code: answers.append(code), fail)
    waiting.confirmation.reach(30)
    assert answers == [OK]


def test_a_confirmation_answers_those_it_covers_once() -> None:
    waiting = Waiting()
    waiting.wait(10)
    waiting.wait(20)
    waiting.confirmation.reach(15)
    assert waiting.answers == [(10, None, OK)]
    waiting.timers.advance(60)
    waiting.confirmation.reach(30)
    assert waiting.answers == [(10, None, OK), (20, None, DISK)]
    assert len(waiting.waits) == 0


def test_time_runs_for_each_from_its_own_start() -> None:
    waiting = Waiting()
    waiting.wait(10)
    waiting.timers.advance(3)
    waiting.wait(20)
    waiting.timers.advance(2.5)
    assert waiting.answers == [(10, None, DISK)]
    waiting.timers.advance(2.5)
    assert waiting.answers == [(10, None, DISK), (20, None, DISK)]
    assert waiting.timers.max_pending == 1


def test_a_failure_reaches_everyone() -> None:
    waiting = Waiting()
    waiting.wait(10)
    waiting.wait(20)
    error = DiskFailed("EIO")
    waiting.confirmation.reach(error=error)
    assert [(offset, given) for offset, given, _ in waiting.answers] == [(10, error), (20, error)]


def test_what_no_other_replica_has_is_said_so() -> None:
    waiting = Waiting(BrokerRole.SYNC_MASTER, 0)
    waiting.wait(10)
    waiting.confirmation.reach(10, 1 << 40)
    assert waiting.codes == [NOBODY]
    waiting.wait(10)
    counts = values(waiting.waits.figures())
    assert counts["putBatchesAnswered_slave_not_available"] == "2"
    assert counts["putBatchesAnswered_flush_slave_timeout"] == counts["putBatchesAnswered_flush_disk_timeout"] == "0"


# slaveTimeout 3 s, syncFlushTimeout 5 s: when the disk has it, when slaves have it, the answer, and when it is given.
@pytest.mark.parametrize(
    ("slave_timeout", "flushed_s", "acknowledged_s", "expected", "after_s"),
    [
        (3000, 1, 2, OK, 2),
        (3000, 2, 1, OK, 2),
        (3000, 1, 99, SLAVE, 3),
        (3000, 99, 1, DISK, 5),
        (3000, 99, 99, SLAVE, 5),
        (3000, 99, 4, DISK, 5),
        (3000, 4, 4, OK, 4),
        (7000, 1, 6, OK, 6),
        (7000, 1, 99, SLAVE, 7),
        (7000, 99, 1, DISK, 5),
        (7000, 99, 6, DISK, 7),
        (7000, 99, 99, SLAVE, 7),
    ],
)
def test_what_lags_at_the_end_of_the_wait_decides(
    slave_timeout: int, flushed_s: int, acknowledged_s: int, expected: int, after_s: int
) -> None:
    waiting = Waiting(BrokerRole.SYNC_MASTER, 0, slave_timeout=slave_timeout)
    waiting.wait(10)
    for second in range(1, 12):
        waiting.timers.advance(1)
        if second == flushed_s:
            waiting.confirmation.reach(local=10)
        if second == acknowledged_s:
            waiting.confirmation.reach(awaited=10)
        assert waiting.codes == ([expected] if second >= after_s else []), second
    assert len(waiting.waits) == 0
    late = sum(map(int, values(waiting.waits.figures()).values()))
    assert late == (expected != OK)


def test_a_short_time_is_kept_while_a_long_one_runs() -> None:
    waiting = Waiting(BrokerRole.SYNC_MASTER, 0, slave_timeout=1000)
    waiting.wait(10)
    waiting.timers.advance(1.5)
    # The first is late for both, and has until 5 s.
    assert waiting.codes == []
    waiting.confirmation.local_offset = 20
    waiting.wait(20)
    waiting.timers.advance(1.0)
    assert waiting.answers == [(20, None, SLAVE)]
    waiting.timers.advance(2.5)
    assert waiting.answers == [(20, None, SLAVE), (10, None, SLAVE)]


@pytest.mark.parametrize(
    ("flush", "role", "expected"),
    [
        (FlushDiskType.ASYNC_FLUSH, BrokerRole.ASYNC_MASTER, False),
        (FlushDiskType.SYNC_FLUSH, BrokerRole.ASYNC_MASTER, True),
        (FlushDiskType.ASYNC_FLUSH, BrokerRole.SYNC_MASTER, True),
        (FlushDiskType.ASYNC_FLUSH, BrokerRole.SLAVE, False),
    ],
)
def test_which_sends_wait(flush: FlushDiskType, role: BrokerRole, expected: bool) -> None:
    waiting = Waiting()
    waiting.config = StoreConfig(flush_disk_type=flush)
    assert ConfirmWaits(waiting, waiting.clock, waiting.timers.call_later, role).is_needed is expected


def test_changed_timeouts_hold_for_what_waits_whichever_is_the_longer() -> None:
    waiting = Waiting(BrokerRole.SYNC_MASTER, 0, sync_flush_timeout=10_000, slave_timeout=20_000)
    waiting.wait(10)
    waiting.timers.advance(1)
    waiting.wait(20)
    waiting.timers.advance(9.5)  # the first waits for slaves alone, 10.5 s
    waiting.confirmation.reach(local=20)
    waiting.config = StoreConfig(
        flush_disk_type=FlushDiskType.SYNC_FLUSH, sync_flush_timeout=30_000, slave_timeout=12_000
    )
    waiting.waits.configure(waiting.config)
    assert waiting.answers == []
    waiting.timers.advance(2)
    assert waiting.answers == [(10, None, SLAVE)]
    waiting.timers.advance(1)
    assert waiting.answers == [(10, None, SLAVE), (20, None, SLAVE)]
    assert len(waiting.waits) == 0


@pytest.mark.parametrize("flush", list(FlushDiskType))
def test_without_a_lease_nothing_is_acknowledged(flush: FlushDiskType) -> None:
    waiting, held = Waiting(), [True]
    waiting.config = StoreConfig(flush_disk_type=flush)
    waiting.waits = ConfirmWaits(waiting, waiting.clock, waiting.timers.call_later, holds_lease=lambda: held[0])
    is_sync = flush is FlushDiskType.SYNC_FLUSH
    assert (waiting.waits.is_needed, waiting.waits.may_acknowledge) == (is_sync, True)
    waiting.wait(10)
    waiting.confirmation.reach(15)
    assert waiting.answers == [(10, None, OK)]
    # It ends while the second one waits.
    waiting.wait(20)
    held[0] = False
    assert (waiting.waits.is_needed, waiting.waits.may_acknowledge) == (True, False)
    waiting.confirmation.reach(30)
    assert [(offset, type(error)) for offset, error, _ in waiting.answers[1:]] == [(20, LeaseEnded)]
    # A timeout would say that the message is stored.
    waiting.wait(40)
    waiting.timers.advance(60)
    assert [(offset, type(error)) for offset, error, _ in waiting.answers[2:]] == [(40, LeaseEnded)]


def test_a_failure_is_told_rather_than_the_lease() -> None:
    waiting = Waiting()
    waiting.waits = ConfirmWaits(waiting, waiting.clock, waiting.timers.call_later, holds_lease=lambda: False)
    waiting.wait(10)
    waiting.confirmation.reach(error=DiskFailed("gone"))
    assert [type(error) for _, error, _ in waiting.answers] == [DiskFailed]


class NewTopic:
    """Tables of a broker that has created a topic in this turn; `saved` says that its file is written."""

    is_relied_on = True

    def __init__(self) -> None:
        self._callbacks: list[Callable[[StoreError | None], None]] = []

    def when_saved(self, callback: Callable[[StoreError | None], None]) -> None:
        self._callbacks.append(callback)

    def saved(self) -> None:
        for callback in self._callbacks:
            callback(None)


def test_a_lease_that_ends_while_a_topics_file_is_written_is_over() -> None:
    waiting, held, tables = Waiting(), [True], NewTopic()
    waiting.waits = ConfirmWaits(
        waiting, waiting.clock, waiting.timers.call_later, tables=tables, holds_lease=lambda: held[0]
    )
    waiting.wait(10)
    waiting.confirmation.reach(15)
    assert waiting.answers == [], "the file is not written"
    held[0] = False
    tables.saved()
    assert [(offset, type(error)) for offset, error, _ in waiting.answers] == [(10, LeaseEnded)]
