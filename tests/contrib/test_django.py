"""Tasks of Django through real brokers and workers: results, priorities, times, kills; the admin; the outbox."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from sprocket import IllegalArgument, Message, sync
from sprocket.testing import Broker
from tests.contrib.redelivery import dead_letters, lost_renewals

pytest.importorskip("django", reason="Django is not installed: pip install 'sprocket-mq[django]'")

import django  # after the check
from django.core.management import CommandError, call_command
from django.db import transaction
from django.utils import timezone

_COMMAND = (sys.executable, "-m", "django")


class Shop:
    """The project, set up in this process, with its cluster and its log."""

    def __init__(self, folder: Path, broker: Broker) -> None:
        self.log = folder / "log"
        self.worker_log = folder / "worker.log"
        self.broker = broker
        os.environ |= {
            "DJANGO_SETTINGS_MODULE": "tests.contrib.django_shop.settings",
            "SHOP_DATABASE": str(folder / "shop.db"),
            "SHOP_NAMESRV": broker.namesrv,
            "SHOP_LOG": str(self.log),
        }
        django.setup()
        call_command("migrate", verbosity=0)
        from sprocket.contrib.django.framework import task_backends
        from sprocket.contrib.django.models import TaskRecord
        from tests.contrib.django_shop import tasks

        self.tasks = tasks
        self.backend = task_backends["default"]
        self.records = TaskRecord.objects

    def lines(self) -> list[str]:
        return self.log.read_text().splitlines() if self.log.exists() else []

    @contextmanager
    def worker(self, *words: str) -> Iterator["subprocess.Popen[bytes]"]:
        with self.worker_log.open("ab") as into:
            process = subprocess.Popen([*_COMMAND, "sprocket_worker", *words], stdout=into, stderr=into)
        try:
            yield process
        finally:
            if process.poll() is None:
                process.terminate()
                assert process.wait(60) == 0, self.worker_log.read_text()

    def wait(self, is_so: Callable[[], object], limit_s: float = 90.0) -> None:
        end = time.monotonic() + limit_s
        while not is_so():
            assert time.monotonic() < end, self.worker_log.read_text()
            time.sleep(0.05)

    def ended(self, *results: Any) -> None:
        """Wait until all `results` are finished, and refresh them."""

        def are_finished() -> bool:
            for result in results:
                result.refresh()
            return all(result.is_finished for result in results)

        self.wait(are_finished)


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    folder = tmp_path_factory.mktemp("django")
    with Broker(folder / "broker") as broker:
        made = Shop(folder, broker)
        yield made
        made.backend.close()


@pytest.fixture(autouse=True)
def no_log(shop: Shop) -> None:
    shop.log.unlink(missing_ok=True)


def test_tasks_run_and_their_results_are_kept(shop: Shop) -> None:
    added = shop.tasks.add.enqueue(2, b=3)
    mailed = asyncio.run(shop.tasks.mail.aenqueue("me"))
    failed = shop.tasks.fail_until.enqueue("/does/not/exist")
    left = shop.tasks.leave.enqueue()
    with pytest.raises(ValueError, match="not finished"):
        _ = added.return_value
    with shop.worker():
        shop.ended(added, mailed, failed, left)
    assert (added.return_value, mailed.return_value, added.attempts) == (5, "me", 1)
    assert sorted(shop.lines()) == ["add 2 3", "mail me 1"]
    assert failed.errors[0].exception_class is ValueError
    assert "the file is not there" in failed.errors[0].traceback
    assert left.errors[0].exception_class is SystemExit
    assert shop.tasks.add.get_result(added.id).return_value == 5


def test_higher_priorities_run_first_and_later_ones_in_time(shop: Shop) -> None:
    due = timezone.now() + timedelta(seconds=12)  # after the start of a worker on a busy machine
    later = shop.tasks.add.using(run_after=due, priority=100).enqueue(0, 0)
    results = [shop.tasks.add.using(priority=given).enqueue(given, 0) for given in (0, -100, 100, 35, -35)]
    with shop.worker("--threads", "1", "--queue", "default"):
        shop.ended(later, *results)
    assert shop.lines() == ["add 100 0", "add 35 0", "add 0 0", "add -35 0", "add -100 0", "add 0 0"]
    assert later.started_at >= due


def test_a_task_of_a_transaction_that_rolls_back_never_runs(shop: Shop) -> None:
    class Undo(Exception):
        pass

    with pytest.raises(Undo), transaction.atomic():
        undone = shop.tasks.add.enqueue(1, 1)
        raise Undo
    with transaction.atomic():
        kept = shop.tasks.add.enqueue(2, 2)
        assert not shop.records.get(pk=kept.id).is_sent
    assert shop.records.get(pk=kept.id).is_sent
    with shop.worker():
        shop.ended(kept)
    assert shop.lines() == ["add 2 2"]
    assert not shop.records.filter(pk=undone.id).exists()


def test_a_killed_worker_loses_no_task_and_repeats_only_those_that_ran(shop: Shop) -> None:
    results = [shop.tasks.slow.enqueue(number, 0.3) for number in range(12)]
    with shop.worker("--threads", "2") as first:
        shop.wait(lambda: sum(line.startswith("end") for line in shop.lines()) >= 4)
        first.send_signal(signal.SIGKILL)
        first.wait()
    begun, ended = ({line.split()[1] for line in shop.lines() if line.startswith(word)} for word in ("begin", "end"))
    with shop.worker("--threads", "2"):
        shop.ended(*results)
    assert [result.return_value for result in results] == list(range(12))
    twice = {number for number in map(str, range(12)) if shop.lines().count(f"begin {number}") > 1}
    # One that ended just before the kill may have no result yet.
    assert begun - ended <= twice <= begun
    assert len(twice) <= 4
    assert {result.attempts for result in results} <= {1, 2}


def test_a_task_that_runs_while_its_message_is_delivered_again_is_not_run_twice(
    shop: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sprocket.contrib.django.worker import Worker

    delivered_again = lost_renewals(monkeypatch)
    held = shop.tasks.hold.enqueue(str(tmp_path / "file"))

    async def work() -> None:
        running = asyncio.create_task(Worker(shop.backend, ["default"], 2, "w").run())
        assert await asyncio.to_thread(delivered_again.wait, 60)
        last = await asyncio.to_thread(shop.tasks.add.enqueue, 1, 1)
        await asyncio.to_thread(shop.ended, last)
        (tmp_path / "file").touch()
        await asyncio.to_thread(shop.ended, held)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    asyncio.run(work())
    assert shop.lines() == ["begin", "add 1 1"]
    assert held.attempts == 1


def test_a_task_that_was_committed_but_not_sent_is_sent_by_a_worker(shop: Shop) -> None:
    left = shop.tasks.add.using(backend="down").enqueue(7, 7)
    record = shop.records.filter(pk=left.id)
    assert not record.get().is_sent
    assert shop.backend.send_left() == 0
    record.update(backend="default", enqueued_at=timezone.now() - timedelta(minutes=1))
    with shop.worker():
        shop.wait(lambda: record.get().status == "SUCCESSFUL")


def test_a_task_whose_process_dies_between_commit_and_send_is_sent_by_a_worker(shop: Shop) -> None:
    program = """
