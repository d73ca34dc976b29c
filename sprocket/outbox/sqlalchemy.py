"""Writes to the outbox in a transaction of SQLAlchemy: PostgreSQL with any driver, and SQLite."""

from typing import TYPE_CHECKING

from sprocket.client.message import Message
from sprocket.common.clock import Clock, SystemClock
from sprocket.common.extras import missing_package
from sprocket.outbox.row import lock_text, new_row
from sprocket.outbox.statements import LOCK_KEY, TABLE

try:
    import sqlalchemy as sa
except ModuleNotFoundError as error:
    raise ImportError(missing_package(error, "sprocket.outbox.sqlalchemy") or str(error), name=error.name) from error

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession
    from sqlalchemy.orm import Session


def outbox_table(metadata: sa.MetaData) -> sa.Table:
    """Return the table as part of `metadata`, for `create_all` and migrations of Alembic."""
    number = sa.BigInteger()
    return sa.Table(
        TABLE,
        metadata,
        # SQLite numbers rows by itself in a column of type INTEGER alone.
        sa.Column("id", number.with_variant(sa.Integer(), "sqlite"), primary_key=True, autoincrement=True),
        sa.Column("topic", sa.String(255), nullable=False),
        sa.Column("ordering_key", sa.String(1024)),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.Column("attributes", sa.Text(), nullable=False),
        sa.Column("unique_key", sa.String(255), nullable=False),
        *(sa.Column(name, number, nullable=False) for name in ("created_ms", "available_ms", "first_leased_ms")),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("error", sa.Text(), nullable=False),
        sa.Index(f"{TABLE}_key", "topic", "ordering_key", "id"),
        sqlite_autoincrement=True,
    )


_ROWS = outbox_table(sa.MetaData())
_LOCK = sa.text(LOCK_KEY.replace("$1", ":text"))


def add(
    session: "Session | sa.Connection", message: Message, *, key: str | None = None, clock: Clock | None = None
) -> None:
    """Write `message` in the transaction of `session`.

    Messages of one topic and `key` are sent in the order of their commits: in PostgreSQL, a second transaction that
    writes the same key waits here for the end of the first.  Raises IllegalMessage, IllegalArgument for another
    database, SQLAlchemyError.
    """
    connection = session if isinstance(session, sa.Connection) else session.connection()
    row = new_row(message, key, (clock or SystemClock()).wall_ms())
    lock = lock_text(row, connection.dialect.name)
    if lock is not None:
        connection.execute(_LOCK, {"text": lock})
    connection.execute(_ROWS.insert(), row)


async def add_async(
    session: "AsyncSession | AsyncConnection", message: Message, *, key: str | None = None, clock: Clock | None = None
) -> None:
    """As `add`, for asyncio."""
    await session.run_sync(lambda inner: add(inner, message, key=key, clock=clock))
