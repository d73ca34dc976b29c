"""Databases that a relay reads: a SQLite file; a server of PostgreSQL by way of asyncpg, of MySQL by way of asyncmy."""

import asyncio
import json
import re
import sqlite3
import ssl
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any, Final, Protocol
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from sprocket.client.errors import IllegalArgument
from sprocket.common.errors import SprocketError
from sprocket.common.extras import install
from sprocket.outbox.row import OutboxRow
from sprocket.outbox.statements import (
    CLAIM,
    CREATE_MYSQL,
    CREATE_POSTGRESQL,
    CREATE_SQLITE,
    DELETE_MYSQL,
    DELETE_POSTGRESQL,
    DELETE_SQLITE,
    FREE,
    LEASE,
    LOCK_CLAIM,
    LOCK_SLOT,
    LOCKS,
    NO_SLOTS,
    SLOTS,
    TABLE,
)

_TIMEOUT_S: Final = 30.0
Row = Sequence[Any]


class DatabaseUnusable(SprocketError):
    """The database cannot be reached, or refused a statement; the text is its own."""


class Database(Protocol):
    """Database of an outbox.  Each method is one transaction.

    Methods raise DatabaseUnusable; the next call connects again.
    """

    async def create(self) -> None:
        """Create the table unless it exists."""
        ...

    async def claim(self, until_ms: int, now_ms: int, limit: int) -> list[OutboxRow]:
        """Lease up to `limit` rows until `until_ms` and return them.  No other relay claims meanwhile."""
        ...

    async def delete(self, ids: Sequence[int]) -> None:
        """Delete the rows with these numbers."""
        ...

    async def fetch(self, statement: str, *values: object) -> list[Row]:
        """Return the rows of `statement`."""
        ...

    async def execute_many(self, statement: str, values: Iterable[Row]) -> None:
        """Execute `statement` for each entry of `values`."""
        ...

    async def close(self) -> None: ...


def open_database(url: str) -> Database:
    """Return the database of `url`, without connecting: ``postgresql://``, ``mysql://``, ``mariadb://``, ``sqlite:///``.

    What SQLAlchemy adds to the scheme, as in ``postgresql+psycopg``, makes no difference.  Raises IllegalArgument.
    """
    scheme, _, rest = url.partition("://")
    kind = scheme.partition("+")[0]
    if kind in ("postgresql", "postgres"):
        return PostgresDatabase(f"postgresql://{rest}", place_of(url))
    if kind in ("mysql", "mariadb"):
        return MysqlDatabase(mysql_arguments(url), place_of(url))
    if kind == "sqlite" and len(rest) > 1 and rest.startswith("/"):
        return SqliteDatabase(unquote(urlsplit(url).path[1:]))
    raise IllegalArgument(
        f"database {scheme if rest else place_of(url)!r}: pass postgresql://user@host/database, mysql://user@host/database"
        " or sqlite:///path/to/file"
    )


def place_of(url: str) -> str:
    """Return the part of a URL that people may see: without account, password and options, which may name them."""
    shown = re.split("[?#]", url, maxsplit=1)[0]
    if "@" in url and "@" not in shown:
        return shown.partition("://")[0]  # perhaps a password with a "?" that is not encoded
    return shown.rpartition("@")[2]


