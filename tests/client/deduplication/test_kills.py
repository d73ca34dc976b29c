"""SIGKILL of consumers between commit and acknowledgement, and of the servers that hold the claims."""

import asyncio
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from sprocket import Claim, ClaimStore, Deduplicator, Message, PostgresClaims, Producer, RedisClaims
from sprocket.testing import Broker
from tests.client.deduplication import consumer_program
from tests.client.deduplication.databases import DatabaseMissingError, Postgres, Redis
from tests.waiting import until

_numbers = count()
# More than a consumer handles at the same time, so that the first leaves some to the second.
_MESSAGES = 60


@pytest.fixture(params=["sqlite", "redis", "postgres"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, str]:
    """Kind and place of a store that processes share."""
    if request.param == "sqlite":
        return request.param, str(tmp_path / "claims.db")
    return request.param, request.getfixturevalue(f"{request.param}_url")


async def test_what_a_killed_consumer_committed_is_not_handled_again(
    shared_broker: Broker, topic: str, store: tuple[str, str], tmp_path: Path
) -> None:
    async with Producer("g", shared_broker.namesrv) as producer:
        for number in range(_MESSAGES):
            await producer.send(Message(topic, b"%d" % number))
    log = tmp_path / "log"
    words = [shared_broker.namesrv, topic, f"group-{topic}", *store, str(log)]

    @contextmanager
    def consumer(deadly: str = "", limit: int = 0) -> Iterator[subprocess.Popen[bytes]]:
        process = subprocess.Popen([sys.executable, consumer_program.__file__, *words, deadly, str(limit)])
        try:
            yield process
        finally:
            process.kill()
            process.wait()

    def lines() -> list[tuple[str, str]]:
        # The end of a killed process's log is a whole line: each is one write.
        return [(event, body) for event, _, body in (line.partition(" ") for line in log.read_text().splitlines())]

    settled = {"committed", "duplicate"}
    # The first dies after ten commits, the second between the effect of a message and its commit; the third survives.
    with consumer(limit=10) as process:
        await until(lambda: process.poll() == -signal.SIGKILL)
    assert [event for event, _ in lines()].count("committed") == 10
    deadly = min({f"{number}" for number in range(_MESSAGES)} - {body for _, body in lines()})
    with consumer(deadly) as process:
        await until(lambda: process.poll() == -signal.SIGKILL)
    with consumer() as process:
        while len({body for event, body in lines() if event in settled}) < _MESSAGES:
            assert process.poll() is None
            await asyncio.sleep(0.05)

    committed: set[str] = set()
    for event, body in lines():
        assert event != "handled" or body not in committed, f"{body} was handled again: {lines()}"
        if event == "committed":
            committed.add(body)
    events = Counter(event for event, _ in lines())
    assert events["duplicate"] >= 10
    # What was handled without a commit is handled again: nothing is lost.
    assert lines().count(("handled", deadly)) >= 2
    assert deadly in committed
    assert {body for event, body in lines() if event == "handled"} == {f"{number}" for number in range(_MESSAGES)}


@pytest.fixture(params=[Redis, Postgres])
def database(request: pytest.FixtureRequest) -> Iterator[Redis | Postgres]:
    try:
        server = request.param()
    except DatabaseMissingError as missing:
        pytest.skip(str(missing))
    with server:
        server.start()
        yield server


def claims_of(database: Redis | Postgres, **settings: Any) -> RedisClaims | PostgresClaims:
    kind = RedisClaims if isinstance(database, Redis) else PostgresClaims
    return kind(database.url, group="g", **settings)


class Delivered:
    """Message that a broker delivers in several copies."""

    topic = "T"

    def __init__(self, message_id: str) -> None:
        self.message_id = message_id


async def test_what_was_committed_before_a_kill_of_the_server_stays_handled(database: Redis | Postgres) -> None:
    async with claims_of(database) as claims:
        for number in range(20):
            assert await claims.claim(f"k{number}", "a") is Claim.MINE
            assert await claims.commit(f"k{number}", "a")
        database.kill()
        with pytest.raises(Exception):  # noqa: B017 - each library has its own
            await claims.claim("l", "a")
        await asyncio.to_thread(database.start)
        assert await asked_until_it_answers(claims, "k0") is Claim.HANDLED
        assert [await claims.claim(f"k{number}", "b") for number in range(20)] == [Claim.HANDLED] * 20


async def asked_until_it_answers(claims: ClaimStore, key: str) -> Claim:
    """A pool may hold connections to the server that is gone; each may fail once."""
    while True:
        try:
            return await claims.claim(key, "b")
        except Exception:
            await asyncio.sleep(0.05)


async def test_a_kill_of_the_server_at_work_makes_nothing_handled_twice(database: Redis | Postgres) -> None:
    handled: Counter[str] = Counter()
    killed = asyncio.Event()

    async def handler(message: Delivered) -> None:
        handled[message.message_id] += 1
        if len(handled) == 40:
            database.kill()
            killed.set()
        await asyncio.sleep(0)

    async def restart() -> None:
        await killed.wait()
        await asyncio.to_thread(database.start)

    async with claims_of(database) as first, claims_of(database) as second:
        # Two members.  Each gets a copy of each message, eight at a time.
        members = [Deduplicator(first), Deduplicator(second)]
        free = asyncio.Semaphore(16)

        async def deliver(member: Deduplicator, number: int) -> None:
            async with free:
                await member.once(handler)(Delivered(f"{number}"))

        restarting = asyncio.create_task(restart())
        await asyncio.gather(*(deliver(member, number) for number in range(150) for member in members))
        await restarting
    assert handled == Counter({f"{number}": 1 for number in range(150)})
    assert sum(member.duplicates for member in members) == 150
    assert sum(member.lost_claims for member in members) == 0
