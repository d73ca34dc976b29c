"""Workers of Celery over a real broker: results, retries, remote control, events, and a SIGKILL amid tasks."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from sprocket.testing import Broker

pytest.importorskip("celery", reason="Celery is not installed: pip install 'sprocket-mq[celery]'")

_HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with Broker(tmp_path_factory.mktemp("celery")) as broker:
        os.environ["SPROCKET_TEST_BROKER"] = f"sprocket://{broker.namesrv}"
        sys.path.insert(0, str(_HERE))
        try:
            import celery_app

            yield celery_app
        finally:
            sys.path.remove(str(_HERE))
            celery_app.app.close()
            del os.environ["SPROCKET_TEST_BROKER"], sys.modules["celery_app"]


@contextmanager
def worker(log: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """Run a worker with two processes in a group of its own."""
    command = [sys.executable, "-m", "celery", "-A", "celery_app", "worker", "-c", "2", "-l", "INFO"]
    with log.open("ab") as out:
        running = subprocess.Popen(command, cwd=_HERE, stdout=out, stderr=out, start_new_session=True)
    try:
        yield running
    finally:
        if running.poll() is None:
            running.terminate()
            try:
                running.wait(60)
            except subprocess.TimeoutExpired:
                kill(running)


def kill(running: "subprocess.Popen[bytes]") -> None:
    """Kill a worker with its processes."""
    os.killpg(running.pid, signal.SIGKILL)
    running.wait()


def test_tasks_run_and_their_results_come_back(shop: Any, tmp_path: Path) -> None:
    with worker(tmp_path / "worker.log"):
        assert [one.get(timeout=120) for one in [shop.add.delay(number, 1) for number in range(50)]] == list(
            range(1, 51)
        )
        assert shop.flaky.delay().get(timeout=60) == 2
        started = time.time()
        assert shop.add.apply_async((1, 1), countdown=3).get(timeout=60) == 2
        assert time.time() - started >= 2
        inner = shop.starts_another.delay(6).get(timeout=60)
        assert inner
        control = shop.app.control
        assert [list(each.values()) for each in control.ping(timeout=20, limit=1)] == [[{"ok": "pong"}]]
        [registered] = control.inspect(timeout=20, limit=1).registered().values()
        assert "celery_app.add" in registered


def test_events_of_tasks_reach_a_monitor(shop: Any, tmp_path: Path) -> None:
    sent: list[str] = []
    done: list[str] = []

    def on_heartbeat(event: object) -> None:
        if not sent:
            sent.append(shop.add.delay(1, 2).id)

    def on_succeeded(event: dict[str, str]) -> None:
        done.append(event["uuid"])
        receiver.should_stop = True

    with worker(tmp_path / "worker.log"), shop.app.connection() as connection:
        handlers = {"worker-heartbeat": on_heartbeat, "task-succeeded": on_succeeded}
        receiver = shop.app.events.Receiver(connection, handlers=handlers)
        receiver.capture(timeout=120)
    assert done == sent


def test_a_killed_worker_loses_no_task_and_repeats_only_what_it_had_begun(shop: Any, tmp_path: Path) -> None:
    log = tmp_path / "worker.log"
    count = 16
    with worker(log) as first:
        results = [shop.note.delay(number, str(tmp_path)) for number in range(count)]
        deadline = time.monotonic() + 120
        while len(list(tmp_path.glob("*.done"))) < 4 and time.monotonic() < deadline:
            time.sleep(0.05)
        kill(first)
    done = {one.name.partition(".")[0] for one in tmp_path.glob("*.done")}
    assert 4 <= len(done) < count
    with worker(log):
        assert sorted(one.get(timeout=120) for one in results) == list(range(count))
    begun: dict[str, int] = {}
    for mark in tmp_path.glob("*.begun"):
        number = mark.name.partition(".")[0]
        begun[number] = begun.get(number, 0) + 1
    assert len(begun) == count
    # Two processes had one task each, and the acknowledgement of another may have been under way in each.
    assert sum(times - 1 for times in begun.values()) <= 4
