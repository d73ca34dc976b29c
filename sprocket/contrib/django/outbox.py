"""Writes to the outbox in a transaction of Django."""

from django.db import connections, router

from sprocket.client.errors import IllegalArgument
from sprocket.client.message import Message
from sprocket.common.clock import Clock
from sprocket.contrib.django.models import OutboxRow
from sprocket.outbox.row import new_row
from sprocket.outbox.statements import NO_SLOTS, key_lock


def add(message: Message, *, key: str | None = None, using: str | None = None, clock: Clock | None = None) -> None:
    """Write `message` in the open transaction of the database `using`, or of the one that the router chooses.

    Messages of one topic and `key` are sent in the order of their commits: except in SQLite, a second transaction
    that writes the same key waits here for the end of the first.  Raises IllegalMessage; IllegalArgument outside
    `transaction.atomic` and for another database; django.db.DatabaseError.
    """
    alias = using or router.db_for_write(OutboxRow)
    connection = connections[alias]
    if not connection.in_atomic_block:
        raise IllegalArgument("no transaction is open; write to the outbox in `with transaction.atomic()`")
    row = new_row(message, key, clock)
    lock = key_lock(row, connection.vendor)
    if lock is not None:
        statement, value = lock
        with connection.cursor() as cursor:
            cursor.execute(statement.replace("$1", "%s"), [value])
            if cursor.fetchone() is None:
                raise IllegalArgument(NO_SLOTS)
    OutboxRow.objects.using(alias).create(**row)
