"""Backend of Django's tasks: a queue is a topic and a consumer group that pops.

The record of a task is written in the transaction of `enqueue`, and its message is sent when that commits.  If the
process dies in between, or no broker can be reached, a worker sends the message later: `send_left`.
"""

import logging
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final

from django.core.exceptions import ImproperlyConfigured
from django.db import router, transaction
from django.utils import timezone
from django.utils.crypto import get_random_string

from sprocket.client.connect import Connection, connect
from sprocket.client.connection.event_loop_thread import shared_loop
from sprocket.client.message import Message
from sprocket.client.pop.pop_settings import PopSettings
from sprocket.client.send.send_request import SendSettings
from sprocket.common.errors import SprocketError
from sprocket.contrib.blocking_connection import BlockingConnection
from sprocket.contrib.django.framework import (
    BaseTaskBackend,
    Task,
    TaskResult,
    TaskResultDoesNotExist,
    TaskResultStatus,
    normalize_json,
    task_enqueued,
)
from sprocket.contrib.django.models import TaskRecord
from sprocket.contrib.names import legal
from sprocket.contrib.pops import task_pops

logger = logging.getLogger(__name__)

_SEND: Final = SendSettings(idempotent=True)
# Priorities of Django go from -100 to 100.  Each level is a queue of the topic on each broker, so ten share one.
_PER_LEVEL: Final = 10
MAX_LEVEL: Final = 200 // _PER_LEVEL
# Brokers keep a message for three days (timerMaxDelaySec); a worker sends it once more when this time is over.
_MAX_WAIT: Final = timedelta(days=2)
# An unsent record of this age is not being sent just now.
_LEFT_AFTER: Final = timedelta(seconds=30)
_LEFT_ROWS: Final = 100
_DEFAULTS: Final[dict[str, Any]] = {
    "namesrv": "",
    "client": None,
    "prefix": "django-",
    "topic_queue_nums": 8,
    "visibility_timeout": 60,
    "max_deliveries": 5,
    "result_ttl": None,
}

# Django makes a backend for each thread.
_connections: Final[dict[tuple[object, ...], BlockingConnection]] = {}


