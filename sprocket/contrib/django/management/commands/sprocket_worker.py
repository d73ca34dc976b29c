"""`manage.py sprocket_worker`."""

import asyncio
import os
import socket
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from sprocket.common.errors import SprocketError
from sprocket.contrib.django.backend import SprocketBackend
from sprocket.contrib.django.framework import task_backends
from sprocket.contrib.django.worker import Worker


class Command(BaseCommand):
    """Run tasks until SIGTERM."""

    help = "Run the tasks of a Sprocket backend until SIGTERM; running tasks end first."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--backend", default="default", help="alias in TASKS (default: %(default)s)")
        parser.add_argument("--queue", action="append", help="queue; repeatable (default: all of the backend)")
        parser.add_argument("--threads", type=int, default=4, help="tasks at the same time (default: %(default)s)")

    def handle(self, *args: Any, **options: Any) -> None:
        backend = task_backends[options["backend"]]
        if not isinstance(backend, SprocketBackend):
            raise CommandError(f"TASKS[{options['backend']!r}] has another backend; see docs/django.md")
        queues = options["queue"] or sorted(backend.queues)
        if not queues or options["threads"] < 1:
            raise CommandError("name at least one --queue, and one or more --threads")
        worker = Worker(backend, queues, options["threads"], f"{socket.gethostname()}-{os.getpid()}")
        self.stdout.write(f"worker of {', '.join(queues)}")
        self.stdout.flush()
        try:
            asyncio.run(worker.run())
        except SprocketError as error:
            raise CommandError(str(error)) from None
        except KeyboardInterrupt:
            pass
