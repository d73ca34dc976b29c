"""Tables: tasks with their results, and the outbox."""

from typing import Any

from django.db import models
from django.utils.module_loading import import_string

from sprocket.contrib.django.framework import Task, TaskError, TaskResult, TaskResultStatus
from sprocket.outbox.row import FAILED_MS
from sprocket.outbox.statements import TABLE


class TaskRecord(models.Model):
    """One task: what was asked for, and what became of it.  It is written in the transaction of `enqueue`.

    `is_sent`: a broker has its message.  `runs` is the number of times that it was enqueued; an operator may do so
    again.
    """

    id = models.CharField(max_length=64, primary_key=True)
    backend = models.CharField(max_length=64)
    task_path = models.CharField(max_length=500)
    queue_name = models.CharField(max_length=100)
    priority = models.SmallIntegerField()
    run_after = models.DateTimeField(null=True)
    args = models.JSONField()
    kwargs = models.JSONField()
    status = models.CharField(max_length=10, choices=TaskResultStatus.choices)
    enqueued_at = models.DateTimeField()
    started_at = models.DateTimeField(null=True)
    finished_at = models.DateTimeField(null=True)
    last_attempted_at = models.DateTimeField(null=True)
    errors = models.JSONField()
    return_value = models.JSONField(null=True)
    worker_ids = models.JSONField()
    is_sent = models.BooleanField(default=False)
    runs = models.PositiveIntegerField(default=1)

    class Meta:
        verbose_name = "task"
        indexes = (
            models.Index(fields=["status", "enqueued_at"], name="sprocket_task_status"),
            models.Index(fields=["enqueued_at"], condition=models.Q(is_sent=False), name="sprocket_task_unsent"),
        )

    def __str__(self) -> str:
        return f"{self.task_path} {self.id}"

    @property
    def unique_key(self) -> str:
        """The name of its message for brokers."""
        return f"{self.id}-{self.runs}"

    def task(self) -> Task:
        """Return the task.  Raises ImportError."""
        found = import_string(self.task_path)
        if not isinstance(found, Task):
            raise ImportError(f"{self.task_path} is no task")  # noqa: TRY004  (as if it were not there)
        return found.using(
            priority=self.priority, queue_name=self.queue_name, run_after=self.run_after, backend=self.backend
        )

    def result(self) -> TaskResult:
        """Return the task's result as it is now.  Raises ImportError if the task is no longer there."""
        result = TaskResult(
            task=self.task(),
            id=self.id,
            status=TaskResultStatus[self.status],
            enqueued_at=self.enqueued_at,
            started_at=self.started_at,
            finished_at=self.finished_at,
            last_attempted_at=self.last_attempted_at,
            args=self.args,
            kwargs=self.kwargs,
            backend=self.backend,
            errors=[TaskError(**error) for error in self.errors],
            worker_ids=list(self.worker_ids),
        )
        object.__setattr__(result, "_return_value", self.return_value)  # as the backends of Django do
        return result


class OutboxRow(models.Model):
    """Row of the outbox; the columns are those of `sprocket.outbox.row.OutboxRow`."""

    id = models.BigAutoField(primary_key=True)
    topic = models.CharField(max_length=255)
    ordering_key = models.CharField(max_length=255, null=True)
    body = models.BinaryField()
    attributes = models.TextField()
    unique_key = models.CharField(max_length=255)
    created_ms = models.BigIntegerField()
    available_ms = models.BigIntegerField()
    first_leased_ms = models.BigIntegerField()
    attempts = models.IntegerField()
    error = models.TextField()

    class Meta:
        db_table = TABLE
        verbose_name = "message in the outbox"
        verbose_name_plural = "messages in the outbox"
        indexes = (models.Index(fields=["topic", "ordering_key", "id"], name=f"{TABLE}_key"),)

    def __str__(self) -> str:
        return f"{self.topic} {self.id}"

    @property
    def has_failed(self) -> bool:
        """Whether the relay has given it up."""
        failed: Any = self.available_ms == FAILED_MS
        return bool(failed)
