"""Publish what a database committed, and nothing else: a transactional outbox.

``python examples/outbox.py [name server]``: without an address it starts its own broker.

A row of the outbox is written in the transaction of the order that it tells of.  A relay, a process of its own, sends
the rows in sequence and marks them.  A relay that dies after a send and before its mark sends the row again after its
restart, under the same unique key, so that the consumer's deduplicator leaves it out.
"""

import asyncio
import os
import signal
import sqlite3
import sys
import tempfile
from contextlib import closing
from pathlib import Path

from cluster import name_server

import sprocket
from sprocket import ConsumeFrom, Deduplicator, Message, ReceivedMessage, SqliteClaims

STEPS = ["placed", "paid", "shipped"]
TABLES = """
CREATE TABLE orders (id TEXT PRIMARY KEY, step TEXT NOT NULL);
CREATE TABLE outbox (
    id INTEGER PRIMARY KEY AUTOINCREMENT, topic TEXT NOT NULL, sharding_key TEXT NOT NULL, body BLOB NOT NULL,
    is_sent INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX unsent ON outbox (id) WHERE NOT is_sent;
"""


def take_step(database: sqlite3.Connection, order: str, step: str, *, is_valid: bool = True) -> None:
    """Change the order and write what to publish, both or neither."""
    with database:  # commits, or rolls back if something is raised
        database.execute("INSERT OR REPLACE INTO orders VALUES (?, ?)", (order, step))
        row = "Outbox", order, f"{order} {step}".encode()
        database.execute("INSERT INTO outbox (topic, sharding_key, body) VALUES (?, ?, ?)", row)
        if not is_valid:
            raise ValueError(f"{order} cannot be {step}")


async def relay(namesrv: str, path: str, dies_at: int) -> None:
    """Send the outbox in sequence.  Run one relay for each outbox: two would mix the sequence.

    A real relay looks again every second.  This one ends when the outbox is empty.
    """
    with closing(sqlite3.connect(path)) as database:
        async with sprocket.connect(namesrv) as mq:
            unsent = "SELECT id, topic, sharding_key, body FROM outbox WHERE NOT is_sent ORDER BY id LIMIT 100"
            while rows := database.execute(unsent).fetchall():
                for number, topic, sharding_key, body in rows:
                    # One after the other: if a send fails, no later row may overtake it.
                    message = Message(topic, body, unique_key=f"outbox-{number}")
                    await mq.producer().send(message, sharding_key=sharding_key)
                    if number == dies_at:
                        os.kill(os.getpid(), signal.SIGKILL)
                    with database:
                        database.execute("UPDATE outbox SET is_sent = 1 WHERE id = ?", (number,))


async def run_relay(namesrv: str, path: Path, dies_at: int = 0) -> int:
    """Run a relay process to its end and return its exit status."""
    process = await asyncio.create_subprocess_exec(sys.executable, __file__, namesrv, "relay", str(path), str(dies_at))
    return await process.wait()


async def main(namesrv: str, folder: Path) -> None:
    path = folder / "shop.db"
    with closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA journal_mode = WAL")
        database.executescript(TABLES)
        for step in STEPS:
            for order in ("order-1", "order-2"):
                take_step(database, order, step)
        try:
            take_step(database, "order-1", "shipped to the moon", is_valid=False)
        except ValueError as error:
            print("rolled back:", error)

    print("the relay ended with", await run_relay(namesrv, path, dies_at=3))
    print("its successor ended with", await run_relay(namesrv, path))

    seen: list[str] = []
    async with sprocket.connect(namesrv) as mq, SqliteClaims(folder / "handled.db", group="shipping") as claims:
        consumer = mq.orderly_consumer("shipping", "Outbox", consume_from=ConsumeFrom.FIRST)
        deduplicator = Deduplicator(claims)

        def ship(message: ReceivedMessage) -> None:
            seen.append(message.body.decode())

        handle_once = deduplicator.once(ship)

        async def count(message: ReceivedMessage) -> None:
            await handle_once(message)
            if len(seen) + deduplicator.duplicates == 7:
                consumer.stop()

        await consumer.run(count)
    for order in ("order-1", "order-2"):
        steps = [text for text in seen if text.startswith(order)]
        assert steps == [f"{order} {step}" for step in STEPS], seen
        print("in sequence, each once:", ", ".join(steps))
    print("left out", deduplicator.duplicates)


if __name__ == "__main__":
    with name_server() as address:
        if len(sys.argv) > 2:
            asyncio.run(relay(address, sys.argv[3], int(sys.argv[4])))
        else:
            with tempfile.TemporaryDirectory() as temporary:
                asyncio.run(main(address, Path(temporary)))
