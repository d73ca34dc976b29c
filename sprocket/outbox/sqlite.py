"""Writes to the outbox in a transaction of Python's `sqlite3`."""

import sqlite3

from sprocket.client.message import Message
from sprocket.common.clock import Clock
from sprocket.outbox.row import new_row
from sprocket.outbox.statements import CREATE_SQLITE, INSERT


def create(connection: sqlite3.Connection) -> None:
    """Create the table unless it exists."""
    for statement in CREATE_SQLITE:
        connection.execute(statement)


def add(
    connection: sqlite3.Connection, message: Message, *, key: str | None = None, clock: Clock | None = None
) -> None:
    """Write `message` in the transaction of `connection`, which the caller commits.

    Messages of one topic and `key` are sent in the order of their commits.  Raises IllegalMessage, sqlite3.Error.
    """
    row = new_row(message, key, clock)
    connection.execute(INSERT.replace("$", "?"), tuple(row.values()))
