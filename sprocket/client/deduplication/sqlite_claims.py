"""Claims in a SQLite file, for the processes of one machine."""

import asyncio
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

from sprocket.client import arguments
from sprocket.client.deduplication.claims import DEFAULT_LEASE_S, DEFAULT_WINDOW_S, Claim, stored_key
from sprocket.common.clock import Clock, SystemClock

T = TypeVar("T")

_BUSY_S: Final = 30.0
_BUSY_PAUSE_S: Final = 0.01
# Every so many claims, delete up to twice as many expired rows: deletion is faster than growth.
_CLAIMS_PER_PURGE: Final = 500
_PURGED_ROWS: Final = 2 * _CLAIMS_PER_PURGE

_CREATE: Final = """
CREATE TABLE IF NOT EXISTS sprocket_claims (
    consumer_group TEXT NOT NULL, key TEXT NOT NULL, owner TEXT NOT NULL, is_handled INTEGER NOT NULL,
    expires_at_ms INTEGER NOT NULL, PRIMARY KEY (consumer_group, key)
) WITHOUT ROWID
"""
_INDEX: Final = "CREATE INDEX IF NOT EXISTS sprocket_claims_expiry ON sprocket_claims (expires_at_ms)"
# The last condition is what a claim and a commit differ in.
_PUT: Final = """
INSERT INTO sprocket_claims VALUES (:group, :key, :owner, :is_handled, :expires_at_ms)
ON CONFLICT (consumer_group, key) DO UPDATE
SET owner = excluded.owner, is_handled = excluded.is_handled, expires_at_ms = excluded.expires_at_ms
WHERE expires_at_ms <= :now_ms OR (owner = excluded.owner AND (excluded.is_handled OR NOT is_handled))
"""
_IS_HANDLED: Final = "SELECT is_handled FROM sprocket_claims WHERE consumer_group = :group AND key = :key"
_RELEASE: Final = """
DELETE FROM sprocket_claims WHERE consumer_group = :group AND key = :key AND owner = :owner AND NOT is_handled
"""
_PURGE: Final = """
DELETE FROM sprocket_claims WHERE (consumer_group, key) IN (
    SELECT consumer_group, key FROM sprocket_claims WHERE expires_at_ms <= ? ORDER BY expires_at_ms LIMIT ?
)
"""


class SqliteClaims:
    """`ClaimStore` in the SQLite file `path`, shared by the processes of one machine; survives their restarts::

        async with SqliteClaims("handled.db", group="billing") as claims:
            await consumer.run(Deduplicator(claims).once(handler))

    Claims of several groups may share a file.  A commit is on the disk when it returns.  Times are those of the wall
    clock.  The file is opened at the first use, and a thread of its own reads and writes it.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        group: str,
        window_s: float = DEFAULT_WINDOW_S,
        lease_s: float = DEFAULT_LEASE_S,
        clock: Clock | None = None,
    ) -> None:
        """Raises IllegalArgument."""
        arguments.choice("path", path, (str, Path), "pass the path of a file")
        self._path = Path(path)
        arguments.check_group(group)
        self._group = group
        self._window_ms = max(1, round(arguments.timeout("window_s", window_s) * 1000))
        self.lease_s = arguments.timeout("lease_s", lease_s)
        self._clock = clock or SystemClock()
        # One thread: a connection serves one statement at a time anyway.
        self._thread = ThreadPoolExecutor(1, "sprocket-claims")
        self._connection: sqlite3.Connection | None = None
        self._claims = 0

    async def claim(self, key: str, owner: str) -> Claim:
        """See `ClaimStore.claim`.  Raises sqlite3.Error."""
        return await self._run(lambda connection: self._claim(connection, stored_key(key), owner))

    async def commit(self, key: str, owner: str) -> bool:
        """See `ClaimStore.commit`.  Raises sqlite3.Error."""
        duration_ms = self._window_ms
        return await self._run(
            lambda connection: self._put(connection, stored_key(key), owner, is_handled=True, duration_ms=duration_ms)
        )

    async def release(self, key: str, owner: str) -> None:
        """See `ClaimStore.release`.  Raises sqlite3.Error."""
        values = {"group": self._group, "key": stored_key(key), "owner": owner}
        await self._run(lambda connection: connection.execute(_RELEASE, values))

    async def close(self) -> None:
        """Close the file.  A later call opens nothing and raises RuntimeError."""
        await asyncio.get_running_loop().run_in_executor(self._thread, self._close)
        self._thread.shutdown(wait=False)

    async def __aenter__(self) -> "SqliteClaims":
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.close()

    async def _run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        in_thread = partial(asyncio.get_running_loop().run_in_executor, self._thread)
        for pauses_left in reversed(range(round(_BUSY_S / _BUSY_PAUSE_S))):
            if self._connection is not None:
                break
            try:
                await in_thread(self._open)
            except sqlite3.OperationalError as error:
                # SQLite does not wait when two connections set the journal mode at the same time: one fails at once.
                if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or not pauses_left:
                    raise
                await asyncio.sleep(_BUSY_PAUSE_S)
        return await in_thread(lambda: work(self._opened()))

    def _opened(self) -> sqlite3.Connection:
        if self._connection is None:
            raise RuntimeError(f"{self._path} is closed")
        return self._connection

    def _open(self) -> None:
        if self._connection is not None:
            return
        # Without isolation_level each statement is a transaction.  Threads: only ours uses it.
        connection = sqlite3.connect(self._path, timeout=_BUSY_S, isolation_level=None, check_same_thread=False)
        try:
            for statement in ("PRAGMA journal_mode = WAL", "PRAGMA synchronous = FULL", _CREATE, _INDEX):
                connection.execute(statement)
        except BaseException:
            connection.close()
            raise
        self._connection = connection

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _claim(self, connection: sqlite3.Connection, key: str, owner: str) -> Claim:
        self._claims += 1
        if self._claims % _CLAIMS_PER_PURGE == 0:
            connection.execute(_PURGE, (self._clock.wall_ms(), _PURGED_ROWS))
        if self._put(connection, key, owner, is_handled=False, duration_ms=round(self.lease_s * 1000)):
            return Claim.MINE
        row = connection.execute(_IS_HANDLED, {"group": self._group, "key": key}).fetchone()
        return Claim.HANDLED if row and row[0] else Claim.HELD

    def _put(self, connection: sqlite3.Connection, key: str, owner: str, *, is_handled: bool, duration_ms: int) -> bool:
        now_ms = self._clock.wall_ms()
        values = {"group": self._group, "key": key, "owner": owner, "is_handled": is_handled, "now_ms": now_ms}
        return connection.execute(_PUT, values | {"expires_at_ms": now_ms + duration_ms}).rowcount == 1
