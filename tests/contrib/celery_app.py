"""An application of Celery for the tests: a worker runs it in processes of its own."""

import os
import time
from pathlib import Path

from celery import Celery

import sprocket.contrib.kombu  # noqa: F401 (makes the scheme known)

app = Celery("shop", broker=os.environ["SPROCKET_TEST_BROKER"], backend="rpc://")
app.conf.task_acks_late = True
app.conf.worker_send_task_events = True
app.conf.broker_transport_options = {"visibility_timeout": 4}


@app.task
def add(a: int, b: int) -> int:
    return a + b


@app.task
def note(number: int, directory: str) -> int:
    """Leave a mark at the beginning and one at the end."""
    (Path(directory) / f"{number}.{time.time_ns()}.begun").touch()
    time.sleep(0.2)
    (Path(directory) / f"{number}.done").touch()
    return number


@app.task(bind=True, max_retries=3)
def flaky(self) -> int:  # type: ignore[no-untyped-def]
    if self.request.retries < 2:
        raise self.retry(countdown=1)
    retries: int = self.request.retries
    return retries


@app.task
def starts_another(number: int) -> str:
    task_id: str = add.delay(number, 1).id
    return task_id
