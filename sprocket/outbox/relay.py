"""The relay: sends the rows of an outbox, each once, those of one topic and key in the order of their commits.

A relay leases rows, sends them, and deletes them.  Each step may be the last one of its process.  What keeps a row from
being stored twice is the broker, which recognises its unique key.  The key is also looked up for a row that was leased
before, because brokers forget after a while (docs/decisions/047).  The lease keeps relays off each other's rows.  It is
no condition of the order: a row is sent after brokers have stored the previous one of its key, from any relay.
"""

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass
from typing import Final

from sprocket.client import arguments
from sprocket.client.admin.admin_requests import AdminError
from sprocket.client.admin.message_lookup import MessageLookup
from sprocket.client.connect import Connection
from sprocket.client.connection.outages import Outages
from sprocket.client.connection.unique_id import derived_id
from sprocket.client.connection.wire_names import WireNames
from sprocket.client.errors import BrokerRefused, ClientError, IllegalArgument, PermissionDenied
from sprocket.client.message import Message
from sprocket.client.send.send_request import SendSettings
from sprocket.client.send_result import SendStatus
from sprocket.common.clock import Clock
from sprocket.common.failpoints import failpoint
from sprocket.common.logs.peer_lines import peer_lines
from sprocket.metrics.declared import Kind, Metric, Reading, gauge
from sprocket.metrics.registry import MetricRegistry
from sprocket.outbox.database import Database, DatabaseUnusable
from sprocket.outbox.row import FAILED_MS, OutboxRow, message_of
from sprocket.outbox.statements import RELEASE, STATUS
from sprocket.remoting.codes import ResponseCode

logger = logging.getLogger(__name__)

_SEND: Final = SendSettings(idempotent=True)
# A row must be sent and deleted by then; the rest of the lease is for the last send.
_LEASE_SHARE: Final = 0.5
_MAX_PAUSE_MS: Final = 60_000
# Batches at the same time: one is claimed or deleted while another one is sent.  They share no key, as those of relays.
_BATCHES: Final = 2
_MAX_ERROR_CHARS: Final = 1_000
_DATABASE: Final = "database"  # of the outages
_AFTER_LEASE: Final = failpoint("outbox.after_lease")
_AFTER_SEND: Final = failpoint("outbox.after_send")
_AFTER_DELETE: Final = failpoint("outbox.after_delete")


@dataclass(frozen=True, kw_only=True)
class RelaySettings:
    """Settings of a relay."""

    batch_rows: int = 500  # rows that one claim leases
    poll_interval_s: float = 0.2  # pause after a claim that found nothing
    lease_s: float = 20.0  # after the death of a relay, another one sends its rows within this time
    max_attempts: int = 10  # after so many refusals by a broker, a row has failed
    retry_s: float = 1.0  # pause of a row after its first refusal; it doubles up to one minute

    def __post_init__(self) -> None:
        """Raises IllegalArgument."""
        arguments.check(self, _CHECKS)
        if self.lease_s < 2 * _SEND.send_msg_timeout_s:
            raise IllegalArgument(
                f"lease_s = {self.lease_s:g}: a lease lasts {2 * _SEND.send_msg_timeout_s:g} s or more"
            )


_CHECKS = {
    "batch_rows": arguments.at_least(1, 10_000),
    "poll_interval_s": arguments.timeout,
    "lease_s": arguments.timeout,
    "max_attempts": arguments.at_least(1),
    "retry_s": arguments.timeout,
}


@dataclass(frozen=True)
class Status:
    """Number of rows, age of the oldest in ms, and number of those that have failed."""

    rows: int
    age_ms: int
    failed: int


async def status_of(database: Database, now_ms: int) -> Status:
    """Return the state of an outbox.  Raises DatabaseUnusable."""
    ((rows, created_ms, failed),) = await database.fetch(STATUS)
    return Status(rows, max(0, now_ms - created_ms) if rows else 0, failed)