class SprocketBackend(BaseTaskBackend):
    """Backend over a Sprocket cluster; the options are those of docs/django.md."""

    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True

    def __init__(self, alias: str, params: dict[str, Any]) -> None:
        """Raises ImproperlyConfigured, IllegalArgument."""
        super().__init__(alias, params)
        unknown = set(self.options) - set(_DEFAULTS)
        if unknown:
            raise ImproperlyConfigured(
                f"TASKS[{alias!r}] has unknown options {sorted(unknown)}; allowed: {[*_DEFAULTS]}"
            )
        options = _DEFAULTS | self.options
        self.prefix: str = options["prefix"]
        self.max_deliveries: int = options["max_deliveries"]
        self.result_ttl: timedelta | None = options["result_ttl"] and timedelta(seconds=options["result_ttl"])
        self.pops = task_pops(PopSettings(pop_invisible_time_s=options["visibility_timeout"]))
        self.new_connection = partial(connect, options["namesrv"], client=options["client"])
        place = str(options["namesrv"]), id(options["client"]), options["topic_queue_nums"]
        self._connection = _connections.setdefault(place, BlockingConnection(self.new_connection, place[-1]))

    # Names

    def topic(self, queue_name: str) -> str:
        """Return the topic of type PRIORITY with the tasks of a queue that are due; also its consumer group."""
        return self.prefix + legal(queue_name)

    def later_topic(self, queue_name: str) -> str:
        """Return the topic with the tasks of a queue that wait for their time.  A message has no priority there."""
        return f"{self.topic(queue_name)}-later"

    def open(self, queue_name: str) -> Connection:
        """Connect and return the connection; the topics of the queue exist then.  Raises SprocketError."""
        self._connection.open(self.later_topic(queue_name))
        return self._connection.open(self.topic(queue_name), MAX_LEVEL)

    def close(self) -> None:
        """Close the connection of this process."""
        self._connection.close()

    # Tasks

    def enqueue(self, task: Task, args: Any, kwargs: Any) -> TaskResult:
        """Write the record of a task, and send it when the transaction commits.

        Raises as Django's backends, and django.db.DatabaseError.  A broker that cannot be reached delays the task.
        """
        self.validate_task(task)
        record = TaskRecord(
            id=get_random_string(32), backend=self.alias, task_path=task.module_path, queue_name=task.queue_name,
            priority=task.priority, run_after=task.run_after, args=normalize_json(args), kwargs=normalize_json(kwargs),
            status=TaskResultStatus.READY, enqueued_at=timezone.now(), errors=[], worker_ids=[],
        )  # fmt: skip
        record.save(force_insert=True)
        result = record.result()
        task_enqueued.send(type(self), task_result=result)
        self._send_after_commit(record)
        return result

    def get_result(self, result_id: str) -> TaskResult:
        """Return the result of a task.  Raises TaskResultDoesNotExist, ImportError."""
        try:
            record = TaskRecord.objects.get(pk=result_id, backend=self.alias)
        except TaskRecord.DoesNotExist:
            raise TaskResultDoesNotExist(result_id) from None
        return record.result()

    def run_again(self, record: TaskRecord) -> bool:
        """Enqueue a finished task once more, under its id; return False if another process has just done so."""
        changed = TaskRecord.objects.filter(pk=record.pk, status=record.status, runs=record.runs).update(
            status=TaskResultStatus.READY, run_after=None, is_sent=False, finished_at=None, return_value=None,
            enqueued_at=timezone.now(), runs=record.runs + 1,
        )  # fmt: skip
        if changed:
            record.refresh_from_db()
            self._send_after_commit(record)
        return bool(changed)

    def _send_after_commit(self, record: TaskRecord) -> None:
        # At once, if no transaction is open.
        transaction.on_commit(partial(self._try_to_send, record), using=router.db_for_write(TaskRecord))

    def _try_to_send(self, record: TaskRecord) -> None:
        try:
            self.send(record)
        except SprocketError as error:
            logger.warning("event=task_not_sent task=%s reason=%r", record.pk, str(error))

    def send(self, record: TaskRecord) -> None:
        """Send the message of a task; brokers recognise a repetition.  Raises SprocketError."""
        message = self.message(record)
        shared_loop.call(self.open(record.queue_name).producer(settings=_SEND).send(message))
        TaskRecord.objects.filter(pk=record.pk, runs=record.runs).update(is_sent=True)

    def message(self, record: TaskRecord) -> Message:
        """Return the message of a task: for later, if it is not due."""
        due, name = _waits_until(record.run_after), record.unique_key
        if due is None:
            level = (record.priority + 100) // _PER_LEVEL
            return Message(
                self.topic(record.queue_name), name.encode(), keys=[record.pk], unique_key=name, priority=level
            )
        name = f"{name}-{due.timestamp():.0f}"
        return Message(
            self.later_topic(record.queue_name), name.encode(), keys=[record.pk], unique_key=name, deliver_at=due
        )

    def send_left(self) -> int:
        """Send what `enqueue` did not come to send, and delete old results.  Returns the number of tasks sent.

        Raises SprocketError, django.db.DatabaseError.
        """
        now = timezone.now()
        left = TaskRecord.objects.filter(backend=self.alias, is_sent=False, enqueued_at__lt=now - _LEFT_AFTER)
        records = list(left.filter(status=TaskResultStatus.READY).order_by("enqueued_at")[:_LEFT_ROWS])
        for record in records:
            self.send(record)
        if self.result_ttl is not None:
            TaskRecord.objects.filter(backend=self.alias, finished_at__lt=now - self.result_ttl).delete()
        return len(records)


def _waits_until(run_after: datetime | None) -> datetime | None:
    """Return when brokers are to deliver a message; None for now."""
    if run_after is None:
        return None
    if timezone.is_naive(run_after):
        run_after = timezone.make_aware(run_after)
    now = timezone.now()
    return min(run_after, now + _MAX_WAIT) if run_after > now else None
