"""A process that is kept running: started again after an end, ended with its supervisor."""

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from sprocket.common.clock import SystemClock
from sprocket.common.processes.child_process import ChildProcess, ProcessNotStarted
from sprocket_cli.processes.supervised_process import SupervisedProcess

SLEEPER = [sys.executable, "-I", "-c", "import time; time.sleep(120)"]


def runs(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.02)


def pid_of(supervised: SupervisedProcess) -> int | None:
    try:
        return supervised.pid
    except ProcessNotStarted:
        return None


async def test_it_is_started_again_and_stopped(tmp_path: Path) -> None:
    ends: list[int] = []
    supervised = SupervisedProcess(
        ChildProcess("sleeper", SLEEPER, tmp_path), SystemClock(), first_pause_s=0.01, ended=ends.append
    )  # fmt: skip
    await supervised.start()
    try:
        seen = [supervised.pid]
        for _ in range(2):
            os.kill(seen[-1], signal.SIGKILL)
            await until(lambda: pid_of(supervised) not in (None, seen[-1]))
            seen.append(supervised.pid)
    finally:
        await supervised.stop()
    assert not any(runs(pid) for pid in seen)
    assert len(set(seen)) == 3
    assert ends == [-signal.SIGKILL] * 2


async def test_a_command_that_ends_at_once_is_tried_with_growing_pauses(tmp_path: Path) -> None:
    log = tmp_path / "starts.log"
    command = [sys.executable, "-I", "-c", "import sys; print('x', file=sys.stderr); sys.exit(3)"]
    supervised = SupervisedProcess(ChildProcess("short", command, tmp_path, log), SystemClock(), first_pause_s=0.01)
    await supervised.start()
    try:
        await until(lambda: log.read_text().count("x") >= 3)
    finally:
        await supervised.stop()


async def test_of_a_long_log_the_end_is_kept_while_the_process_writes(tmp_path: Path) -> None:
    command = [sys.executable, "-I", "-c", "import sys\nwhile True: print('x' * 999, file=sys.stderr)"]
    log = tmp_path / "talker.log"
    supervised = SupervisedProcess(ChildProcess("talker", command, tmp_path), SystemClock(), max_log_bytes=64_000)
    await supervised.start()
    try:
        await until(lambda: log.stat().st_size > 64_000)
        await until(lambda: log.stat().st_size <= 64_000)
    finally:
        await supervised.stop()


async def test_a_start_that_the_system_refuses_is_tried_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder, aside = tmp_path / "home", tmp_path / "aside"
    folder.mkdir()
    child = ChildProcess("sleeper", SLEEPER, folder, tmp_path / "sleeper.log")
    supervised = SupervisedProcess(child, SystemClock(), first_pause_s=0.01)
    await supervised.start()
    first = supervised.pid
    try:
        folder.rename(aside)
        os.kill(first, signal.SIGKILL)
        await until(lambda: "event=process_not_started" in caplog.text)
        folder.symlink_to(aside)
        await until(lambda: pid_of(supervised) not in (None, first))
    finally:
        await supervised.stop()
