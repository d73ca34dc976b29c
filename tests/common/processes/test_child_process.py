"""Processes that are started and ended: the line they say, their log, how they end, and with whom."""

import contextlib
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from sprocket.common.processes.child_process import ChildProcess, ProcessNotStarted, await_readable, bound

SLEEPER = "import sys, time; print('ready', flush=True); time.sleep(60)"
STUBBORN = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(60)"


def program(text: str) -> list[str]:
    return [sys.executable, "-I", "-c", text]


@contextlib.contextmanager
def many_descriptors(count: int) -> Iterator[None]:
    """So many descriptors are open: the next ones have higher numbers."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < count + 100:
        pytest.skip(f"this machine allows {hard} descriptors")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, count + 100), hard))
    opened = [os.open(os.devnull, os.O_RDONLY) for _ in range(count)]
    try:
        yield
    finally:
        for descriptor in opened:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_the_first_line_says_that_it_is_ready(tmp_path: Path) -> None:
    child = ChildProcess("sleeper", program(SLEEPER), tmp_path)
    child.launch()
    assert child.ready_line(60) == b"ready\n"
    assert child.exit_status is None
    pid = child.pid
    child.end(signal.SIGTERM)
    assert not Path(f"/proc/{pid}").exists()
    with pytest.raises(ProcessNotStarted):
        _ = child.pid


def test_a_process_is_awaited_beside_thousands_of_descriptors(tmp_path: Path) -> None:
    """select(2) knows descriptors below 1,024 only."""
    with many_descriptors(1100):
        child = ChildProcess("sleeper", program(SLEEPER), tmp_path)
        child.launch()
        assert child.ready_line(60) == b"ready\n"
        child.end(signal.SIGKILL)


def test_what_ends_instead_says_why(tmp_path: Path) -> None:
    child = ChildProcess("broken", program("raise SystemExit('no such store')"), tmp_path)
    child.launch()
    with pytest.raises(ProcessNotStarted, match="no such store"):
        child.ready_line(60)
    child.end(signal.SIGTERM)


def test_one_that_says_nothing_is_not_started(tmp_path: Path) -> None:
    child = ChildProcess("silent", program("import time; time.sleep(60)"), tmp_path)
    child.launch()
    with pytest.raises(ProcessNotStarted, match="silent did not start within"):
        child.ready_line(0.1)
    child.end(signal.SIGTERM)


def test_one_that_does_not_listen_to_sigterm_is_killed(tmp_path: Path) -> None:
    child = ChildProcess("stubborn", program(STUBBORN), tmp_path)
    child.launch()
    child.ready_line(60)
    pid = child.pid
    child.end(signal.SIGTERM, limit_s=0.1)
    assert not Path(f"/proc/{pid}").exists()


def test_a_bound_process_ends_with_its_parent(tmp_path: Path) -> None:
    code = (
        "import sys, time; from pathlib import Path\n"
        "from sprocket.common.processes.child_process import ChildProcess, bound\n"
        "command = bound('sprocket_cli', 'namesrv', '--set', 'listenPort=0')\n"
        "child = ChildProcess('namesrv', command, Path(sys.argv[1]))\n"
        "child.launch(); child.ready_line(30); print(child.pid, flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        handle = os.pidfd_open(pid)
        os.kill(parent.pid, signal.SIGKILL)
    assert await_readable(handle, 30), "it outlived its parent"
    os.close(handle)


def test_a_bound_process_whose_parent_is_gone_does_not_run(tmp_path: Path) -> None:
    command = bound("sprocket_cli", "--version")
    command[command.index(str(os.getpid()))] = "1"
    ended = subprocess.run(command, check=False, capture_output=True, text=True, cwd=tmp_path)
    assert ended.returncode == 1
    assert "gone" in ended.stderr
