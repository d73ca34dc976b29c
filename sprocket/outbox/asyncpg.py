"""Writes to the outbox in a transaction of asyncpg."""

from typing import Any

from sprocket.client.errors import IllegalArgument
from sprocket.client.message import Message
from sprocket.common.clock import Clock
from sprocket.outbox.row import new_row
from sprocket.outbox.statements import INSERT, key_lock


async def add(connection: Any, message: Message, *, key: str | None = None, clock: Clock | None = None) -> None:
    """Write `message` in the transaction of `connection`, a connection of asyncpg.

    Messages of one topic and `key` are sent in the order of their commits: a second transaction that writes the same
    key waits here for the end of the first.  Raises IllegalMessage, IllegalArgument outside a transaction,
    asyncpg.PostgresError.
    """
    if not connection.is_in_transaction():
        raise IllegalArgument("no transaction is open; write to the outbox in `async with connection.transaction()`")
    row = new_row(message, key, clock)
    lock = key_lock(row, "postgresql")
    if lock is not None:
        await connection.execute(*lock)
    await connection.execute(INSERT, *row.values())
