"""Publish what PostgreSQL committed, and nothing else: a transactional outbox for many writers, with two relays.

``python examples/outbox_postgres.py NAME_SERVER postgresql://user@host/database``; needs asyncpg (extra `postgresql`).
It works in a schema of its own, which it drops in the end.

A row of the outbox is written in the transaction of the order that it tells of.  The transaction changes the order
first, which locks the order: so the rows of one order have numbers in the sequence of its commits, with any number of
writers.  A relay sends the rows by number and marks them.  A commit wakes the relay with NOTIFY.

An advisory lock lets one relay work.  The other one waits, and goes on when the first relay's connection ends.  A relay
that dies after a send and before its mark leaves a row that its successor sends again, under the same unique key.  The
consumer's deduplicator leaves it out.
"""

import asyncio
import os
import signal
import sys
from typing import TypeAlias

import asyncpg
from cluster import name_server

import sprocket
from sprocket import ConsumeFrom, Deduplicator, Message, PostgresClaims, ReceivedMessage

STEPS = ["placed", "paid", "shipped"]
ORDERS = ["order-1", "order-2", "order-3"]
# Any number that other programs are not likely to lock.
RELAY_LOCK = 7_205_759_403
LOCKED = "SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND granted AND objid = $1::bigint::oid)"
SCHEMA = """
DROP SCHEMA IF EXISTS outbox_example CASCADE;
CREATE SCHEMA outbox_example;
CREATE TABLE outbox_example.orders (id text PRIMARY KEY, step text NOT NULL);
CREATE TABLE outbox_example.outbox (
    id bigserial PRIMARY KEY, topic text NOT NULL, sharding_key text NOT NULL, body bytea NOT NULL,
    is_sent boolean NOT NULL DEFAULT false
);
CREATE INDEX unsent ON outbox_example.outbox (id) WHERE NOT is_sent;
"""
UNSENT = "SELECT id, topic, sharding_key, body FROM outbox_example.outbox WHERE NOT is_sent ORDER BY id LIMIT 100"
Database: TypeAlias = asyncpg.Connection


async def take_step(database: Database, order: str, step: str, *, is_valid: bool = True) -> None:
    """Change the order and write what to publish, both or neither."""
    async with database.transaction():
        put = "INSERT INTO outbox_example.orders VALUES ($1, $2) ON CONFLICT (id) DO UPDATE SET step = excluded.step"
        await database.execute(put, order, step)  # locks the order until the commit
        row = "INSERT INTO outbox_example.outbox (topic, sharding_key, body) VALUES ('PostgresOutbox', $1, $2)"
        await database.execute(row, order, f"{order} {step}".encode())
        await database.execute("NOTIFY outbox_example")  # sent with the commit
        if not is_valid:
            raise ValueError(f"{order} cannot be {step}")


async def relay(namesrv: str, url: str, dies_after: int) -> None:
    """Send the outbox in sequence, until the process is stopped."""
    database = await asyncpg.connect(url)
    news = asyncio.Event()
    await database.add_listener("outbox_example", lambda *_: news.set())
    await database.execute("SELECT pg_advisory_lock($1)", RELAY_LOCK)  # until this connection ends
    sent = 0
    async with sprocket.connect(namesrv) as mq:
        while True:
            news.clear()  # before the look: what is committed after it sets the event again
            rows = await database.fetch(UNSENT)
            for number, topic, sharding_key, body in rows:
                # One after the other: if a send fails, no later row may overtake it.
                message = Message(topic, body, unique_key=f"outbox-{number}")
                await mq.producer().send(message, sharding_key=sharding_key)
                sent += 1
                if sent == dies_after:
                    os.kill(os.getpid(), signal.SIGKILL)
                await database.execute("UPDATE outbox_example.outbox SET is_sent = true WHERE id = $1", number)
            if not rows:
                await news.wait()


async def start_relay(namesrv: str, url: str, dies_after: int = 0) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(sys.executable, __file__, namesrv, url, "relay", str(dies_after))


async def write(url: str, order: str) -> None:
    """Take all steps of `order`, beside other writers."""
    database = await asyncpg.connect(url)
    for step in STEPS:
        await take_step(database, order, step)
    await database.close()


async def consume(namesrv: str, url: str) -> None:
    """Handle the messages, each once, until all have come and one came twice."""
    seen: list[str] = []
    async with (
        sprocket.connect(namesrv) as mq,
        PostgresClaims(url, group="pg-shipping", table="outbox_example.claims") as claims,
    ):
        consumer = mq.orderly_consumer("pg-shipping", "PostgresOutbox", consume_from=ConsumeFrom.FIRST)
        deduplicator = Deduplicator(claims)

        def ship(message: ReceivedMessage) -> None:
            seen.append(message.body.decode())

        handle_once = deduplicator.once(ship)

        async def count(message: ReceivedMessage) -> None:
            await handle_once(message)
            if len(seen) == len(ORDERS) * len(STEPS) and deduplicator.duplicates:
                consumer.stop()

        await consumer.run(count)
    for order in ORDERS:
        steps = [text for text in seen if text.startswith(order)]
        assert steps == [f"{order} {step}" for step in STEPS], seen
        print("in sequence, each once:", ", ".join(steps))
    print("left out", deduplicator.duplicates)


async def main(namesrv: str, url: str) -> None:
    database = await asyncpg.connect(url)
    await database.execute(SCHEMA)
    first = await start_relay(namesrv, url, dies_after=4)
    # The low half of the number is the `objid`.  PostgreSQL tells nobody of a lock, so ask.
    while not await database.fetchval(LOCKED, RELAY_LOCK & 0xFFFFFFFF):  # noqa: ASYNC110
        await asyncio.sleep(0.05)
    second = await start_relay(namesrv, url)
    try:
        try:
            await take_step(database, "order-1", "shipped to the moon", is_valid=False)
        except ValueError as error:
            print("rolled back:", error)
        await asyncio.gather(*(write(url, order) for order in ORDERS))
        await consume(namesrv, url)
    finally:
        for process in (first, second):
            if process.returncode is None:
                process.terminate()
        print("the relays ended with", sorted([await first.wait(), await second.wait()]))
        await database.execute("DROP SCHEMA outbox_example CASCADE")
        await database.close()


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit("pass the address of a name server and the URL of a PostgreSQL database")
    with name_server() as address:
        if len(sys.argv) > 3:
            asyncio.run(relay(address, sys.argv[2], int(sys.argv[4])))
        else:
            asyncio.run(main(address, sys.argv[2]))
