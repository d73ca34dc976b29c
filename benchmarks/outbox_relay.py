"""Rows of an outbox that one relay sends per second, beside plain sends: ``python -m benchmarks.outbox_relay``.

All in one run, by turns: a relay over a full table of each kind of database, and as controls the same messages sent
by the same kind of client from memory, as many at once as the relay leases, plainly and by an idempotent producer.
The rows have 1,000 keys; `--keys 0` is none, `--keys 1` has all rows in one order.  A server of PostgreSQL or MariaDB
is one of Debian's packages; without it its line is missing.
"""

import argparse
import asyncio
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from sprocket import Message, SendSettings, connect
from sprocket.common.clock import SystemClock
from sprocket.common.event_loops import run
from sprocket.outbox.database import Database, open_database
from sprocket.outbox.relay import Relay, RelaySettings, status_of
from sprocket.outbox.row import new_row
from sprocket.outbox.statements import INSERT
from sprocket.testing import Broker
from tests.client.deduplication.databases import DatabaseMissingError, MariaDb, Postgres

_TOPIC: Final = "Outbox"
_SETTINGS: Final = RelaySettings()
_BODY: Final = b"x" * 128


@contextmanager
def sqlite() -> Iterator[str]:
    with tempfile.NamedTemporaryFile(suffix=".db") as file:
        yield f"sqlite:///{file.name}"


@contextmanager
def postgresql() -> Iterator[str]:
    with Postgres() as server:
        server.start()
        yield server.url


@contextmanager
def mysql() -> Iterator[str]:
    with MariaDb() as server:
        server.create("outbox")
        yield server.url("outbox")


def messages(count: int, keys: int) -> Iterator[tuple[Message, str | None]]:
    """Yield messages with their keys."""
    for number in range(count):
        yield Message(_TOPIC, _BODY), f"key-{number % keys}" if keys else None


async def filled(database: Database, count: int, keys: int) -> None:
    await database.create()
    await database.execute_many(
        INSERT, [tuple(new_row(message, key, None).values()) for message, key in messages(count, keys)]
    )


async def relayed_s(url: str, namesrv: str, count: int, keys: int) -> float:
    """Return the seconds in which a relay empties the table."""
    database = open_database(url)
    await filled(database, count, keys)
    relay = Relay(open_database(url), connect(namesrv), _SETTINGS, SystemClock())
    began = time.perf_counter()
    await relay.start()
    while (await status_of(database, 0)).rows:  # noqa: ASYNC110 (a table has no event)
        await asyncio.sleep(0.02)
    elapsed = time.perf_counter() - began
    await relay.stop()
    await database.close()
    return elapsed


async def sent_s(namesrv: str, count: int, keys: int, *, idempotent: bool) -> float:
    """Return the seconds of the same sends from memory."""
    async with connect(namesrv) as mq:
        producer = mq.producer(settings=SendSettings(idempotent=idempotent))
        await producer.send(Message(_TOPIC, _BODY))
        every = list(messages(count, keys))
        began = time.perf_counter()
        for first in range(0, count, _SETTINGS.batch_rows):
            by_key: dict[object, list[Message]] = {}
            for number, (message, key) in enumerate(every[first : first + _SETTINGS.batch_rows]):
                by_key.setdefault(number if key is None else key, []).append(message)

            async def in_order(key: object, some: list[Message]) -> None:
                for message in some:
                    await producer.send(message, sharding_key=key if isinstance(key, str) else None)

            await asyncio.gather(*(in_order(key, some) for key, some in by_key.items()))
        return time.perf_counter() - began


def main() -> None:
    """Print rows per second, medians of the rounds, and ratios to the idempotent sends."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--keys", type=int, default=1_000)
    options = parser.parse_args()
    found: dict[str, list[float]] = {}
    with Broker() as broker:
        broker.create_topic(_TOPIC, 8)
        for _ in range(options.rounds):
            for kind in (sqlite, postgresql, mysql):
                try:
                    with kind() as url:
                        seconds = run(relayed_s(url, broker.namesrv, options.rows, options.keys))
                except DatabaseMissingError as missing:
                    print(f"{kind.__name__}: {missing}")
                    continue
                found.setdefault(f"relay, {kind.__name__}", []).append(options.rows / seconds)
            for name, idempotent in (("idempotent sends", True), ("plain sends", False)):
                seconds = run(sent_s(broker.namesrv, options.rows, options.keys, idempotent=idempotent))
                found.setdefault(name, []).append(options.rows / seconds)
    control = statistics.median(found["idempotent sends"])
    for name, rates in found.items():
        rate = statistics.median(rates)
        print(f"{name:18} {rate:8,.0f} rows/s  {rate / control:.2f}  ({', '.join(f'{each:,.0f}' for each in rates)})")


if __name__ == "__main__":
    main()
