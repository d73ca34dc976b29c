"""Relays as processes: each row once and in order, whatever kills them; rows that brokers refuse; metrics."""

import asyncio
import json
import os
import signal
import sqlite3
import subprocess
import urllib.request
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from pathlib import Path

import pytest
from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool

import sprocket
from sprocket import ConsumeFrom, Message, SendSettings
from sprocket.outbox import sqlalchemy as outbox
from sprocket.outbox import sqlite as with_sqlite
from sprocket.outbox.database import DatabaseUnusable, SqliteDatabase, open_database
from sprocket.outbox.relay import Relay, RelaySettings, status_of
from sprocket.outbox.row import FAILED_MS, OutboxRow
from sprocket.testing import Broker
from tests.client.deduplication.databases import Postgres
from tests.clock import ManualClock
from tests.outbox.urls import async_url, sync_url
from tests.sprocket_cli.programs import COMMAND
from tests.waiting import until

_KEYS = [f"order-{number}" for number in range(6)]
_STEPS = 30


async def write(url: str, topic: str, key: str, first: int = 0, last: int = _STEPS) -> None:
    """Write steps of one key, each in a transaction of its own; every third is rolled back."""
    engine = create_async_engine(async_url(url), poolclass=NullPool)
    for step in range(first, last):
        for is_kept in (False, True) if step % 3 == 0 else (True,):
            async with engine.connect() as connection:
                text = f"{key} {step}" if is_kept else f"{key} never"
                await outbox.add_async(connection, Message(topic, text.encode()), key=key)
                await (connection.commit() if is_kept else connection.rollback())
    await engine.dispose()