import os, signal
import django
django.setup()
from sprocket.contrib.django.backend import SprocketBackend
SprocketBackend.send = lambda backend, record: os.kill(os.getpid(), signal.SIGKILL)
from tests.contrib.django_shop.tasks import add
add.enqueue(9, 9)
"""
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == -signal.SIGKILL
    record = shop.records.filter(is_sent=False)
    assert record.update(enqueued_at=timezone.now() - timedelta(minutes=1)) == 1
    with shop.worker():
        shop.wait(lambda: shop.lines() == ["add 9 9"])


def test_a_message_that_is_no_task_becomes_a_dead_letter(shop: Shop) -> None:
    with sync.connect(shop.broker.namesrv) as mq, shop.worker():
        mq.producer().send(Message("django-default", b"\xff", priority=20))
        (dead,) = dead_letters(mq, "django-default", 1)
    assert (dead.body, dead.properties["DEAD_LETTER_REASON"]) == (b"\xff", "the message is not one of a task of Django")


def test_a_task_that_kills_its_workers_fails_in_the_end(shop: Shop) -> None:
    from sprocket.contrib.django.execution import WorkersDied, execute

    result = shop.tasks.add.enqueue(8, 8)
    record = shop.records.get(pk=result.id)
    execute(shop.backend, record.unique_key, 5, "w")
    result.refresh()
    assert result.errors[0].exception_class is WorkersDied
    # Its message comes once more, and the message of another run.
    execute(shop.backend, record.unique_key, 6, "w")
    execute(shop.backend, f"{record.pk}-2", 0, "w")
    assert shop.lines() == []


def test_failed_tasks_run_again_from_the_admin(shop: Shop, tmp_path: Path) -> None:
    from django.contrib.auth.models import User
    from django.test import Client

    failed = shop.tasks.fail_until.enqueue(str(tmp_path / "file"))
    client = Client()
    client.force_login(User.objects.create_superuser("root"))
    with shop.worker():
        shop.ended(failed)
        page = client.get("/admin/sprocket/taskrecord/?status__exact=FAILED").content.decode()
        assert failed.id in page
        assert "the file is not there" in client.get(f"/admin/sprocket/taskrecord/{failed.id}/change/").content.decode()
        (tmp_path / "file").touch()
        chosen = {"action": "run_again", "_selected_action": [failed.id]}
        assert client.post("/admin/sprocket/taskrecord/", chosen).status_code == 302
        shop.wait(lambda: shop.records.get(pk=failed.id).status == "SUCCESSFUL")
    assert shop.records.get(pk=failed.id).runs == 2


def test_the_outbox_is_written_in_the_transaction_and_relayed(shop: Shop) -> None:
    from sprocket.contrib.django import outbox
    from sprocket.contrib.django.models import OutboxRow

    with pytest.raises(IllegalArgument, match="no transaction is open"):
        outbox.add(Message("Orders", b"never"), key="k")
    with transaction.atomic():
        outbox.add(Message("Orders", b"1", properties={"x": "y"}), key="k")
        outbox.add(Message("Orders", b"2"))
    shop.broker.create_topic("Orders", 1)
    command = [*_COMMAND, "sprocket_outbox", "run", "-n", shop.broker.namesrv]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as relay:
        shop.wait(lambda: not OutboxRow.objects.exists())
        relay.terminate()
    assert relay.returncode == 0


def test_the_migration_is_that_of_the_models(shop: Shop) -> None:
    call_command("makemigrations", "--check", "--dry-run", verbosity=0)


def test_wrong_settings_say_what_is_allowed(shop: Shop) -> None:
    from sprocket.contrib.django.backend import SprocketBackend

    with pytest.raises(Exception, match=r"unknown options \['name_server'\]; allowed: \['namesrv'"):
        SprocketBackend("default", {"OPTIONS": {"name_server": "x"}})
    with pytest.raises(CommandError, match="has another backend"):
        call_command("sprocket_worker", backend="dummy")
