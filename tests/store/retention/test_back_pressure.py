"""Refusals before anything is written: each cause, its figures, and its end."""

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from sprocket.common.errors import DiskFull, StoreBusy
from sprocket.common.figures import values
from store.config.store_config import FlushDiskType
from store.disk.disk import DiskFile
from tests.store.insides import commit_log_of, group_commit_of
from tests.store.reading import bodies
from tests.store.retention.cleaning import BODY, CleanedStore
from tests.store.rig import message

MIB = 1 << 20


@pytest.fixture
def cleaned(tmp_path: Path) -> Iterator[CleanedStore]:
    opened = CleanedStore(tmp_path / "store", mapped_file_size_commit_log=4 * MIB)
    yield opened
    opened.close()


def look(cleaned: CleanedStore) -> None:
    """Let a second pass, and the thread check."""
    cleaned.clock.advance(1.0)
    cleaned.workers["store-clean"].take_turn()
    cleaned.run_notified()


def put(cleaned: CleanedStore, body: bytes = b"x", count: int = 1) -> None:
    cleaned.store.append([message(body=body) for _ in range(count)])


def test_a_full_disk_refuses_and_heals(cleaned: CleanedStore, caplog: pytest.LogCaptureFixture) -> None:
    put(cleaned, b"before")
    end = cleaned.store.wrote_offset
    cleaned.disk.log_used = 0.913
    put(cleaned, b"not looked yet")
    look(cleaned)
    with caplog.at_level(logging.WARNING), pytest.raises(DiskFull) as refused:
        put(cleaned, count=3)
    assert refused.value.response_code == 14
    assert str(refused.value) == (
        "the broker's disk is full: CL 91.3%, CQ 50.0% used, allowed is 90.0% (diskSpaceWarningLevelRatio);"
        " retry after 10000 ms"
    )
    assert bodies(cleaned.store) == [b"before", b"not looked yet"]
    assert cleaned.store.wrote_offset > end
    info = values(cleaned.store.figures())
    assert (info["putMessageRefused_disk_full"], info["putMessageFailedTimes"]) == ("3", "3")
    # Not accepted just below the ratio: it would be refused again a moment later.
    cleaned.disk.log_used = 0.895
    look(cleaned)
    with pytest.raises(DiskFull):
        put(cleaned)
    cleaned.disk.log_used = 0.87
    with caplog.at_level(logging.WARNING):
        look(cleaned)
    put(cleaned, b"after")
    assert bodies(cleaned.store)[-1] == b"after"
    states = [message.split()[:2] for message in caplog.messages if message.startswith("event=back_pressure ")]
    assert states == [["event=back_pressure", "state=refusing"], ["event=back_pressure", "state=accepting"]]


def test_a_disk_that_is_full_at_the_start_refuses_the_first_send(tmp_path: Path) -> None:
    cleaned = CleanedStore(tmp_path / "store")
    cleaned.disk.queues_used = 0.95
    cleaned.reopen()
    with pytest.raises(DiskFull, match=r"CQ 95.0%"):
        put(cleaned)
    cleaned.close()


def test_the_ratio_can_be_changed_while_it_runs(cleaned: CleanedStore) -> None:
    cleaned.disk.log_used = 0.95
    look(cleaned)
    with pytest.raises(DiskFull):
        put(cleaned)
    cleaned.configure(disk_space_warning_level_ratio=100, clean_file_forcibly_enable=False)
    look(cleaned)
    put(cleaned)


def test_too_much_unflushed_refuses_until_it_is_flushed(cleaned: CleanedStore) -> None:
    cleaned.configure(max_unflushed_bytes=MIB)
    put(cleaned, bytes(700_000))
    put(cleaned, bytes(700_000))
    with pytest.raises(StoreBusy) as refused:
        put(cleaned)
    assert refused.value.response_code == 2
    unflushed = cleaned.store.wrote_offset
    assert str(refused.value) == (
        f"the broker's flush is behind: {unflushed} bytes are unflushed, allowed are 1048576 (maxUnflushedBytes);"
        " retry after 50 ms"
    )
    assert values(cleaned.store.figures())["putMessageRefused_flush_behind"] == "1"
    cleaned.clock.advance(10)
    cleaned.flush()
    put(cleaned)


