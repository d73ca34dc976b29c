"""SQL of the outbox for PostgreSQL and SQLite.  Arguments are ``$1`` and so on; SQLite takes them as ``?1``."""

from typing import Final

from sprocket.outbox.row import FAILED_MS, WRITTEN, OutboxRow

TABLE: Final = "sprocket_outbox"

_COLUMNS: Final = """
    topic varchar(255) NOT NULL, ordering_key varchar(1024), body {blob} NOT NULL, attributes text NOT NULL,
    unique_key varchar(255) NOT NULL, created_ms bigint NOT NULL, available_ms bigint NOT NULL,
    first_leased_ms bigint NOT NULL, attempts integer NOT NULL, error text NOT NULL
"""
_INDEX: Final = f"CREATE INDEX IF NOT EXISTS {TABLE}_key ON {TABLE} (topic, ordering_key, id)"
CREATE_POSTGRESQL: Final = (
    f"CREATE TABLE IF NOT EXISTS {TABLE} (id bigserial PRIMARY KEY, {_COLUMNS.format(blob='bytea')})",
    _INDEX,
)
# AUTOINCREMENT: the number of a row that was deleted is not given again.
CREATE_SQLITE: Final = (
    f"CREATE TABLE IF NOT EXISTS {TABLE} (id integer PRIMARY KEY AUTOINCREMENT, {_COLUMNS.format(blob='blob')})",
    _INDEX,
)

INSERT: Final = (
    f"INSERT INTO {TABLE} ({', '.join(WRITTEN)}) "
    f"VALUES ({', '.join(f'${number}' for number in range(1, len(WRITTEN) + 1))})"
)
# A writer holds the lock of a key until its commit, so the numbers of that key's rows follow the order of the commits.
# Without it, a transaction could take a number, and commit after one that took a later number.
LOCK_KEY: Final = "SELECT pg_advisory_xact_lock(hashtextextended($1, 7205759403))"
# Relays claim one after the other: the second one must see which keys the first one has taken.
LOCK_CLAIM: Final = "SELECT pg_advisory_xact_lock(7205759403)"

# $1 end of the lease, $2 now, $3 rows.  No row is taken while an earlier one of its key is leased, waits or has failed.
CLAIM: Final = f"""
UPDATE {TABLE} SET available_ms = $1, first_leased_ms = CASE first_leased_ms WHEN 0 THEN $2 ELSE first_leased_ms END
WHERE id IN (
    SELECT taken.id FROM {TABLE} AS taken WHERE taken.available_ms <= $2 AND NOT EXISTS (
        SELECT 1 FROM {TABLE} AS earlier
        WHERE earlier.topic = taken.topic AND earlier.ordering_key = taken.ordering_key
          AND earlier.id < taken.id AND earlier.available_ms > $2
    ) ORDER BY taken.id LIMIT $3
) RETURNING {", ".join(OutboxRow._fields)}
"""
DELETE: Final = f"DELETE FROM {TABLE} WHERE id = $1"
# $1 row, $2 end of the lease that the relay holds, $3 to $5 new values.
RELEASE: Final = f"""
UPDATE {TABLE} SET available_ms = $3, attempts = $4, error = $5 WHERE id = $1 AND available_ms = $2
"""
STATUS: Final = f"""
SELECT count(*), min(created_ms), count(CASE WHEN available_ms = {FAILED_MS} THEN 1 END) FROM {TABLE}
"""
FAILED: Final = f"""
SELECT {", ".join(OutboxRow._fields)} FROM {TABLE} WHERE available_ms = {FAILED_MS} ORDER BY id LIMIT $1
"""
RETRY: Final = f"UPDATE {TABLE} SET available_ms = 0, attempts = 0 WHERE id = $1 AND available_ms = {FAILED_MS}"
DISCARD: Final = f"DELETE FROM {TABLE} WHERE id = $1 AND available_ms = {FAILED_MS}"