@contextmanager
def relaying(url: str, namesrv: str, log: Path, *more: str, dies: str = "") -> Iterator["subprocess.Popen[str]"]:
    words = [*COMMAND, "outbox", "run", "--database", url, "-n", namesrv, "--poll-ms", "20", "--json", *more]
    environment = os.environ | {"SPROCKET_FAILPOINTS": dies}
    with log.open("ab") as into:
        process = subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, stderr=into, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def asked(url: str, *words: str) -> str:
    """Return what `sprocket outbox` prints."""
    done = subprocess.run([*COMMAND, "outbox", *words, "--database", url], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def read(address: str) -> str:
    with urllib.request.urlopen(address) as page:
        return str(page.read(), "utf-8")


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    """URL of a database with the table."""
    path = tmp_path / "shop.db"
    with closing(sqlite3.connect(path)) as connection:
        with_sqlite.create(connection)
    return f"sqlite:///{path}"


def add(url: str, message: Message) -> None:
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection, connection:
        with_sqlite.add(connection, message)


@asynccontextmanager
async def relay_of(url: str, namesrv: str, settings: RelaySettings, clock: ManualClock) -> AsyncIterator[Relay]:
    """A relay whose turns the test takes."""
    mq = sprocket.connect(namesrv)
    relay = Relay(open_database(url), mq, settings, clock)
    await mq.start()
    try:
        yield relay
    finally:
        await relay.stop()


async def create(url: str) -> None:
    database = open_database(url)
    await database.create()
    await database.close()


async def waiting(url: str) -> int:
    database = open_database(url)
    try:
        return (await status_of(database, 0)).rows
    finally:
        await database.close()


async def emptied(url: str, limit_s: float = 60.0) -> None:
    async with asyncio.timeout(limit_s):
        while await waiting(url):
            await asyncio.sleep(0.05)


async def received(namesrv: str, topic: str, number: int) -> dict[str, list[int]]:
    """Return the steps of each key in the order of its queue, once `number` messages have come."""
    found: dict[str, list[int]] = defaultdict(list)
    async with sprocket.connect(namesrv) as mq:
        consumer = mq.orderly_consumer(f"g-{topic}", topic, consume_from=ConsumeFrom.FIRST)

        async def take(message: sprocket.ReceivedMessage) -> None:
            key, _, step = message.body.decode().partition(" ")
            found[key].append(int(step))
            if sum(map(len, found.values())) == number:
                asyncio.get_running_loop().call_later(0.5, consumer.stop)  # a double would follow

        await asyncio.wait_for(consumer.run(take), 60)
    return found


async def test_relays_that_are_killed_at_every_step_send_each_row_once_and_in_order(
    url: str, topic: str, broker: Broker, tmp_path: Path
) -> None:
    await create(url)
    log = tmp_path / "log"
    deaths = {
        "late-0": "outbox.after_lease=kill@2",
        "late-1": "outbox.after_send=kill@9",
        "late-2": "outbox.after_delete=kill@2",
    }
    steps = dict.fromkeys(_KEYS, _STEPS) | dict.fromkeys(deaths, 0)
    short = ("--batch", "7", "--lease-s", "6")
    writers = asyncio.gather(*(write(url, topic, key) for key in _KEYS))
    # Another relay is at work all the time, and takes over from the dead.
    with relaying(url, broker.namesrv, log, *short) as survivor:
        for key, death in deaths.items():
            with relaying(url, broker.namesrv, log, *short, dies=death) as relay:
                # The other relay must not have all rows before this one has enough of them to die.
                async with asyncio.timeout(60):
                    while relay.poll() is None:
                        await write(url, topic, key, steps[key], steps[key] + 3)
                        steps[key] += 3
                assert relay.returncode == -signal.SIGKILL, log.read_text()
            await write(url, topic, key, steps[key], steps[key] + 3)
            steps[key] += 3
        await writers
        await emptied(url)
        survivor.send_signal(signal.SIGTERM)
        assert survivor.wait(60) == 0, log.read_text()
    found = await received(broker.namesrv, topic, sum(steps.values()))
    assert found == {key: list(range(number)) for key, number in steps.items()}


@pytest.mark.timeout(180)
async def test_brokers_and_databases_that_are_killed_lose_no_row_and_repeat_none(
    postgres: Postgres, postgres_url: str, tmp_path: Path
) -> None:
    log, steps = tmp_path / "log", 0
    await create(postgres_url)
    with (
        Broker(tmp_path / "broker", properties={"flushDiskType": "SYNC_FLUSH"}) as broker,
        relaying(postgres_url, broker.namesrv, log, "--batch", "7", "--lease-s", "6") as relay,
    ):
        broker.create_topic("Orders", 4)
        for server in (broker, postgres, broker, postgres):
            await asyncio.gather(*(write(postgres_url, "Orders", key, steps, steps + 12) for key in _KEYS))
            steps += 12
            await asyncio.to_thread(server.kill)
            await asyncio.to_thread(server.start)
        await emptied(postgres_url)
        relay.send_signal(signal.SIGTERM)
        assert relay.wait(60) == 0, log.read_text()
        found = await received(broker.namesrv, "Orders", steps * len(_KEYS))
    assert found == {key: list(range(steps)) for key in _KEYS}


async def test_a_row_that_no_broker_takes_fails_and_stops_its_own_key_alone(
    url: str, topic: str, broker: Broker, tmp_path: Path
) -> None:
    await create(url)
    engine = create_engine(sync_url(url), poolclass=NullPool)
    with engine.begin() as connection:
        outbox.add(connection, Message(topic, b"bad 0", properties={"n": "x" * 40_000}), key="bad")
        outbox.add(connection, Message(topic, b"bad 1"), key="bad")
        outbox.add(connection, Message(topic, b"good 0"), key="good")
        outbox.add(connection, Message(topic, b"free 0"))

    def command(*words: str) -> str:
        return asked(url, *words)

    with relaying(url, broker.namesrv, tmp_path / "log", "--max-attempts", "1", "--metrics-port", "0") as relay:
        assert relay.stdout is not None
        port = json.loads(relay.stdout.readline())["metricsPort"]
        async with asyncio.timeout(60):
            while await waiting(url) > 2:
                await asyncio.sleep(0.05)
        (row,) = json.loads(command("status", "--json"))["failedRows"]
        assert (row["key"], row["attempts"]) == ("bad", 1)
        page = await asyncio.to_thread(read, f"http://127.0.0.1:{port}/metrics")
        assert "sprocket_outbox_lag_messages{} 2.0" in page
        assert "sprocket_outbox_failed_messages{} 1.0" in page
        command("retry", str(row["id"]))
        async with asyncio.timeout(60):
            while "failed 1" not in command("status"):
                await asyncio.sleep(0.05)
        command("discard", str(row["id"]))
        await emptied(url)
    assert await received(broker.namesrv, topic, 3) == {"good": [0], "free": [0], "bad": [1]}


async def test_a_row_that_was_leased_before_is_looked_up_when_brokers_have_forgotten_its_id(
    topic: str, sqlite_url: str, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    with Broker(tmp_path_factory.mktemp("forgetful"), properties={"idempotenceMaxIds": "1"}) as broker:
        broker.create_topic(topic, 1)
        clock = ManualClock()
        await write(sqlite_url, topic, "order", 0, 5)
        async with relay_of(sqlite_url, broker.namesrv, RelaySettings(), clock) as relay:
            with sqlite3.connect(tmp_path / "shop.db") as copy:
                rows = copy.execute("SELECT * FROM sprocket_outbox").fetchall()
            assert await relay.turn() == 5
            # As if the relay had died before it deleted the rows.
            with sqlite3.connect(tmp_path / "shop.db") as copy:
                copy.executemany(f"INSERT INTO sprocket_outbox VALUES ({','.join('?' * 11)})", rows)
                copy.execute("UPDATE sprocket_outbox SET first_leased_ms = 1")
            await write(sqlite_url, topic, "order", 5, 6)
            clock.advance(1)
            assert await relay.turn() == 6
        assert await received(broker.namesrv, topic, 6) == {"order": list(range(6))}


async def test_a_refused_row_waits_longer_each_time_until_it_has_failed(
    topic: str, broker: Broker, sqlite_url: str
) -> None:
    clock = ManualClock()
    async with relay_of(sqlite_url, broker.namesrv, RelaySettings(max_attempts=3), clock) as relay:
        add(sqlite_url, Message(topic, b"-", properties={"n": "x" * 40_000}))
        for pause_s in (1, 2):
            assert await relay.turn() == 1
            clock.advance(pause_s - 0.001)
            assert await relay.turn() == 0
            clock.advance(0.001)
        assert await relay.turn() == 1
    assert "  -  failed, refused 3 times: " in asked(sqlite_url, "status")


async def test_many_failed_rows_hide_none_that_wait(sqlite_url: str) -> None:
    await create(sqlite_url)
    for _ in range(103):
        add(sqlite_url, Message("Absent", b"-"))
    with closing(sqlite3.connect(sqlite_url.removeprefix("sqlite:///"))) as database, database:
        database.execute("UPDATE sprocket_outbox SET error = 'refused', available_ms = ?", (FAILED_MS,))
        database.execute("UPDATE sprocket_outbox SET available_ms = 1 WHERE id > 101")
    shown = json.loads(asked(sqlite_url, "status", "--json"))
    assert (len(shown["failedRows"]), [row["id"] for row in shown["waitingRows"]]) == (100, [102, 103])
    assert (shown["lagMessages"], shown["failed"]) == (103, 101)


async def test_rows_that_wait_say_why_in_one_line_of_the_log(
    sqlite_url: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "sprocket.outbox.relay")
    clock = ManualClock()
    with Broker(tmp_path / "broker", properties={"autoCreateTopicEnable": "false"}) as broker:
        async with relay_of(sqlite_url, broker.namesrv, RelaySettings(), clock) as relay:
            for _ in range(3):
                add(sqlite_url, Message("Absent", b"-"))
            assert await relay.turn() == 0
            told = asked(sqlite_url, "status")
            assert told.count("waiting, refused 0 times: topic Absent has no route") == 3
            broker.create_topic("Absent", 1)
            async with asyncio.timeout(60):
                while await waiting(sqlite_url):
                    clock.advance(1)
                    await relay.turn()
    begin, end = (record.message for record in caplog.records if record.name == "sprocket.outbox.relay")
    assert begin.startswith("event=outbox_rows_wait topic=Absent reason='topic Absent has no route")
    assert end.startswith("event=outbox_rows_sent_again topic=Absent after_s=")


async def test_a_row_that_brokers_have_already_ends_an_outage_too(
    sqlite_url: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "sprocket.outbox.relay")
    clock, message = ManualClock(), Message("Absent", b"-", unique_key="mine")
    with Broker(tmp_path / "broker", properties={"autoCreateTopicEnable": "false"}) as broker:
        async with relay_of(sqlite_url, broker.namesrv, RelaySettings(), clock) as relay:
            add(sqlite_url, message)
            assert await relay.turn() == 0
            broker.create_topic("Absent", 1)
            async with sprocket.connect(broker.namesrv) as mq:
                await mq.producer(settings=SendSettings(idempotent=True)).send(message)
            async with asyncio.timeout(60):
                while await waiting(sqlite_url):
                    clock.advance(1)
                    await relay.turn()
    assert [record.message.split()[0] for record in caplog.records if record.name == "sprocket.outbox.relay"] == [
        "event=outbox_rows_wait", "event=outbox_rows_sent_again",
    ]  # fmt: skip


def test_a_database_that_is_not_there_is_named_and_not_made(tmp_path: Path) -> None:
    path = tmp_path / "typo.db"
    done = subprocess.run(
        [*COMMAND, "outbox", "status", "--database", f"sqlite:///{path}"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, path.exists()) == (1, False)
    assert f"database {path}: no such file; mend the path" in done.stderr


class _Away(SqliteDatabase):
    """A database that refuses its first ten claims."""

    claims = 0

    async def claim(self, until_ms: int, now_ms: int, limit: int) -> list[OutboxRow]:
        self.claims += 1
        if self.claims <= 10:
            raise DatabaseUnusable("it is away")
        return await super().claim(until_ms, now_ms, limit)


async def test_the_begin_and_the_end_of_an_outage_of_the_database_are_logged_once(
    broker: Broker, sqlite_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "sprocket.outbox.relay")
    settings = RelaySettings(poll_interval_s=0.001)
    relay = Relay(
        _Away(sqlite_url.removeprefix("sqlite:///")), sprocket.connect(broker.namesrv), settings, ManualClock()
    )
    await relay.start()
    await until(lambda: "outbox_reachable" in caplog.text)
    await relay.stop()
    begin, end = (record.message for record in caplog.records if record.name == "sprocket.outbox.relay")
    assert begin == "event=outbox_unreachable reason='it is away'"
    assert end == "event=outbox_reachable after_s=0.0 failures=10"
