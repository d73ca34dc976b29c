"""Databases that a relay reads: a SQLite file, or a PostgreSQL server by way of asyncpg."""

import asyncio
import logging
import sqlite3
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any, Final, Protocol
from urllib.parse import unquote, urlsplit

from sprocket.client.errors import IllegalArgument
from sprocket.common.errors import SprocketError
from sprocket.common.extras import install
from sprocket.outbox.statements import CREATE_POSTGRESQL, CREATE_SQLITE, LOCK_CLAIM, TABLE

logger = logging.getLogger(__name__)

_TIMEOUT_S: Final = 30.0
Row = Sequence[Any]


class DatabaseUnusable(SprocketError):
    """The database cannot be reached, or refused a statement; the text is its own."""


class Database(Protocol):
    """Database of an outbox.  Methods raise DatabaseUnusable; the next call connects again."""

    async def create(self) -> None:
        """Create the table unless it exists."""
        ...

    async def fetch(self, statement: str, *values: object, claims: bool = False) -> list[Row]:
        """Return the rows of `statement`, which is committed; with `claims` no other relay claims meanwhile."""
        ...

    async def execute_many(self, statement: str, values: Iterable[Row]) -> None:
        """Execute `statement` for each entry of `values`, all in one transaction."""
        ...

    async def close(self) -> None: ...


def open_database(url: str) -> Database:
    """Return the database of `url`, without connecting: ``postgresql://...`` or ``sqlite:///path``.

    What SQLAlchemy adds to the scheme, as in ``postgresql+psycopg``, makes no difference.  Raises IllegalArgument.
    """
    scheme, _, rest = url.partition("://")
    kind = scheme.partition("+")[0]
    if kind in ("postgresql", "postgres"):
        return PostgresDatabase(f"postgresql://{rest}")
    if kind == "sqlite" and len(rest) > 1 and rest.startswith("/"):
        return SqliteDatabase(unquote(urlsplit(url).path[1:]))
    raise IllegalArgument(f"database {scheme or url!r}: pass postgresql://user@host/database or sqlite:///path/to/file")


class SqliteDatabase:
    """SQLite file `path`, which a thread of its own reads and writes."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="sprocket-outbox")

    async def create(self) -> None:
        for statement in CREATE_SQLITE:
            await self.fetch(statement)

    async def fetch(self, statement: str, *values: object, claims: bool = False) -> list[Row]:
        text = statement.replace("$", "?")
        rows: list[Row] = await self._run(lambda connection: connection.execute(text, values).fetchall())
        return rows

    async def execute_many(self, statement: str, values: Iterable[Row]) -> None:
        text = statement.replace("$", "?")
        await self._run(lambda connection: connection.executemany(text, values))

    async def close(self) -> None:
        self._thread.shutdown(wait=False)

    async def _run(self, what: Callable[[sqlite3.Connection], Any]) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._transact, what)

    def _transact(self, what: Callable[[sqlite3.Connection], Any]) -> Any:
        """Return the outcome of `what` in a transaction.  SQLite lets one write at a time, so claims need no lock."""
        try:
            with closing(sqlite3.connect(self._path, timeout=_TIMEOUT_S, isolation_level=None)) as connection:
                connection.execute("BEGIN IMMEDIATE")
                with connection:  # commits, or rolls back
                    return what(connection)
        except sqlite3.Error as error:
            raise DatabaseUnusable(f"{self._path}: {error}") from error


class PostgresDatabase:
    """PostgreSQL server of `url`, over one connection.  Needs asyncpg (extra `postgresql`)."""

    def __init__(self, url: str) -> None:
        """Raises IllegalArgument without asyncpg."""
        try:
            import asyncpg
        except ImportError:
            raise IllegalArgument(f"the package asyncpg is not installed; run `{install('postgresql')}`") from None
        self._asyncpg = asyncpg
        self._url = url
        self._connection: Any = None
        self._lock = asyncio.Lock()  # a connection executes one statement at a time

    async def create(self) -> None:
        async def work(connection: Any) -> None:
            # Who may not create tables can use one that exists.
            if not await connection.fetchval("SELECT to_regclass($1) IS NOT NULL", TABLE):
                await connection.execute(LOCK_CLAIM)
                for statement in CREATE_POSTGRESQL:
                    await connection.execute(statement)

        await self._transact(work)

    async def fetch(self, statement: str, *values: object, claims: bool = False) -> list[Row]:
        async def work(connection: Any) -> Any:
            if claims:
                await connection.execute(LOCK_CLAIM)
            return await connection.fetch(statement, *values)

        return [tuple(found) for found in await self._transact(work)]

    async def execute_many(self, statement: str, values: Iterable[Row]) -> None:
        await self._transact(lambda connection: connection.executemany(statement, values))

    async def close(self) -> None:
        if self._connection is not None:
            self._connection.terminate()  # nothing is open on it

    async def _transact(self, work: Callable[[Any], Any]) -> Any:
        async with self._lock:
            try:
                if self._connection is None or self._connection.is_closed():
                    self._connection = await self._asyncpg.connect(
                        self._url, timeout=_TIMEOUT_S, command_timeout=_TIMEOUT_S, statement_cache_size=0
                    )
                async with self._connection.transaction(isolation="read_committed"):
                    return await work(self._connection)
            except (OSError, TimeoutError, self._asyncpg.PostgresError, self._asyncpg.InterfaceError) as error:
                if self._connection is not None:
                    self._connection.terminate()  # nobody knows what it waits for
                raise DatabaseUnusable(f"{type(error).__name__}: {error}") from error
