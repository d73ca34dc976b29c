"""Arming failpoints: what is armed acts, what is unknown is refused, what is unarmed does nothing."""

import errno
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from sprocket.common import failpoints
from sprocket.common.errors import ConfigError, InvariantError
from sprocket.common.failpoints import failpoint

PLAIN = failpoint("test_failpoints.plain")
FALLIBLE = failpoint("test_failpoints.fallible", takes_error=True)


@pytest.fixture(autouse=True)
def _disarmed() -> Iterator[None]:
    yield
    failpoints.arm(None)


def test_unarmed_points_do_nothing() -> None:
    failpoints.arm("test_failpoints.fallible=error:EIO")
    failpoints.arm("")
    PLAIN()
    FALLIBLE()


def test_error_is_raised_every_time() -> None:
    failpoints.arm("test_failpoints.fallible=error:ENOSPC")
    for _ in range(2):
        with pytest.raises(OSError, match="No space left") as caught:
            FALLIBLE()
        assert caught.value.errno == errno.ENOSPC
    PLAIN()


def test_count_acts_once() -> None:
    failpoints.arm(" test_failpoints.fallible=error:EIO@3 ; ")
    FALLIBLE()
    FALLIBLE()
    with pytest.raises(OSError, match="failpoint test_failpoints"):
        FALLIBLE()
    FALLIBLE()


def test_an_action_may_last_from_a_call_on() -> None:
    failpoints.arm("test_failpoints.fallible=error:EIO@3+")
    for _ in range(2):
        FALLIBLE()
    for _ in range(2):
        with pytest.raises(OSError, match="failpoint test_failpoints"):
            FALLIBLE()


def test_pause_takes_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr("time.sleep", slept.append)
    failpoints.arm("test_failpoints.plain=pause:200")
    PLAIN()
    assert slept == [0.2]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("test_failpoints.plane=kill", "no failpoint 'test_failpoints.plane'; the nearest is 'test_failpoints.plain'"),
        ("test_failpoints.plain", "allowed are kill, exit, pause:<ms> and error:<name of errno>"),
        ("test_failpoints.plain=kill:3", "allowed are"),
        ("test_failpoints.plain=pause:long", "allowed are"),
        ("test_failpoints.fallible=error:EVIL", "allowed are"),
        ("test_failpoints.plain=kill@0", "a number from 1 on"),
        ("test_failpoints.plain=kill@x", "a number from 1 on"),
        ("test_failpoints.plain=kill@+", "a number from 1 on"),
        ("test_failpoints.plain=error:EIO", "no error of the system can happen there"),
    ],
)
def test_what_cannot_be_armed_is_refused_and_nothing_is_armed(text: str, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        failpoints.arm(f"test_failpoints.fallible=error:EIO;{text}")
    assert words in str(caught.value)
    FALLIBLE()


def test_a_name_belongs_to_one_point() -> None:
    with pytest.raises(InvariantError, match="declared twice"):
        failpoint("test_failpoints.plain")


def test_an_armed_point_is_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        failpoints.arm("test_failpoints.plain=pause:0")
    assert "event=failpoint_armed clause=test_failpoints.plain=pause:0" in caplog.text


PROGRAM = """
from sprocket.common.failpoints import failpoint, arm
point = failpoint("p.q")
arm("p.q={action}")
point()
"""


@pytest.mark.parametrize(("action", "status"), [("kill", -signal.SIGKILL), ("exit", failpoints.EXIT_STATUS)])
def test_a_process_ends_at_the_point(action: str, status: int) -> None:
    program = PROGRAM.format(action=action)
    ended = subprocess.run([sys.executable, "-c", program], check=False, capture_output=True, env=dict(os.environ))
    assert ended.returncode == status
    assert (b"event=failpoint name=p.q action=kill" in ended.stderr) == (action == "kill")


@pytest.mark.parametrize("server", ["mqbroker", "mqnamesrv"])
def test_a_server_refuses_a_point_that_is_not_there(server: str, tmp_path: "os.PathLike[str]") -> None:
    environment = {**os.environ, failpoints.VARIABLE: "disk.sink=kill", "HOME": os.fspath(tmp_path)}
    program = f"from sprocket_cli.server.{server} import main; main(['--set', 'listenPort=0'])"
    command = [sys.executable, "-c", program]
    ended = subprocess.run(command, check=False, capture_output=True, env=environment, timeout=120)
    assert ended.returncode == 2
    assert b"there is no failpoint 'disk.sink'" in ended.stderr
    if server == "mqbroker":
        assert b"the nearest is 'disk.sync'" in ended.stderr
