"""Writes to the outbox in a transaction of SQLAlchemy: PostgreSQL, MySQL and MariaDB with any driver, and SQLite."""

from typing import TYPE_CHECKING, Final

from sprocket.client.errors import IllegalArgument
from sprocket.client.message import Message
from sprocket.common.clock import Clock
from sprocket.common.extras import missing_package
from sprocket.outbox.row import new_row
from sprocket.outbox.statements import CREATE_LOCKS, LOCKS, NO_SLOTS, TABLE, key_lock

try:
    import sqlalchemy as sa
    from sqlalchemy.dialects import mysql
except ModuleNotFoundError as error:
    raise ImportError(missing_package(error, "sprocket.outbox.sqlalchemy") or str(error), name=error.name) from error

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession
    from sqlalchemy.orm import Session


_MYSQL: Final = ("mysql", "mariadb")


def _text(max_chars: int) -> sa.types.TypeEngine[str]:
    return sa.String(max_chars).with_variant(mysql.VARCHAR(max_chars, collation="utf8mb4_bin"), *_MYSQL)


def outbox_table(metadata: sa.MetaData, *, with_locks: bool = False) -> sa.Table:
    """Return the table as part of `metadata`, for `create_all` and migrations of Alembic.

    MySQL needs the table of locks, too: `create_all` makes it, and with `with_locks` it is in `metadata`, so that
    `alembic revision --autogenerate` creates it.  Its rows are inserted by `create_all`, or by a relay that starts.
    """
    number, long_text = sa.BigInteger(), sa.Text().with_variant(mysql.LONGTEXT(), *_MYSQL)
    table = sa.Table(
        TABLE,
        metadata,
        # SQLite numbers rows by itself in a column of type INTEGER alone.
        sa.Column("id", number.with_variant(sa.Integer(), "sqlite"), primary_key=True, autoincrement=True),
        sa.Column("topic", _text(255), nullable=False),
        sa.Column("ordering_key", _text(255)),
        sa.Column("body", sa.LargeBinary().with_variant(mysql.LONGBLOB(), *_MYSQL), nullable=False),
        sa.Column("attributes", long_text, nullable=False),
        sa.Column("unique_key", _text(255), nullable=False),
        *(sa.Column(name, number, nullable=False) for name in ("created_ms", "available_ms", "first_leased_ms")),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("error", sa.Text(), nullable=False),
        sa.Index(f"{TABLE}_key", "topic", "ordering_key", "id"),
        sqlite_autoincrement=True,
        mysql_engine="InnoDB",
        mysql_charset="utf8mb4",
        mariadb_engine="InnoDB",
        mariadb_charset="utf8mb4",
    )
    locks = table
    if with_locks:
        slot = sa.Column("slot", sa.Integer(), primary_key=True, autoincrement=False)
        locks = sa.Table(LOCKS, metadata, slot, mysql_engine="InnoDB", mariadb_engine="InnoDB")
    sa.event.listen(locks, "after_create", _create_locks)
    return table


def _create_locks(_table: sa.Table, connection: sa.Connection, **_more: object) -> None:
    if connection.dialect.name in _MYSQL:
        for statement in CREATE_LOCKS:
            connection.execute(sa.text(statement))


_ROWS = outbox_table(sa.MetaData())


def add(
    session: "Session | sa.Connection", message: Message, *, key: str | None = None, clock: Clock | None = None
) -> None:
    """Write `message` in the transaction of `session`.

    Messages of one topic and `key` are sent in the order of their commits: except in SQLite, a second transaction
    that writes the same key waits here for the end of the first.  Raises IllegalMessage; IllegalArgument for another
    database, and for MySQL without the table of locks; SQLAlchemyError.
    """
    connection = session if isinstance(session, sa.Connection) else session.connection()
    row = new_row(message, key, clock)
    lock = key_lock(row, connection.dialect.name)
    if lock is not None:
        statement, value = lock
        if connection.execute(sa.text(statement.replace("$1", ":value")), {"value": value}).first() is None:
            raise IllegalArgument(NO_SLOTS)
    connection.execute(_ROWS.insert(), row)


async def add_async(
    session: "AsyncSession | AsyncConnection", message: Message, *, key: str | None = None, clock: Clock | None = None
) -> None:
    """As `add`, for asyncio."""
    await session.run_sync(lambda inner: add(inner, message, key=key, clock=clock))
