"""A process is known by more than its id: another one that has the id now gets no signal."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from sprocket_cli.processes.pid_file import PidFile, ProcessIdentity


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-I", "-c", "import time; time.sleep(60)"]) as process:
        yield process
        process.kill()


def test_a_process_that_was_written_down_is_found_and_ended(tmp_path: Path, sleeper: "subprocess.Popen[bytes]") -> None:
    file = PidFile(tmp_path / "one.json")
    assert (file.exists, file.running()) == (False, None)
    file.write(sleeper.pid)
    identity = file.running()
    assert identity is not None and identity.pid == sleeper.pid
    assert not identity.await_end(0.0)
    assert identity.send(signal.SIGTERM)
    assert identity.await_end(20.0)
    # Its parent has not waited for it yet: a zombie is not a running process.
    assert (file.exists, file.running()) == (True, None)
    sleeper.wait()
    assert not identity.send(signal.SIGTERM)
    assert identity.await_end(0.0)
    file.remove()
    assert not file.exists


def test_another_process_with_the_same_id_gets_no_signal(sleeper: "subprocess.Popen[bytes]") -> None:
    identity = ProcessIdentity.of(sleeper.pid)
    assert identity is not None
    for other in (replace(identity, start_ticks=identity.start_ticks - 1), replace(identity, boot_id="another boot")):
        assert not other.is_running()
        assert not other.send(signal.SIGKILL)
        assert other.await_end(0.0)
    assert sleeper.poll() is None


@pytest.mark.parametrize("content", ["", "{", "[]", '{"pid": 1}', "null"])
def test_a_broken_file_names_nobody(tmp_path: Path, content: str) -> None:
    path = tmp_path / "one.json"
    path.write_text(content)
    assert PidFile(path).running() is None


def test_a_process_that_has_ended_is_not_written_down(tmp_path: Path, sleeper: "subprocess.Popen[bytes]") -> None:
    sleeper.kill()
    sleeper.wait()
    file = PidFile(tmp_path / "one.json")
    file.write(sleeper.pid)
    assert not file.exists


def test_this_process_is_running() -> None:
    identity = ProcessIdentity.of(os.getpid())
    assert identity is not None and identity.is_running()
