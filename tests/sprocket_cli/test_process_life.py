"""The order in which servers start and stop, and the status of a process whose server fails."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sprocket.common.errors import ConfigError, DiskFailed, InvariantError, SprocketError
from sprocket_cli import exit_codes
from sprocket_cli.server.server_process import Process


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    """A process ends with its loop, whose handlers of signals stay; these tests run it in their own."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


class RecordingServer:
    """Writes what happens to it into `events`; `then` is called once it has started."""

    def __init__(self, name: str, events: list[str], then: Callable[[], None] = lambda: None) -> None:
        self._name = name
        self._events = events
        self._then = then

    async def start(self) -> None:
        self._events.append(f"start {self._name}")
        self._then()

    async def stop(self) -> None:
        await asyncio.sleep(0)
        self._events.append(f"stop {self._name}")


def terminate() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


def test_servers_start_in_order_and_stop_in_the_opposite_one(capsys: pytest.CaptureFixture[str]) -> None:
    events: list[str] = []

    def second() -> RecordingServer:
        events.append("make b")
        return RecordingServer("b", events, terminate)

    status = Process().run([lambda: RecordingServer("a", events), second], lambda: "both run")
    assert status == exit_codes.SUCCESS
    assert events == ["start a", "make b", "start b", "stop b", "stop a"]
    assert capsys.readouterr().out == "both run\n"


@pytest.mark.parametrize(
    ("failure", "status"),
    [(DiskFailed("sync of 0.log: EIO"), exit_codes.DISK), (InvariantError("wrote past the end"), exit_codes.INVARIANT)],
)
def test_failure_from_another_thread_stops_in_order_and_sets_the_status(
    failure: SprocketError, status: int, capsys: pytest.CaptureFixture[str]
) -> None:
    events: list[str] = []
    process = Process()
    thread = threading.Thread(target=process.fail, args=(failure,))
    assert process.run([lambda: RecordingServer("a", events, thread.start)], lambda: "runs") == status
    thread.join()
    assert events == ["start a", "stop a"]
    assert str(failure) in capsys.readouterr().err


def test_first_failure_counts() -> None:
    process = Process()

    def fail_twice() -> None:
        process.fail(DiskFailed("first"))
        process.fail(InvariantError("second"))

    assert process.run([lambda: RecordingServer("a", [], fail_twice)], lambda: "runs") == exit_codes.DISK


def test_server_that_cannot_start_stops_those_before_it(capsys: pytest.CaptureFixture[str]) -> None:
    events: list[str] = []

    def refuse() -> None:
        raise ConfigError("brokerIP1 = 'x': no such host")

    factories = [lambda: RecordingServer("a", events), lambda: RecordingServer("b", events, refuse)]
    assert Process().run(factories, lambda: "never") == exit_codes.USAGE
    assert events[-1] == "stop a"
    shown = capsys.readouterr()
    assert (shown.out, shown.err) == ("", "Error: brokerIP1 = 'x': no such host\n")


ROOT = Path(__file__).resolve().parents[2]
NEEDS_ONE_RESTART = """
import os, signal, sys, threading
from pathlib import Path
from sprocket_cli.server.server_process import Process
from sprocket.common.errors import RestartNeeded

process, mark = Process(), Path(sys.argv[1])

def fail_when_asked():
    sys.stdin.read()
    process.fail(RestartNeeded("the log is to be cut"))

class Server:
    async def start(self):
        if mark.exists():
            os.kill(os.getpid(), signal.SIGTERM)
        else:
            mark.touch()
            threading.Thread(target=fail_when_asked).start()

    async def stop(self):
        pass

sys.exit(process.run([Server], lambda: "runs"))
"""


def test_a_process_restarts_after_the_reader_of_its_start_line_left(tmp_path: Path) -> None:
    """As a member of a local cluster does: the command that started it has ended by then."""
    command = [sys.executable, "-c", NEEDS_ONE_RESTART, str(tmp_path / "mark")]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, cwd=ROOT) as process:
        assert process.stdin is not None and process.stdout is not None and process.stderr is not None
        assert process.stdout.readline() == b"runs\n"
        process.stdout.close()
        process.stdin.close()
        said = process.stderr.read()
        assert process.wait(60) == exit_codes.SUCCESS, said
    assert b"event=restart" in said
