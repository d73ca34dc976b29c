"""Ctrl-C at commands that run until it: status 130 and no text; a second one does not wait for an orderly end."""

import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from sprocket import Message, sync
from sprocket.testing import Broker
from tests.sprocket_cli.programs import COMMAND

_LIMIT_S = 60
_MQADMIN = (sys.executable, "-I", "-c", "from sprocket_cli.programs import mqadmin; mqadmin()")


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with Broker(tmp_path_factory.mktemp("interrupts")) as broker:
        broker.create_topic("Orders", 1)
        yield broker


def started(*words: str) -> "subprocess.Popen[str]":
    """Start a program that Ctrl-C reaches: a shell in the background starts its children with SIGINT ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    finally:
        signal.signal(signal.SIGINT, before)


def interrupted(*words: str) -> tuple[int, str]:
    """Run a command, interrupt it after its first line; return its status and what it wrote to standard error."""
    with started(*words) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline(), process.stderr and process.stderr.read()
            process.send_signal(signal.SIGINT)
            _, said = process.communicate(timeout=_LIMIT_S)
        finally:
            process.kill()
    return process.returncode, said


@pytest.mark.parametrize(
    "words", [("startMonitoring",), ("clusterRT", "-a", "2", "-i", "0")], ids=lambda words: words[0]
)
def test_a_command_of_mqadmin_ends_quietly(broker: Broker, words: tuple[str, ...]) -> None:
    assert interrupted(*_MQADMIN, *words, "-n", broker.namesrv) == (130, "")


def test_a_consumer_ends_quietly(broker: Broker) -> None:
    with sync.connect(broker.namesrv) as mq:
        mq.producer().send(Message("Orders", b"first"))
    assert interrupted(*COMMAND, "consume", "Orders", "-n", broker.namesrv, "--from", "first") == (130, "")


_HANGS = """
import time
from sprocket_cli.processes.interrupts import end_quietly
end_quietly()
try:
    print("begun", flush=True)
    time.sleep(60)
finally:
    print("hangs", flush=True)
    time.sleep(60)
"""
_HANGS_IN_A_THREAD = """
import asyncio, time
from concurrent.futures import ThreadPoolExecutor
from sprocket_cli.processes.interrupts import end_quietly, run
end_quietly()

class Threads(ThreadPoolExecutor):
    def shutdown(self, *words, **options):
        print("hangs", flush=True)
        super().shutdown(*words, **options)

async def main():
    asyncio.get_running_loop().set_default_executor(Threads())
    work = asyncio.create_task(asyncio.to_thread(time.sleep, 60))
    await asyncio.sleep(0)
    print("begun", flush=True)
    await work

run(main())
"""


@pytest.mark.parametrize("program", [_HANGS, _HANGS_IN_A_THREAD], ids=["main", "thread"])
def test_a_second_interrupt_does_not_wait(program: str) -> None:
    with started(sys.executable, "-c", program) as process:
        assert process.stdout is not None
        for line in ("begun\n", "hangs\n"):
            assert process.stdout.readline() == line
            process.send_signal(signal.SIGINT)
        assert process.wait(_LIMIT_S) == -signal.SIGINT
