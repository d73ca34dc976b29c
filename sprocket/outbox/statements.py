"""SQL of the outbox.  Arguments are ``$1`` and so on, as PostgreSQL has them; other databases replace them."""

import zlib
from collections.abc import Mapping
from typing import Any, Final

from sprocket.client.errors import IllegalArgument
from sprocket.outbox.row import FAILED_MS, WRITTEN, OutboxRow

TABLE: Final = "sprocket_outbox"

_COLUMNS: Final = """
    topic varchar(255) NOT NULL, ordering_key varchar(255), body {blob} NOT NULL, attributes {text} NOT NULL,
    unique_key varchar(255) NOT NULL, created_ms bigint NOT NULL, available_ms bigint NOT NULL,
    first_leased_ms bigint NOT NULL, attempts integer NOT NULL, error text NOT NULL
"""
_INDEX: Final = f"CREATE INDEX IF NOT EXISTS {TABLE}_key ON {TABLE} (topic, ordering_key, id)"
CREATE_POSTGRESQL: Final = (
    f"CREATE TABLE IF NOT EXISTS {TABLE} (id bigserial PRIMARY KEY, {_COLUMNS.format(blob='bytea', text='text')})",
    _INDEX,
)
# AUTOINCREMENT: the number of a row that was deleted is not given again.
CREATE_SQLITE: Final = (
    f"""
    CREATE TABLE IF NOT EXISTS {TABLE} (
        id integer PRIMARY KEY AUTOINCREMENT, {_COLUMNS.format(blob="blob", text="text")}
    )
    """,
    _INDEX,
)
# MySQL has no lock of a name that ends with the transaction, so there are rows to lock: keys share them by their hash.
# The one after them is for claims.
SLOTS: Final = 1024
LOCKS: Final = f"{TABLE}_lock"
CREATE_LOCKS: Final = (
    f"CREATE TABLE IF NOT EXISTS {LOCKS} (slot integer NOT NULL PRIMARY KEY) ENGINE=InnoDB",
    f"INSERT IGNORE INTO {LOCKS} VALUES {', '.join(f'({slot})' for slot in range(SLOTS + 1))}",
)
# A collation by bytes: in others two keys may be equal that are not the same, and wait for each other.
CREATE_MYSQL: Final = (
    f"""
    CREATE TABLE IF NOT EXISTS {TABLE} (
        id bigint NOT NULL AUTO_INCREMENT PRIMARY KEY, {_COLUMNS.format(blob="longblob", text="longtext")},
        KEY {TABLE}_key (topic, ordering_key, id)
    ) ENGINE=InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin
    """,
    *CREATE_LOCKS,
)

INSERT: Final = (
    f"INSERT INTO {TABLE} ({', '.join(WRITTEN)}) "
    f"VALUES ({', '.join(f'${number}' for number in range(1, len(WRITTEN) + 1))})"
)
# A writer holds the lock of a key until its commit, so the numbers of that key's rows follow the order of the commits.
# Without it, a transaction could take a number, and commit after one that took a later number.
_LOCK_KEY: Final = "SELECT pg_advisory_xact_lock(hashtextextended($1, 7205759403))"
LOCK_SLOT: Final = f"SELECT slot FROM {LOCKS} WHERE slot = $1 FOR UPDATE"
# Relays claim one after the other: the second one must see which keys the first one has taken.
LOCK_CLAIM: Final = "SELECT pg_advisory_xact_lock(7205759403)"

