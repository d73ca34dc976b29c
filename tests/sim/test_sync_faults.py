"""Errors of the disk at every call of a script, one after the other.

EIO at a sync: nothing is acknowledged after it, it is not tried again, reads go on.  ENOSPC at a write or a new file:
the append is refused with the cause and leaves nothing, the next one with room is taken.  A crash after it recovers.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from sprocket.common.errors import DiskFailed, DiskFull, StoreError
from store.config.delay_levels import parse_delay_levels
from tests.sim.crash_sweep import CrashedState
from tests.sim.log_model import check_offsets, check_queue
from tests.sim.script import ScriptRun
from tests.sim.sim_disk import Fault, SimDisk
from tests.sim.sim_image import Subset, Survivors
from tests.sim.sim_store import FLUSH, LOG_ROOT, small_config
from tests.tiers import seeds

STEPS = 20
SHARES = 4
# The steps of the script: those in which a store is running from the first to the last call of the disk.
KINDS = ("append", "append", "append", "flush", "append", "allocate", "flush_queues", "append", "index", "pass_time")
SURVIVORS = (Survivors.NONE, Survivors.ALL, Survivors.RANDOM)


class OneFault:
    """Fails the n-th call of some kinds, counted from when it is set on a disk."""

    def __init__(self, disk: SimDisk, kinds: set[str], number: int, fault: Fault) -> None:
        self._kinds = kinds
        self._left = number
        self._fault = fault
        self.at: tuple[str, Path] | None = None
        # Calls of these kinds after the one that failed.
        self.later: list[tuple[str, Path]] = []
        disk.fault = self

    def __call__(self, kind: str, path: Path) -> Fault | None:
        if kind not in self._kinds:
            return None
        self._left -= 1
        if self._left < 0:
            self.later.append((kind, path))
        if self._left == 0:
            self.at = kind, path
            return self._fault
        return None


def started(seed: int, *, sync_flush: bool) -> ScriptRun:
    run = ScriptRun(seed, small_config(sync_flush=sync_flush))
    for kind in ("append", "append", "flush_queues", "append"):
        run.step(kind)
    return run


def calls(seed: int, kinds: set[str], *, sync_flush: bool) -> int:
    """How many calls of these kinds the script makes."""
    run = started(seed, sync_flush=sync_flush)
    count = 0

    def counted(kind: str, path: Path) -> None:
        nonlocal count
        count += kind in kinds

    run.disk.fault = counted
    for number in range(STEPS):
        run.step(KINDS[number % len(KINDS)])
    return count


def share_of(count: int, share: int) -> Iterator[int]:
    yield from range(1 + share, count + 1, SHARES)


def check_reads(run: ScriptRun) -> None:
    """What was confirmed is read as it was appended."""
    assert check_offsets(run.store) == []
    delays_ms = parse_delay_levels(run.config.message_delay_level)
    for key, records in run.model.queues().items():
        assert check_queue(run.store, key, records[: run.store.max_offset(*key)], delays_ms) == []


def check_crashes(run: ScriptRun, seed: int) -> None:
    """The disk without the fault, after a crash now, holds what was promised."""
    for survivors in SURVIVORS:
        state = CrashedState(run.config, run.clock.wall_ms(), run.model)
        _, problems = state.check(run.disk.crash(Subset(survivors, seed)))
        assert problems == []


@pytest.mark.parametrize("share", seeds(SHARES))
@pytest.mark.parametrize("sync_flush", [False, True])
def test_an_error_of_any_sync_is_final(share: int, sync_flush: bool) -> None:
    kinds = {"sync", "sync_directory"}
    count = calls(3, kinds, sync_flush=sync_flush)
    assert count > 30
    for number in share_of(count, share):
        run = started(3, sync_flush=sync_flush)
        failures: list[DiskFailed] = []
        run.store.on_failure.append(failures.append)
        fault = OneFault(run.disk, kinds, number, Fault())
        play_until_failure(run)
        assert fault.at is not None
        if run.store.failure is None:
            # The index is disposable: it goes on without the file.
            assert "index" in str(fault.at[1]), (number, fault.at)
            continue
        assert len(failures) == 1
        assert str(fault.at[1]) in str(run.store.failure) or fault.at[1].parent.name in str(run.store.failure)
        refused_for_good(run)
        check_crashes(run, number)


def play_until_failure(run: ScriptRun) -> None:
    """Take the steps until the store has failed, or to the end."""
    for number in range(STEPS):
        try:
            run.step(KINDS[number % len(KINDS)])
        except StoreError:
            run.sim.run_notified()
        if run.store.failure is not None:
            return


def refused_for_good(run: ScriptRun) -> None:
    """Appends and waits are refused, nothing counts as flushed any more, reads go on."""
    flushed, wrote = run.store.flushed_offset, run.store.wrote_offset
    answers: list[StoreError | None] = []
    with pytest.raises(DiskFailed):
        run.store.append([run.message()])
    run.store.when_confirmed(wrote + 1, answers.append)
    run.clock.advance(1000)
    run.sim.step(FLUSH)
    assert [type(answer) for answer in answers] == [DiskFailed]
    assert (run.store.flushed_offset, run.store.wrote_offset) == (flushed, wrote)
    check_reads(run)
    run.store.shutdown()
    assert (run.store.flushed_offset, run.store.wrote_offset) == (flushed, wrote)


def test_no_thread_syncs_a_segment_again_whose_sync_failed_in_another() -> None:
    run = started(3, sync_flush=False)
    for kind in ("append", "flush", "append"):
        run.step(kind)
    disk = run.disk
    failed: list[Path] = []

    def fault(kind: str, path: Path) -> Fault | None:
        assert path not in failed
        if kind == "sync" and path.parent == LOG_ROOT:
            failed.append(path)
            return Fault()
        return None

    disk.fault = fault
    run.sim.flush_queues()
    assert len(failed) == 1
    assert run.store.failure is not None
    run.clock.advance(1000)
    run.sim.step(FLUSH)


@pytest.mark.parametrize("share", seeds(SHARES))
@pytest.mark.parametrize("arrived", [0.0, 0.6])
def test_a_full_disk_refuses_and_heals(share: int, arrived: float) -> None:
    kinds = {"write", "create"}
    count = calls(4, kinds, sync_flush=False)
    assert count > 30
    refused = 0
    for number in share_of(count, share):
        run = started(4, sync_flush=False)
        fault = OneFault(run.disk, kinds, number, Fault(DiskFull, arrived))
        for step in range(STEPS):
            records, wrote = len(run.model.records), run.store.wrote_offset
            try:
                run.step(KINDS[step % len(KINDS)])
            except DiskFull as error:
                refused += 1
                assert fault.at is not None
                assert str(fault.at[1]) in str(error.__cause__ or error)
                assert (len(run.model.records), run.store.wrote_offset) == (records, wrote)
                check_reads(run)
                # Still in flight: a loss of power may leave what was written before it was undone.
                check_crashes(run, number)
                run.model.in_flight = []
            assert run.store.failure is None, (number, fault.at)
        assert fault.at is not None
        assert run.problems == []
        # Room again: all that was appended since is there, also after a kill and after a clean stop.
        for kind in ("append", "kill", "append", "restart"):
            run.step(kind)
        assert run.problems == [], (number, fault.at)
    assert refused > count // SHARES // 2