class _Batch:
    """Rows of one lease, and what became of them."""

    def __init__(self, rows: list[OutboxRow], now_ms: int, deadline: float) -> None:
        self.rows = rows
        self.now_ms = now_ms
        self.deadline = deadline  # of the last send, by the monotonic clock
        self.sent: list[OutboxRow] = []
        self.released: list[tuple[object, ...]] = []  # values of RELEASE
        self.failures = 0

    def by_key(self) -> Iterable[list[OutboxRow]]:
        """Return the rows of each topic and key in order, and each row without a key by itself."""
        keyed: dict[tuple[str, str | int], list[OutboxRow]] = {}
        for row in sorted(self.rows):
            keyed.setdefault((row.topic, row.id if row.ordering_key is None else row.ordering_key), []).append(row)
        return keyed.values()

    def release(self, row: OutboxRow, available_ms: int, attempts: int, error: str) -> None:
        self.released.append((row.id, row.available_ms, available_ms, attempts, error[:_MAX_ERROR_CHARS]))


class Relay:
    """Relay of one outbox; several may work on one.  A `Server` of `sprocket_cli.server.server_process`."""

    def __init__(self, database: Database, mq: Connection, settings: RelaySettings, clock: Clock) -> None:
        """`mq` is closed with the relay, and so is `database`.  Raises IllegalArgument over gRPC."""
        self._database = database
        self._mq = mq
        self._producer = mq.producer(settings=_SEND)
        self._lookup = MessageLookup(mq.admin)
        self._settings = settings
        self._clock = clock
        self._names = WireNames(mq.namespace)
        self._tasks: list[asyncio.Task[None]] = []
        self._is_stopping = asyncio.Event()
        self._warned: set[str] = set()
        self._outages = Outages(clock.monotonic)
        self._sent = 0
        self._status = Status(0, 0, 0)
        self._metrics = MetricRegistry(self._declared(), dict, prepares=[self._look])

    async def start(self) -> None:
        """Create the table unless it exists, and begin to send.  Raises DatabaseUnusable, TlsUnusable."""
        await self._database.create()
        await self._mq.start()
        self._tasks = [asyncio.get_running_loop().create_task(self._run()) for _ in range(_BATCHES)]

    async def stop(self) -> None:
        """Finish the present batches and close."""
        self._is_stopping.set()
        await asyncio.gather(*self._tasks)
        await self._mq.close()
        await self._database.close()

    async def _run(self) -> None:
        while not self._is_stopping.is_set():
            is_idle = True
            try:
                is_idle = not await self.turn()
                if over := self._outages.succeeded(_DATABASE):
                    logger.info("event=outbox_reachable after_s=%.1f failures=%d", *over)
            except DatabaseUnusable as error:
                if self._outages.failed(_DATABASE, error):
                    logger.warning("event=outbox_unreachable reason=%r", str(error))
            except Exception:
                logger.exception("event=outbox_turn_failed")
            if is_idle:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._is_stopping.wait(), self._settings.poll_interval_s)

    async def turn(self) -> int:
        """Lease one batch, send it, and delete what was sent.  Returns the number of rows sent or refused.

        Raises DatabaseUnusable; what was sent by then is looked up in a later turn.
        """
        lease_s = self._settings.lease_s
        deadline = self._clock.monotonic() + lease_s * _LEASE_SHARE
        now_ms = self._clock.wall_ms()
        limit = self._settings.batch_rows
        found = await self._database.claim(now_ms + round(lease_s * 1000), now_ms, limit)
        _AFTER_LEASE()
        batch = _Batch(found, now_ms, deadline)
        if not found:
            return 0
        await asyncio.gather(*(self._send_all(rows, batch) for rows in batch.by_key()))
        if batch.sent:
            await self._database.delete([row.id for row in batch.sent])
            self._sent += len(batch.sent)
            _AFTER_DELETE()
        if batch.released:
            await self._database.execute_many(RELEASE, batch.released)
        return len(found) - batch.failures

    async def _send_all(self, rows: list[OutboxRow], batch: _Batch) -> None:
        """Send `rows` one after the other; after a failure the later ones wait, so that none overtakes."""
        waiting = deque(rows)
        while waiting and self._clock.monotonic() < batch.deadline and not self._is_stopping.is_set():
            row = waiting.popleft()
            if not await self._send(row, batch):
                break
            batch.sent.append(row)
            if over := self._outages.succeeded(row.topic):
                logger.info("event=outbox_rows_sent_again topic=%s after_s=%.1f failures=%d", row.topic, *over)
        for row in waiting:
            batch.release(row, batch.now_ms, row.attempts, row.error)

    async def _send(self, row: OutboxRow, batch: _Batch) -> bool:
        """Return whether brokers have `row`; otherwise it is released for a later time."""
        try:
            message = message_of(row)
            if row.first_leased_ms < batch.now_ms and await self._is_stored(message):
                return True
            result = await self._producer.send(message, sharding_key=row.ordering_key)
        except ClientError as error:
            # Brokers that are down for long, or a right that an operator has yet to grant, are no reason to give up.
            is_refusal = isinstance(error, IllegalArgument | BrokerRefused) and not isinstance(error, PermissionDenied)
            (self._refused if is_refusal else self._postponed)(row, error, batch)
            return False
        _AFTER_SEND()
        if result.duplicates is None and row.topic not in self._warned:
            self._warned.add(row.topic)
            logger.warning("event=outbox_broker_knows_no_duplicates topic=%s", row.topic)
        if result.status is not SendStatus.SEND_OK:
            self._postponed(row, ClientError(result.status.value), batch)
            return False
        return True

    async def _is_stored(self, message: Message) -> bool:
        """Return whether an earlier attempt reached a broker."""
        message_id = derived_id(message.topic, message.unique_key)
        try:
            return bool(await self._lookup.by_unique_key(self._names.whole(message.topic), message_id))
        except AdminError as error:
            if error.code == ResponseCode.TOPIC_NOT_EXIST:
                return False
            raise

    def _refused(self, row: OutboxRow, refusal: ClientError, batch: _Batch) -> None:
        attempts = row.attempts + 1
        has_failed = attempts >= self._settings.max_attempts
        if has_failed:
            peer_lines.error(
                logger, "", "event=outbox_row_failed row=%d topic=%s reason=%r", row.id, row.topic, str(refusal)
            )
        batch.release(row, FAILED_MS if has_failed else self._pause_until(row), attempts, str(refusal))

    def _postponed(self, row: OutboxRow, error: ClientError, batch: _Batch) -> None:
        """Release a row that is sound; it is no refusal."""
        batch.failures += 1
        batch.release(row, self._pause_until(row), row.attempts, str(error))
        if self._outages.failed(row.topic, error):
            logger.warning("event=outbox_rows_wait topic=%s reason=%r", row.topic, str(error))

    def _pause_until(self, row: OutboxRow) -> int:
        pause_ms = min(_MAX_PAUSE_MS, round(self._settings.retry_s * 1000) << min(row.attempts, 16))
        return self._clock.wall_ms() + pause_ms

    # Metrics

    def metrics(self) -> AsyncIterator[Reading]:
        """Yield the values of the metrics now.  Raises DatabaseUnusable."""
        return self._metrics.read()

    def _declared(self) -> list[Metric]:
        return [
            gauge("sprocket_outbox_lag_messages", "rows that are not sent", lambda: self._status.rows),
            gauge("sprocket_outbox_lag_latency", "age of the oldest row", lambda: self._status.age_ms, "ms"),
            gauge("sprocket_outbox_failed_messages", "rows that the relay has given up", lambda: self._status.failed),
            Metric(
                "sprocket_outbox_sent", Kind.COUNTER, "rows that this relay has sent", lambda: [((), self._sent)]
            ),
        ]  # fmt: skip

    async def _look(self) -> None:
        self._status = await status_of(self._database, self._clock.wall_ms())