# $1 end of the lease, $2 now, $3 rows.  No row is taken while an earlier one of its key is leased, waits or has failed.
_FREE: Final = f"""
FROM {TABLE} AS taken WHERE taken.available_ms <= $2 AND NOT EXISTS (
    SELECT 1 FROM {TABLE} AS earlier {{index}}
    WHERE earlier.topic = taken.topic AND earlier.ordering_key = taken.ordering_key
      AND earlier.id < taken.id AND earlier.available_ms > $2
) ORDER BY taken.id LIMIT $3
"""
_LEASE: Final = f"""
UPDATE {TABLE} SET available_ms = $1, first_leased_ms = CASE first_leased_ms WHEN 0 THEN $2 ELSE first_leased_ms END
"""
CLAIM: Final = (
    f"{_LEASE} WHERE id IN (SELECT taken.id {_FREE.format(index='')}) RETURNING {', '.join(OutboxRow._fields)}"
)
# MySQL, whose UPDATE returns no rows, claims in two steps.  In the second one $3 is the list of numbers.  Its
# statistics are old in a table that fills and empties: then it would read the whole table for each row.
FREE: Final = (
    f"SELECT {', '.join(f'taken.{name}' for name in OutboxRow._fields)} "
    f"{_FREE.format(index=f'FORCE INDEX ({TABLE}_key)')}"
)
LEASE: Final = f"{_LEASE} WHERE id IN $3"
# Of the numbers in $1: an array in PostgreSQL, JSON in SQLite, a list in MySQL.
DELETE_POSTGRESQL: Final = f"DELETE FROM {TABLE} WHERE id = ANY($1::bigint[])"
DELETE_SQLITE: Final = f"DELETE FROM {TABLE} WHERE id IN (SELECT value FROM json_each($1))"
DELETE_MYSQL: Final = f"DELETE FROM {TABLE} WHERE id IN $1"
# $1 row, $2 end of the lease that the relay holds, $3 to $5 new values.
RELEASE: Final = f"""
UPDATE {TABLE} SET available_ms = $3, attempts = $4, error = $5 WHERE id = $1 AND available_ms = $2
"""
STATUS: Final = f"""
SELECT count(*), min(created_ms), count(CASE WHEN available_ms = {FAILED_MS} THEN 1 END) FROM {TABLE}
"""
# Rows that were given up, and those that are tried again.
_REFUSED: Final = f"SELECT {', '.join(OutboxRow._fields)} FROM {TABLE} WHERE error <> '' AND available_ms"
FAILED: Final = f"{_REFUSED} = {FAILED_MS} ORDER BY id LIMIT $1"
WAITING: Final = f"{_REFUSED} <> {FAILED_MS} ORDER BY id LIMIT $1"
FAILED_ROW: Final = f"SELECT id FROM {TABLE} WHERE id = $1 AND available_ms = {FAILED_MS}"
RETRY: Final = f"UPDATE {TABLE} SET available_ms = 0, attempts = 0 WHERE id = $1 AND available_ms = {FAILED_MS}"
DISCARD: Final = f"DELETE FROM {TABLE} WHERE id = $1 AND available_ms = {FAILED_MS}"

_DATABASES: Final = ("postgresql", "mysql", "mariadb", "sqlite")
NO_SLOTS: Final = (
    f"the table {LOCKS} lacks its rows; start the relay once, or execute sprocket.outbox.statements.CREATE_LOCKS"
)


def key_lock(row: Mapping[str, Any], database: str) -> tuple[str, object] | None:
    """Return the statement and its argument with which a transaction holds the key of `row` until its end.

    None without a key, and for ``sqlite``, which has one writer.  The statement returns a row; without one, the table
    LOCKS lacks its rows: `NO_SLOTS`.  `database` is named as SQLAlchemy and Django do.  Raises IllegalArgument for one
    that no relay reads.
    """
    if database not in _DATABASES:
        raise IllegalArgument(f"no relay reads {database}; the outbox needs PostgreSQL, MySQL, MariaDB or SQLite")
    if database == "sqlite" or row["ordering_key"] is None:
        return None
    text = f"{row['topic']}/{row['ordering_key']}"
    return (_LOCK_KEY, text) if database == "postgresql" else (LOCK_SLOT, zlib.crc32(text.encode()) % SLOTS)