def test_too_much_memory_in_waiting_messages_refuses_until_they_are_answered(tmp_path: Path) -> None:
    cleaned = CleanedStore(
        tmp_path / "store", flush_disk_type=FlushDiskType.SYNC_FLUSH, max_waiting_bytes=MIB,
        mapped_file_size_commit_log=4 * MIB,
    )  # fmt: skip
    # A small message costs its overhead: a thousand of them a MiB.
    put(cleaned, b"x", 950)
    with pytest.raises(StoreBusy, match=r"they hold \d+ bytes, allowed are 1048576 \(maxWaitingBytes\); retry after"):
        put(cleaned)
    answers: list[object] = []
    cleaned.store.when_confirmed(cleaned.store.wrote_offset, answers.append)
    cleaned.flush()
    assert answers == [None]
    put(cleaned)
    assert values(cleaned.store.figures())["putMessageRefused_waiting"] == "1"
    cleaned.close()


@pytest.mark.parametrize("fast_failure", [True, False])
def test_a_flush_that_hangs_refuses_while_it_hangs(cleaned: CleanedStore, fast_failure: bool) -> None:
    cleaned.store.cleaner.pressure.fail_fast(fast_failure)
    put(cleaned, b"first")
    during: list[str] = []

    class HangingFile:
        """A file that the flush thread syncs; while it hangs, others check and send."""

        def __init__(self, file: DiskFile) -> None:
            self._file = file

        def sync(self) -> None:
            cleaned.clock.advance(29)
            look(cleaned)
            put(cleaned, b"still taken")
            look(cleaned)
            try:
                put(cleaned, b"late")
            except StoreBusy as error:
                during.append(str(error))
            self._file.sync()

    confirmation = cleaned.store.confirmation
    flushed, wrote, files = confirmation.unflushed()
    group_commit_of(cleaned.store)._pending = lambda: (flushed, wrote, [HangingFile(file) for file in files])  # type: ignore
    reached, error = group_commit_of(cleaned.store).flush()
    assert (reached, error) == (wrote, None)
    group_commit_of(cleaned.store)._pending = confirmation.unflushed
    expected = (
        "the broker's disk is slow: a flush has taken 31.0 s, allowed are 30.0 (maxFlushTime, syncFlushTimeout);"
        " retry after 1000 ms"
    )
    assert during == ([expected] if fast_failure else [])
    # At once, not after the next check.
    put(cleaned, b"healed")
    assert bodies(cleaned.store) == [b"first", b"still taken"] + [b"late"] * (not fast_failure) + [b"healed"]


@pytest.mark.parametrize("fast_failure", [True, False])
def test_after_a_slow_write_what_queued_up_is_sent_elsewhere(
    cleaned: CleanedStore, fast_failure: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    cleaned.store.cleaner.pressure.fail_fast(fast_failure)
    write = commit_log_of(cleaned.store).write

    def slowly(chunks: list[tuple[int, bytes]], end_offset: int) -> None:
        cleaned.clock.advance(1.5)
        write(chunks, end_offset)

    with monkeypatch.context() as slow:
        slow.setattr(commit_log_of(cleaned.store), "write", slowly)
        put(cleaned, b"slow")
    if fast_failure:
        cleaned.clock.advance(0.05)
        expected = (
            r"the broker's page cache is busy: a write took 1500 ms, allowed are 1000 \(osPageCacheBusyTimeOutMills\);"
            " retry after 150 ms"
        )
        with pytest.raises(StoreBusy, match=expected):
            put(cleaned)
        cleaned.clock.advance(0.15)
    put(cleaned, b"healed")
    assert bodies(cleaned.store) == [b"slow", b"healed"]


def test_no_space_left_says_so_without_a_path(cleaned: CleanedStore, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise DiskFull(f"create {cleaned.root}: No space left on device")

    monkeypatch.setattr(cleaned.disk, "create", full)
    with pytest.raises(DiskFull, match=r"no space left \(.*\); retry after 10000 ms") as refused:
        put(cleaned, BODY)
    assert str(cleaned.root) not in str(refused.value)
    assert values(cleaned.store.figures())["putMessageRefused_disk_full"] == "1"