class SqliteDatabase:
    """SQLite file `path`, which exists and which a thread of its own reads and writes."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="sprocket-outbox")

    async def create(self) -> None:
        for statement in CREATE_SQLITE:
            await self.fetch(statement)

    async def claim(self, until_ms: int, now_ms: int, limit: int) -> list[OutboxRow]:
        # SQLite lets one write at a time, so claims need no lock.
        return [OutboxRow(*values) for values in await self.fetch(CLAIM, until_ms, now_ms, limit)]

    async def delete(self, ids: Sequence[int]) -> None:
        await self.fetch(DELETE_SQLITE, json.dumps(ids))

    async def fetch(self, statement: str, *values: object) -> list[Row]:
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
        """Return the outcome of `what` in a transaction."""
        # An application makes the file.  A new one here would hide that the path is wrong.
        file = f"file:{quote(self._path)}?mode=rw"
        try:
            with closing(sqlite3.connect(file, timeout=_TIMEOUT_S, isolation_level=None, uri=True)) as connection:
                connection.execute("BEGIN IMMEDIATE")
                with connection:  # commits, or rolls back
                    return what(connection)
        except sqlite3.Error as error:
            why = error if Path(self._path).exists() else "no such file; mend the path, or start the application first"
            raise DatabaseUnusable(f"database {self._path}: {why}") from error


Work = Callable[[Any], Coroutine[Any, Any, Any]]


class _ServerDatabase(ABC):
    """Database on a server, over one connection.  After an error there is a new one: the old one's state is unknown."""

    def __init__(self, place: str, errors: tuple[type[Exception], ...]) -> None:
        """`place` says in errors where it is.  `errors` are those of the driver."""
        self._place = place
        self._errors: tuple[type[Exception], ...] = (OSError, TimeoutError, *errors)
        self._connection: Any = None
        self._lock = asyncio.Lock()  # a connection executes one statement at a time

    @abstractmethod
    async def _connect(self) -> Any:
        """Return a new connection."""

    @abstractmethod
    async def _execute(self, connection: Any, work: Work) -> Any:
        """Return the outcome of `work` in a transaction."""

    @abstractmethod
    def _end(self, connection: Any) -> None:
        """Close `connection` at once."""

    async def close(self) -> None:
        if self._connection is not None:
            self._end(self._connection)  # nothing is open on it
            self._connection = None

    async def _transact(self, work: Work) -> Any:
        async with self._lock:
            try:
                async with asyncio.timeout(_TIMEOUT_S):
                    if self._connection is None:
                        self._connection = await self._connect()
                    return await self._execute(self._connection, work)
            except self._errors as error:
                advice = "" if self._connection else "; check the URL, and that the server runs and admits the account"
                await self.close()
                text = f"database {self._place}: {type(error).__name__}: {error}{advice}"
                raise DatabaseUnusable(text) from error
            except asyncio.CancelledError:
                await self.close()
                raise


class PostgresDatabase(_ServerDatabase):
    """PostgreSQL server of `url`.  Needs asyncpg (extra `postgresql`)."""

    def __init__(self, url: str, place: str) -> None:
        """Raises IllegalArgument without asyncpg."""
        try:
            import asyncpg
        except ImportError:
            raise IllegalArgument(f"the package asyncpg is not installed; run `{install('postgresql')}`") from None
        # It raises ValueError for a URL that it cannot read.
        super().__init__(place, (asyncpg.PostgresError, asyncpg.InterfaceError, ValueError))
        self._asyncpg = asyncpg
        self._url = url

    async def create(self) -> None:
        async def work(connection: Any) -> None:
            # Who may not create tables can use one that exists.
            if not await connection.fetchval("SELECT to_regclass($1) IS NOT NULL", TABLE):
                await connection.execute(LOCK_CLAIM)
                for statement in CREATE_POSTGRESQL:
                    await connection.execute(statement)

        await self._transact(work)

    async def claim(self, until_ms: int, now_ms: int, limit: int) -> list[OutboxRow]:
        async def work(connection: Any) -> list[OutboxRow]:
            await connection.execute(LOCK_CLAIM)
            return [OutboxRow(*found) for found in await connection.fetch(CLAIM, until_ms, now_ms, limit)]

        rows: list[OutboxRow] = await self._transact(work)
        return rows

    async def delete(self, ids: Sequence[int]) -> None:
        await self._transact(lambda connection: connection.execute(DELETE_POSTGRESQL, ids))

    async def fetch(self, statement: str, *values: object) -> list[Row]:
        found = await self._transact(lambda connection: connection.fetch(statement, *values))
        return [tuple(row) for row in found]

    async def execute_many(self, statement: str, values: Iterable[Row]) -> None:
        await self._transact(lambda connection: connection.executemany(statement, values))

    async def _connect(self) -> Any:
        return await self._asyncpg.connect(self._url, statement_cache_size=0)

    async def _execute(self, connection: Any, work: Work) -> Any:
        async with connection.transaction(isolation="read_committed"):
            return await work(connection)

    def _end(self, connection: Any) -> None:
        connection.terminate()


