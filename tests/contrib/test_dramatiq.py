"""Actors of Dramatiq through a real broker: run, delayed, retried, given up, delivered again after a worker ended."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sprocket import Message, sync
from sprocket.client.pop.pop_settings import PopSettings
from sprocket.testing import Broker

pytest.importorskip("dramatiq", reason="Dramatiq is not installed: pip install 'sprocket-mq[dramatiq]'")

import dramatiq  # after the check
from dramatiq.errors import ConnectionClosed, QueueNotFound

from sprocket.contrib.dramatiq import SprocketBroker
from tests.contrib.redelivery import dead_letters, lost_renewals


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with Broker(tmp_path_factory.mktemp("dramatiq")) as broker:
        yield broker


@pytest.fixture
def broker(servers: Broker) -> Iterator[SprocketBroker]:
    made = SprocketBroker(servers.namesrv, settings=PopSettings(pop_invisible_time_s=3))
    yield made
    made.close()


def work(broker: SprocketBroker) -> "dramatiq.Worker":
    worker = dramatiq.Worker(broker, worker_timeout=100, worker_threads=2)
    worker.start()
    return worker


def test_actors_run_in_time_and_are_retried(broker: SprocketBroker) -> None:
    seen: list[object] = []
    done = threading.Event()

    @dramatiq.actor(broker=broker, queue_name="run", max_retries=2, min_backoff=1000)
    def note(what: str) -> None:
        seen.append(what)
        if what == "fails" and seen.count(what) == 1:
            raise ValueError("once")
        if len(seen) == 4:
            done.set()

    note.send_with_options(args=("later",), delay=4000)
    note.send("now")
    note.send("fails")
    worker = work(broker)
    try:
        assert done.wait(60)
    finally:
        worker.stop()
    assert sorted(seen[:2]) == ["fails", "now"]  # type: ignore[type-var]
    assert sorted(seen) == ["fails", "fails", "later", "now"]  # type: ignore[type-var]


def test_what_was_not_acknowledged_is_delivered_to_another_worker(broker: SprocketBroker) -> None:
    @dramatiq.actor(broker=broker, queue_name="again")
    def nothing(number: int) -> None: ...

    for number in range(3):
        nothing.send(number)
    first = broker.consume("again", prefetch=3, timeout=20_000)
    held = [message for message in (next(first) for _ in range(3)) if message is not None]
    assert sorted(message.args[0] for message in held) == [0, 1, 2]
    first.ack(held[0])
    # The worker is held up longer than the invisible time, and keeps its messages.
    second = broker.consume("again", prefetch=3, timeout=5_000)
    assert next(second) is None
    first.requeue(held[1:])
    first.close()
    again = [message for message in (next(second) for _ in range(2)) if message is not None]
    assert sorted(message.message_id for message in again) == sorted(message.message_id for message in held[1:])
    for message in again:
        second.ack(message)
    second.close()


def test_an_actor_that_runs_while_its_message_is_delivered_again_is_not_run_twice(
    broker: SprocketBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[object] = []
    delivered_again = lost_renewals(monkeypatch)

    @dramatiq.actor(broker=broker, queue_name="held")
    def wait(what: str) -> None:
        begun.append(what)
        if what == "first":
            assert delivered_again.wait(60)

    wait.send("first")
    worker = work(broker)
    try:
        assert delivered_again.wait(60)
        wait.send("last")
        deadline = time.monotonic() + 60
        while len(begun) < 2 and time.monotonic() < deadline:
            time.sleep(0.05)
    finally:
        worker.stop()
    assert begun == ["first", "last"]
    after = broker.consume("held", timeout=6_000)
    assert next(after) is None  # all deliveries are acknowledged
    after.close()


@contextmanager
def worker_process(log: Path) -> Iterator["subprocess.Popen[bytes]"]:
    words = ["dramatiq", "tests.contrib.dramatiq_app:broker", "--processes", "1", "--threads", "2"]
    with log.open("ab") as into:
        process = subprocess.Popen([sys.executable, "-m", *words], stdout=into, stderr=into, start_new_session=True)
    try:
        yield process
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def test_a_killed_worker_loses_no_message_and_repeats_only_what_it_had_begun(
    servers: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes, count = tmp_path / "notes", 16
    monkeypatch.setenv("SPROCKET_TEST_BROKER", servers.namesrv)
    monkeypatch.setenv("SPROCKET_TEST_NOTES", str(notes))
    from tests.contrib import dramatiq_app

    for number in range(count):
        dramatiq_app.note.send(number)

    def numbers(word: str) -> list[int]:
        lines = notes.read_text().split("\n")[:-1] if notes.exists() else []
        return [int(line.split()[1]) for line in lines if line.startswith(word)]

    def wait_until_ended(many: int) -> None:
        deadline = time.monotonic() + 120
        while len(set(numbers("end"))) < many:
            assert time.monotonic() < deadline, (tmp_path / "log").read_text()
            time.sleep(0.05)

    with worker_process(tmp_path / "log"):
        wait_until_ended(4)
    begun, ended = set(numbers("begin")), set(numbers("end"))
    assert len(ended) < count
    with worker_process(tmp_path / "log"):
        wait_until_ended(count)
    dramatiq_app.broker.close()
    twice = {number for number in begun if numbers("begin").count(number) > 1}
    # The acknowledgement of one that had ended may have been under way in each of both threads.
    assert begun - ended <= twice <= begun and len(twice) <= 4


def test_what_is_given_up_or_foreign_goes_to_the_dead_letters(broker: SprocketBroker, servers: Broker) -> None:
    @dramatiq.actor(broker=broker, queue_name="bad", max_retries=0)
    def fails() -> None:
        raise ValueError("always")

    fails.send()
    with sync.connect(servers.namesrv) as mq:
        mq.producer().send(Message("dramatiq-bad", b"{"))
        worker = work(broker)
        try:
            found = dead_letters(mq, "dramatiq-bad", 2)
        finally:
            worker.stop()
    assert b"{" in [message.body for message in found]


def test_unknown_queues_and_absent_servers_are_said_in_dramatiqs_errors(broker: SprocketBroker) -> None:
    with pytest.raises(QueueNotFound):
        broker.consume("never")
    nobody = SprocketBroker("127.0.0.1:1")

    @dramatiq.actor(broker=nobody, queue_name="q")
    def nothing() -> None: ...

    with pytest.raises(ConnectionClosed):
        nothing.send()
    nobody.close()
