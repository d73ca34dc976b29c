"""Claims in PostgreSQL, for members on many machines."""

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Final

from sprocket.client import arguments
from sprocket.client.deduplication.claims import DEFAULT_LEASE_S, DEFAULT_WINDOW_S, Claim, stored_key
from sprocket.client.errors import IllegalArgument
from sprocket.common.extras import install

logger = logging.getLogger(__name__)

_TIMEOUT_S: Final = 30.0
_CLOSE_TIMEOUT_S: Final = 5.0
_MAX_CONNECTIONS: Final = 4
# Every so many claims, delete up to twice as many expired rows: deletion is faster than growth.
_CLAIMS_PER_PURGE: Final = 500
_PURGED_ROWS: Final = 2 * _CLAIMS_PER_PURGE
_TABLE_NAME: Final = re.compile(r"([a-z_][a-z0-9_]{0,49}\.)?[a-z_][a-z0-9_]{0,49}")
# Any number that other programs are not likely to lock.
_CREATION_LOCK: Final = 5_760_226_114

_CREATE: Final = """
CREATE TABLE IF NOT EXISTS {table} (
    consumer_group text COLLATE "C" NOT NULL, key text COLLATE "C" NOT NULL, owner text NOT NULL,
    is_handled boolean NOT NULL, expires_at timestamptz NOT NULL, PRIMARY KEY (consumer_group, key)
);
CREATE INDEX IF NOT EXISTS {index} ON {table} (expires_at)
"""
_PUT: Final = """
INSERT INTO {table} AS old (consumer_group, key, owner, is_handled, expires_at)
VALUES ($1, $2, $3, $4, clock_timestamp() + $5 * interval '1 second')
ON CONFLICT (consumer_group, key) DO UPDATE
SET owner = excluded.owner, is_handled = excluded.is_handled, expires_at = excluded.expires_at
WHERE old.expires_at <= clock_timestamp()
   OR (old.owner = excluded.owner AND (excluded.is_handled OR NOT old.is_handled))
RETURNING 1
"""
# The second SELECT sees the table as it was when the statement began.  A row that expired by then may belong to
# another owner now, so it tells nothing.
_CLAIM: Final = """
WITH put AS ({put})
SELECT EXISTS (SELECT FROM put), EXISTS (
    SELECT FROM {table} WHERE consumer_group = $1 AND key = $2 AND is_handled AND expires_at > clock_timestamp()
)
"""
_RELEASE: Final = "DELETE FROM {table} WHERE consumer_group = $1 AND key = $2 AND owner = $3 AND NOT is_handled"
_PURGE: Final = """
DELETE FROM {table} WHERE (consumer_group, key) IN (
    SELECT consumer_group, key FROM {table} WHERE expires_at <= clock_timestamp()
    ORDER BY expires_at LIMIT $1 FOR UPDATE SKIP LOCKED
)
"""


