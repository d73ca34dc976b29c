"""Publish what a database committed, and nothing else: a transactional outbox.

``python examples/outbox.py [name server]``: without an address it starts its own broker.

A message is written in the transaction of the order that it tells of.  `sprocket outbox run` sends what was committed,
each message once and those of one order in sequence.  Here a relay is killed, and its successor goes on.  PostgreSQL,
SQLAlchemy and Django: docs/outbox.md.
"""

import asyncio
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from cluster import name_server

import sprocket
from sprocket import ConsumeFrom, Message, ReceivedMessage
from sprocket.outbox import sqlite as outbox

STEPS = ["placed", "paid", "shipped"]


def take_step(database: sqlite3.Connection, order: str, step: str, *, is_valid: bool = True) -> None:
    """Change the order and write what to publish, both or neither."""
    with database:  # commits, or rolls back if something is raised
        database.execute("INSERT OR REPLACE INTO orders VALUES (?, ?)", (order, step))
        outbox.add(database, Message("Outbox", f"{order} {step}".encode()), key=order)
        if not is_valid:
            raise ValueError(f"{order} cannot be {step}")


@contextmanager
def relay(namesrv: str, path: Path) -> Iterator[None]:
    command = [sys.executable, "-m", "sprocket_cli", "outbox", "run", "--database", f"sqlite:///{path}", "-n", namesrv]
    with subprocess.Popen([*command, "--lease-s", "6", "--log-level", "warning"], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            yield
        finally:
            process.kill()


async def main(namesrv: str, folder: Path) -> None:
    path = folder / "shop.db"
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE orders (id TEXT PRIMARY KEY, step TEXT NOT NULL)")
        outbox.create(database)
        for step in STEPS:
            for order in ("order-1", "order-2"):
                take_step(database, order, step)
        try:
            take_step(database, "order-1", "shipped to the moon", is_valid=False)
        except ValueError as error:
            print("rolled back:", error)

    with relay(namesrv, path):
        print("a relay was killed at work")

    seen: list[str] = []
    with relay(namesrv, path):
        async with sprocket.connect(namesrv) as mq:
            consumer = mq.orderly_consumer("shipping", "Outbox", consume_from=ConsumeFrom.FIRST)

            async def ship(message: ReceivedMessage) -> None:
                seen.append(message.body.decode())
                if len(seen) == 2 * len(STEPS):
                    consumer.stop()

            await consumer.run(ship)
    for order in ("order-1", "order-2"):
        steps = [text for text in seen if text.startswith(order)]
        assert steps == [f"{order} {step}" for step in STEPS], seen
        print("in sequence, each once:", ", ".join(steps))


if __name__ == "__main__":
    with name_server() as address, tempfile.TemporaryDirectory() as temporary:
        asyncio.run(main(address, Path(temporary)))
