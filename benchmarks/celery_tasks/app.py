"""The application that is measured: a task that leaves how long it was on its way."""

import os
import time

from celery import Celery

import sprocket.contrib.kombu  # noqa: F401 (makes the scheme known)

app = Celery("tasks", broker=os.environ["BENCH_BROKER"])
app.conf.task_acks_late = True
app.conf.task_ignore_result = True
app.conf.worker_prefetch_multiplier = 32
app.conf.broker_transport_options = {"confirm_publish": True} if "amqp" in os.environ["BENCH_BROKER"] else {}
_FILE = os.open(os.environ["BENCH_FILE"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)


@app.task
def note(sent: float) -> None:
    """Append the seconds since `sent` as one line."""
    os.write(_FILE, b"%.6f\n" % (time.time() - sent))