class PostgresClaims:
    """`ClaimStore` in a table of PostgreSQL, shared by all members of the group.  Needs asyncpg (extra `postgresql`)::

        async with PostgresClaims("postgresql://user@host/database", group="billing") as claims:
            await consumer.run(Deduplicator(claims).once(handler))

    The first use creates the table unless it exists.  Claims of several groups may share it.  A commit survives a crash
    unless `synchronous_commit` is off.  Times are those of the server.
    """

    def __init__(
        self,
        pool: Any,
        *,
        group: str,
        table: str = "sprocket_claims",
        window_s: float = DEFAULT_WINDOW_S,
        lease_s: float = DEFAULT_LEASE_S,
    ) -> None:
        """`pool` is a URL (libpq's), or a pool of asyncpg that the caller closes.  Raises IllegalArgument."""
        arguments.check_group(group)
        self._group = group
        if not _TABLE_NAME.fullmatch(arguments.text("table", table)):
            raise IllegalArgument(f"table {table!r} is no name; pass name or schema.name in lower case")
        self._window_s = arguments.timeout("window_s", window_s)
        self.lease_s = arguments.timeout("lease_s", lease_s)
        if not isinstance(pool, str) and not hasattr(pool, "fetchrow"):
            raise IllegalArgument(f"pool is {pool!r}; pass a URL or a pool of asyncpg")
        self._connect = _connecting(pool) if isinstance(pool, str) else None
        self._pool: Any = pool
        self._table = table
        self._put = _PUT.format(table=table)
        self._claim = _CLAIM.format(table=table, put=self._put)
        self._slots = asyncio.Semaphore(_MAX_CONNECTIONS)
        self._free: list[Any] = []
        self._is_closed = False
        self._has_table = False
        self._claims = 0

    async def claim(self, key: str, owner: str) -> Claim:
        """See `ClaimStore.claim`.  Raises asyncpg.PostgresError, asyncpg.InterfaceError, OSError, TimeoutError."""
        self._claims += 1
        async with self._connection() as connection:
            if self._claims % _CLAIMS_PER_PURGE == 0:
                await connection.execute(_PURGE.format(table=self._table), _PURGED_ROWS)
            is_mine, is_handled = await connection.fetchrow(
                self._claim, self._group, stored_key(key), owner, False, self.lease_s
            )
        if is_mine:
            return Claim.MINE
        return Claim.HANDLED if is_handled else Claim.HELD

    async def commit(self, key: str, owner: str) -> bool:
        """See `ClaimStore.commit`.  Raises as `claim` does."""
        async with self._connection() as connection:
            put = await connection.fetchval(self._put, self._group, stored_key(key), owner, True, self._window_s)
        return put is not None

    async def release(self, key: str, owner: str) -> None:
        """See `ClaimStore.release`.  Raises as `claim` does."""
        async with self._connection() as connection:
            await connection.execute(_RELEASE.format(table=self._table), self._group, stored_key(key), owner)

    async def close(self) -> None:
        """Close the connections to the URL."""
        self._is_closed = True
        while self._free:
            try:
                await self._free.pop().close(timeout=_CLOSE_TIMEOUT_S)
            except Exception as error:
                logger.debug("event=claims_not_closed reason=%r", str(error))  # asyncpg has dropped the connection

    async def __aenter__(self) -> "PostgresClaims":
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.close()

    @asynccontextmanager
    async def _connection(self) -> AsyncIterator[Any]:
        """Yield a connection to a database that has the table."""
        if self._connect is None:
            async with self._pool.acquire(timeout=_TIMEOUT_S) as connection:
                await self._create(connection)
                yield connection
            return
        # Not a pool of asyncpg: after a crash of the server, it may count a connection as used for ever.
        async with self._slots:
            self._free = [free for free in self._free if not free.is_closed()]
            connection = self._free.pop() if self._free else await self._connect()
            try:
                await self._create(connection)
                yield connection
            except BaseException:
                connection.terminate()  # nobody knows what it waits for
                raise
            if self._is_closed:
                connection.terminate()
            else:
                self._free.append(connection)

    async def _create(self, connection: Any) -> None:
        """Create the table unless it exists; who may not create tables can use one that exists."""
        if self._has_table:
            return
        if not await connection.fetchval("SELECT to_regclass($1) IS NOT NULL", self._table):
            # Without the lock, one of two sessions that create it at the same time fails, in spite of IF NOT EXISTS.
            async with connection.transaction():
                await connection.execute("SELECT pg_advisory_xact_lock($1)", _CREATION_LOCK)
                index = self._table.rpartition(".")[2] + "_expiry"
                await connection.execute(_CREATE.format(table=self._table, index=index))
        self._has_table = True


def _connecting(url: str) -> Callable[[], Awaitable[Any]]:
    """Return a function that connects to `url`."""
    try:
        import asyncpg
    except ImportError:
        raise IllegalArgument(f"the package asyncpg is not installed; run `{install('postgresql')}`") from None
    return partial(asyncpg.connect, url, timeout=_TIMEOUT_S, command_timeout=_TIMEOUT_S)