class MysqlDatabase(_ServerDatabase):
    """MySQL or MariaDB server, reached with `arguments` of asyncmy's `connect`.  Needs asyncmy (extra `mysql`)."""

    def __init__(self, arguments: dict[str, Any], place: str) -> None:
        """Raises IllegalArgument without asyncmy."""
        try:
            import asyncmy
            from asyncmy.errors import MySQLError
        except ImportError:
            raise IllegalArgument(f"the package asyncmy is not installed; run `{install('mysql')}`") from None
        super().__init__(place, (MySQLError,))
        self._asyncmy = asyncmy
        self._arguments = arguments

    async def create(self) -> None:
        async def work(cursor: Any) -> None:
            # Who may not create tables can use those that exist.
            found = (
                "SELECT count(*) FROM information_schema.tables WHERE table_schema = database() AND table_name IN $1"
            )
            ((tables,),) = await _rows(cursor, found, (TABLE, LOCKS))
            *creates, fill = CREATE_MYSQL
            if tables < 2:
                for statement in creates:
                    await cursor.execute(statement)
            # Each CREATE TABLE commits by itself, so a relay may have died before it filled the table.
            ((slots,),) = await _rows(cursor, f"SELECT count(*) FROM {LOCKS}")
            if slots <= SLOTS:
                await cursor.execute(fill)

        await self._transact(work)

    async def claim(self, until_ms: int, now_ms: int, limit: int) -> list[OutboxRow]:
        """As `Database.claim`.

        The rows are read without locks: a locking read would wait for rows that writers have not committed.  Between
        both steps nobody changes a row that is free, as the lock of claims is held.
        """

        async def work(cursor: Any) -> list[OutboxRow] | None:
            if not await _rows(cursor, LOCK_SLOT, SLOTS):
                return None
            free = [OutboxRow(*values) for values in await _rows(cursor, FREE, None, now_ms, limit)]
            if free:
                await _rows(cursor, LEASE, until_ms, now_ms, tuple(row.id for row in free))
            return [row._replace(available_ms=until_ms, first_leased_ms=row.first_leased_ms or now_ms) for row in free]

        rows: list[OutboxRow] | None = await self._transact(work)
        if rows is None:
            raise DatabaseUnusable(NO_SLOTS)
        return rows

    async def delete(self, ids: Sequence[int]) -> None:
        await self.fetch(DELETE_MYSQL, tuple(ids))

    async def fetch(self, statement: str, *values: object) -> list[Row]:
        rows: list[Row] = await self._transact(lambda cursor: _rows(cursor, statement, *values))
        return rows

    async def execute_many(self, statement: str, values: Iterable[Row]) -> None:
        async def work(cursor: Any) -> None:
            for each in values:
                await _rows(cursor, statement, *each)

        await self._transact(work)

    async def _connect(self) -> Any:
        # At a higher level, a claim would not see what was committed since its first read.
        level = "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED"
        return await self._asyncmy.connect(**self._arguments, charset="utf8mb4", init_command=level)

    async def _execute(self, connection: Any, work: Work) -> Any:
        await connection.begin()
        async with connection.cursor() as cursor:
            outcome = await work(cursor)
        await connection.commit()
        return outcome

    def _end(self, connection: Any) -> None:
        connection.close()


async def _rows(cursor: Any, statement: str, *values: object) -> list[Row]:
    """Return the rows of `statement`, whose ``$1`` may be there several times."""
    await cursor.execute(
        re.sub(r"\$(\d+)", r"%(v\1)s", statement), {f"v{number}": value for number, value in enumerate(values, 1)}
    )
    return list(await cursor.fetchall()) if cursor.description else []


def mysql_arguments(url: str) -> dict[str, Any]:
    """Return the arguments of asyncmy's `connect` for ``mysql://user:password@host:port/database?unix_socket=/path``.

    ``ssl_ca``, ``ssl_cert`` and ``ssl_key`` are PEM files, as in SQLAlchemy; any of them asks for TLS, without
    ``ssl_ca`` with the system's certificates.  Raises IllegalArgument.
    """
    parts = urlsplit(url)
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    unknown = sorted(options.keys() - {"unix_socket", "ssl_ca", "ssl_cert", "ssl_key"})
    if unknown:
        raise IllegalArgument(f"database option {unknown[0]!r}: allowed are unix_socket, ssl_ca, ssl_cert and ssl_key")
    try:
        given: dict[str, Any] = {"host": parts.hostname or "127.0.0.1", "port": parts.port or 3306}
        if options.keys() - {"unix_socket"}:
            given["ssl"] = ssl.create_default_context(cafile=options.get("ssl_ca"))
            if "ssl_cert" in options:
                given["ssl"].load_cert_chain(options["ssl_cert"], options.get("ssl_key"))
            elif "ssl_key" in options:
                raise ValueError("ssl_key needs ssl_cert, the certificate of that key")
    except (ValueError, OSError) as error:
        raise IllegalArgument(f"database {place_of(url)}: {error}") from None
    if "unix_socket" in options:
        given["unix_socket"] = options["unix_socket"]
    given |= {"user": unquote(parts.username or ""), "password": unquote(parts.password or "")}
    return given | {"database": unquote(parts.path[1:])}
