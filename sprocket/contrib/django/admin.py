"""Pages of Django's admin: tasks and the outbox.  Their actions try failed tasks and messages again."""

from typing import Any

from django.contrib import admin

from sprocket.contrib.django.framework import TaskResultStatus, task_backends
from sprocket.contrib.django.models import OutboxRow, TaskRecord
from sprocket.outbox.row import FAILED_MS


class _ReadOnly(admin.ModelAdmin):
    def has_add_permission(self, request: Any) -> bool:
        return False

    def has_change_permission(self, request: Any, obj: Any = None) -> bool:
        return False

    def _may_act(self, request: Any) -> bool:
        """Return whether the visitor may use the actions.  They need the right to change, though no field can be."""
        return bool(super().has_change_permission(request))

    def get_actions(self, request: Any) -> dict[str, Any]:
        actions: dict[str, Any] = super().get_actions(request)
        return {name: one for name, one in actions.items() if name == "delete_selected" or self._may_act(request)}


@admin.register(TaskRecord)
class TaskAdmin(_ReadOnly):
    """Tasks.  `?status__exact=FAILED` are the failed ones."""

    list_display = ("id", "task_path", "queue_name", "priority", "status", "enqueued_at", "finished_at")
    list_filter = ("status", "queue_name", "backend", "task_path")
    search_fields = ("id", "task_path")
    ordering = ("-enqueued_at",)
    actions = ("run_again",)

    @admin.action(description="Run the selected failed tasks again")
    def run_again(self, request: Any, chosen: Any) -> None:
        failed = chosen.filter(status=TaskResultStatus.FAILED)
        done = sum(task_backends[record.backend].run_again(record) for record in failed)
        self.message_user(request, f"{done} failed tasks were enqueued again.")


@admin.register(OutboxRow)
class OutboxAdmin(_ReadOnly):
    """Messages that the relay has not sent, with the error of the last attempt."""

    list_display = ("id", "topic", "ordering_key", "attempts", "has_failed", "error")
    list_filter = ("topic",)
    search_fields = ("ordering_key", "unique_key")
    exclude = ("body",)
    actions = ("try_again",)

    @admin.action(description="Try the selected failed messages again")
    def try_again(self, request: Any, chosen: Any) -> None:
        done = chosen.filter(available_ms=FAILED_MS).update(available_ms=0, attempts=0)
        self.message_user(request, f"The relay tries {done} messages again.")
