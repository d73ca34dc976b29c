"""The process that packs segments makes what a writer in this process makes, and its end is only an error."""

import contextlib
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sprocket.common.processes.child_process import await_readable
from store.message_store import MessageStore
from store.tier import segment_process
from store.tier.segment_packer import HURRY, go_first
from store.tier.segment_process import PackerFailed, SegmentProcess
from store.tier.segment_writer import Kept, LogDamaged
from tests.store.rig import Stores, message
from tests.store.tier.packers import packers
from tests.store.tier.parts import part_at, write
from tests.store.tier.test_archive_writer import FILE_BYTES, filled


@pytest.fixture
def store(stores: Stores) -> MessageStore:
    return filled(stores)


def packer_of(store: MessageStore) -> SegmentProcess:
    config = store.config
    return SegmentProcess(config.commit_log_path, config.mapped_file_size_commit_log, config.message_delay_level)


@pytest.fixture
def packer(store: MessageStore) -> Iterator[SegmentProcess]:
    packer = packer_of(store)
    yield packer
    packer.close()


def test_segments_are_the_same_as_in_this_process(store: MessageStore, packer: SegmentProcess) -> None:
    for start, kept in ((0, Kept()), (FILE_BYTES, Kept(frozenset({"Orders"})))):
        segment = packer.segment(part_at(store, start), kept)
        if start:
            segment.hurry()
        assert (b"".join(segment), segment.written) == write(store, part_at(store, start), kept)


def whole(store: MessageStore, packer: SegmentProcess) -> None:
    """Pack a part, and assert that it is right."""
    assert b"".join(packer.segment(part_at(store, 0), Kept())) == write(store, part_at(store, 0))[0]


def running(packer: SegmentProcess) -> int:
    assert packer.pid is not None
    return packer.pid


def test_a_process_that_is_closed_is_an_error_and_the_next_part_starts_another(
    store: MessageStore, packer: SegmentProcess
) -> None:
    pieces = iter(packer.segment(part_at(store, 0), Kept()))
    next(pieces)
    packer.close()
    with pytest.raises(PackerFailed, match="the process ended"):
        list(pieces)
    whole(store, packer)


def test_a_process_that_is_killed_is_an_error_and_the_next_part_starts_another(
    store: MessageStore, packer: SegmentProcess
) -> None:
    whole(store, packer)
    os.kill(running(packer), signal.SIGKILL)
    with pytest.raises(PackerFailed, match="the process ended, exit status -9"):
        whole(store, packer)
    whole(store, packer)


def test_a_process_that_hangs_is_killed_and_the_next_part_starts_another(
    store: MessageStore, packer: SegmentProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segment_process, "_SILENCE_LIMIT_S", 1)
    packer.finish(packer.begin())
    hung = running(packer)
    os.kill(hung, signal.SIGSTOP)
    with pytest.raises(PackerFailed, match="the process said nothing for 1 s"):
        whole(store, packer)
    assert hung not in packers(os.getpid())
    monkeypatch.undo()
    whole(store, packer)


