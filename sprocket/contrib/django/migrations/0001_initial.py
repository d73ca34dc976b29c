"""Tables of tasks and of the outbox."""

from typing import Any

from django.db import migrations, models

from sprocket.outbox.statements import CREATE_LOCKS, LOCKS, TABLE


def create_locks(apps: Any, schema_editor: Any) -> None:
    """In MySQL, make the table of locks, and compare keys by their bytes."""
    if schema_editor.connection.vendor == "mysql":
        for statement in CREATE_LOCKS:
            schema_editor.execute(statement)
        schema_editor.execute(f"ALTER TABLE {TABLE} CONVERT TO CHARACTER SET utf8mb4 COLLATE utf8mb4_bin")


def drop_locks(apps: Any, schema_editor: Any) -> None:
    """Undo `create_locks`."""
    if schema_editor.connection.vendor == "mysql":
        schema_editor.execute(f"DROP TABLE IF EXISTS {LOCKS}")


class Migration(migrations.Migration):
    initial = True

    dependencies = ()

    operations = (
        migrations.CreateModel(
            name="OutboxRow",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("topic", models.CharField(max_length=255)),
                ("ordering_key", models.CharField(max_length=255, null=True)),
                ("body", models.BinaryField()),
                ("attributes", models.TextField()),
                ("unique_key", models.CharField(max_length=255)),
                ("created_ms", models.BigIntegerField()),
                ("available_ms", models.BigIntegerField()),
                ("first_leased_ms", models.BigIntegerField()),
                ("attempts", models.IntegerField()),
                ("error", models.TextField()),
            ],
            options={
                "verbose_name": "message in the outbox",
                "verbose_name_plural": "messages in the outbox",
                "db_table": "sprocket_outbox",
                "indexes": [models.Index(fields=["topic", "ordering_key", "id"], name="sprocket_outbox_key")],
            },
        ),
        migrations.RunPython(create_locks, drop_locks, atomic=False),
        migrations.CreateModel(
            name="TaskRecord",
            fields=[
                ("id", models.CharField(max_length=64, primary_key=True, serialize=False)),
                ("backend", models.CharField(max_length=64)),
                ("task_path", models.CharField(max_length=500)),
                ("queue_name", models.CharField(max_length=100)),
                ("priority", models.SmallIntegerField()),
                ("run_after", models.DateTimeField(null=True)),
                ("args", models.JSONField()),
                ("kwargs", models.JSONField()),
                (
                    "status",
                    models.CharField(
                        choices=[
                            ("READY", "Ready"),
                            ("RUNNING", "Running"),
                            ("FAILED", "Failed"),
                            ("SUCCESSFUL", "Successful"),
                        ],
                        max_length=10,
                    ),
                ),
                ("enqueued_at", models.DateTimeField()),
                ("started_at", models.DateTimeField(null=True)),
                ("finished_at", models.DateTimeField(null=True)),
                ("last_attempted_at", models.DateTimeField(null=True)),
                ("errors", models.JSONField()),
                ("return_value", models.JSONField(null=True)),
                ("worker_ids", models.JSONField()),
                ("is_sent", models.BooleanField(default=False)),
                ("runs", models.PositiveIntegerField(default=1)),
            ],
            options={
                "verbose_name": "task",
                "indexes": [
                    models.Index(fields=["status", "enqueued_at"], name="sprocket_task_status"),
                    models.Index(
                        condition=models.Q(("is_sent", False)), fields=["enqueued_at"], name="sprocket_task_unsent"
                    ),
                ],
            },
        ),
    )
