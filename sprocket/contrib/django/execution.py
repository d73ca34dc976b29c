"""One task in a worker, from its message to its result."""

import logging
import re
from traceback import format_exception
from typing import Any, Final

from django.utils import timezone

from sprocket.contrib.django.backend import SprocketBackend
from sprocket.contrib.django.framework import (
    TaskContext,
    TaskResultStatus,
    normalize_json,
    task_finished,
    task_started,
)
from sprocket.contrib.django.models import TaskRecord

logger = logging.getLogger(__name__)


# `TaskRecord.unique_key`, and the time of a later delivery.
_NAME: Final = re.compile(r"([a-zA-Z0-9]+)-([0-9]{1,9})(?:-[0-9]+)?")


class WorkersDied(Exception):
    """Workers died of a task, or with it, as often as `max_deliveries` allows."""


class NotATask(Exception):
    """A message that no backend has sent."""


def execute(backend: SprocketBackend, name: str, deliveries: int, worker_id: str) -> None:
    """Run the task whose message has the body `name` and was delivered before `deliveries` times.

    Raises NotATask; SprocketError and django.db.DatabaseError: then the message has to be delivered again.
    """
    named = _NAME.fullmatch(name)
    if named is None:
        raise NotATask("the message is not one of a task of Django")
    record = TaskRecord.objects.filter(pk=named[1], runs=int(named[2])).first()
    if record is None or record.status in (TaskResultStatus.SUCCESSFUL, TaskResultStatus.FAILED):
        return  # deleted, enqueued again, or ended just before its worker could acknowledge it
    if name != record.unique_key or backend.message(record).topic != backend.topic(record.queue_name):
        backend.send(record)  # it waited until now, and gets its place among the others or waits again
        return
    if record.status == TaskResultStatus.RUNNING and not deliveries:
        return  # the second message of a task whose first one is in work
    now = timezone.now()
    record.status, record.last_attempted_at, record.started_at = TaskResultStatus.RUNNING, now, record.started_at or now
    record.worker_ids = [*record.worker_ids, worker_id]
    record.save(update_fields=["status", "last_attempted_at", "started_at", "worker_ids"])
    try:
        if deliveries >= backend.max_deliveries:
            raise WorkersDied(f"delivered {deliveries + 1} times, and no worker has ended it")
        result = record.result()
        task_started.send(type(backend), task_result=result)
        context = [TaskContext(task_result=result)] if result.task.takes_context else []
        value = normalize_json(result.task.call(*context, *result.args, **result.kwargs))
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # SystemExit, too, as the framework has it: a task cannot end its worker
        _end(backend, record, TaskResultStatus.FAILED, error=error)
    else:
        _end(backend, record, TaskResultStatus.SUCCESSFUL, value=value)


def _end(
    backend: SprocketBackend, record: TaskRecord, status: Any, *, value: Any = None, error: BaseException | None = None
) -> None:
    record.status, record.return_value, record.finished_at = status, value, timezone.now()
    if error is not None:
        kind = type(error)
        path, text = f"{kind.__module__}.{kind.__qualname__}", "".join(format_exception(error))
        record.errors = [*record.errors, {"exception_class_path": path, "traceback": text}]
    record.save(update_fields=["status", "return_value", "finished_at", "errors"])
    try:
        result = record.result()
    except ImportError:
        logger.error("event=task_not_found task=%s path=%s", record.pk, record.task_path)
        return
    task_finished.send(type(backend), task_result=result)