def test_while_a_killed_process_has_not_ended_there_is_no_other(
    store: MessageStore, packer: SegmentProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole(store, packer)
    first = running(packer)
    os.kill(first, signal.SIGSTOP)
    # As while it waits for a disk that does not answer.
    monkeypatch.setattr(segment_process, "_END_LIMIT_S", 0.01)
    monkeypatch.setattr(subprocess.Popen, "kill", lambda process: None)
    assert packer.close() is None
    with pytest.raises(PackerFailed, match=f"process {first} was killed and has not ended yet"):
        whole(store, packer)
    os.kill(first, signal.SIGKILL)
    os.waitid(os.P_PID, first, os.WEXITED | os.WNOWAIT)
    monkeypatch.undo()
    whole(store, packer)


def test_a_process_without_memory_says_so(stores: Stores) -> None:
    stores.fields["mapped_file_size_commit_log"] = 4 << 20
    store = stores.open()
    for number in range(50):
        store.append([message("Orders", number, b"body" * 25_000)])
    packer = packer_of(store)
    try:
        list(packer.segment(part_at(store, 0, 110_000), Kept()))  # now it has all that it needs for a small part
        resource.prlimit(running(packer), resource.RLIMIT_DATA, (1, 1))
        with pytest.raises(PackerFailed, match="not enough memory to pack the log from 0 on"):
            whole(store, packer)
        packer.close()
        whole(store, packer)
    finally:
        packer.close()


def test_a_process_that_cannot_be_started_is_an_error(
    store: MessageStore, packer: SegmentProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    with pytest.raises(PackerFailed, match="cannot be started"):
        whole(store, packer)
    monkeypatch.undo()
    whole(store, packer)


def test_a_process_ends_with_its_broker() -> None:
    program = (
        "import pathlib, time; from store.tier.segment_process import SegmentProcess as P\n"
        "packer = P(pathlib.Path(), 1, ''); packer.begin(); print(packer.pid, flush=True); time.sleep(3600)"
    )
    broker = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
    with broker:
        assert broker.stdout is not None
        pid = int(broker.stdout.readline())
        is_running = os.pidfd_open(pid)
        broker.kill()
    try:
        assert await_readable(is_running, 60)
    finally:
        os.close(is_running)


def test_a_part_that_is_left_does_not_disturb_the_next(store: MessageStore, packer: SegmentProcess) -> None:
    left = iter(packer.segment(part_at(store, 0), Kept()))
    next(left)
    del left
    segment = packer.segment(part_at(store, FILE_BYTES), Kept())
    assert b"".join(segment) == write(store, part_at(store, FILE_BYTES))[0]


def test_the_end_of_a_part_that_was_left_does_not_disturb_the_next(store: MessageStore, packer: SegmentProcess) -> None:
    left = packer.segment(part_at(store, 0), Kept())
    pieces = iter(left)
    next(pieces)
    segment = packer.segment(part_at(store, FILE_BYTES), Kept())
    taken = iter(segment)
    first = next(taken)
    with pytest.raises(PackerFailed, match="the process ended"):
        list(pieces)
    assert first + b"".join(taken) == write(store, part_at(store, FILE_BYTES))[0]


def test_the_end_of_a_process_does_not_free_the_next_one(packer: SegmentProcess) -> None:
    left = packer.begin()
    busy = packer.begin()
    packer.finish(left)
    packer.hung(left)
    assert packer.pid == busy.popen.pid
    free = packer.begin()
    assert free is not busy  # which had not said all of its part
    packer.finish(free)
    assert packer.begin() is free


def test_a_process_is_told_something_while_it_is_waited_for(packer: SegmentProcess) -> None:
    process, ended = packer.begin(), threading.Event()

    def receive() -> None:
        with contextlib.suppress(EOFError, OSError):
            process.receive()
        ended.set()

    waiting = threading.Thread(target=receive)
    waiting.start()
    while ") S " not in Path(f"/proc/self/task/{waiting.native_id}/stat").read_text():
        time.sleep(0.01)
    process.send(HURRY, b"")
    assert not ended.is_set()
    packer.close()
    waiting.join(60)
    assert ended.is_set()


@pytest.mark.parametrize(("whole_group", "score"), [("1", "0"), ("0", "1000"), (None, "1000")])
def test_where_memory_ends_it_goes_first_if_it_goes_alone(tmp_path: Path, whole_group: str | None, score: str) -> None:
    (tmp_path / "cgroup").write_text("9:name=systemd:/\n0::/system.slice/broker\n")
    (tmp_path / "oom_score_adj").write_text("0")
    group = tmp_path / "system.slice" / "broker"
    group.mkdir(parents=True)
    if whole_group is not None:
        (group / "memory.oom.group").write_text(f"{whole_group}\n")
    go_first(tmp_path, tmp_path)
    assert (tmp_path / "oom_score_adj").read_text() == score


def test_damage_of_the_log_is_said_as_such(store: MessageStore, packer: SegmentProcess) -> None:
    with (store.config.commit_log_path / f"{0:020d}").open("r+b") as file:
        file.seek(150)
        file.write(b"?")
    with pytest.raises(LogDamaged, match="physical offset 0"):
        list(packer.segment(part_at(store, 0), Kept()))
