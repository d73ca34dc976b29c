"""Tasks that note in a file that they ran."""

import asyncio
import os
import time
from pathlib import Path
from typing import Any

try:
    from django.tasks import task
except ModuleNotFoundError:
    from django_tasks import task


def _note(line: str) -> None:
    with Path(os.environ["SHOP_LOG"]).open("a") as log:
        log.write(f"{line}\n")


@task()
def add(a: int, b: int) -> int:
    _note(f"add {a} {b}")
    return a + b


@task(queue_name="E-Mail", takes_context=True)
async def mail(context: Any, to: str) -> str:
    await asyncio.sleep(0)
    _note(f"mail {to} {context.attempt}")
    return to


@task()
def fail_until(path: str) -> str:
    if not Path(path).exists():
        raise ValueError("the file is not there")
    return "found"


@task()
def hold(path: str) -> None:
    _note("begin")
    while not Path(path).exists():
        time.sleep(0.05)


@task()
def leave() -> None:
    raise SystemExit("left")


@task()
def slow(number: int, seconds: float) -> int:
    _note(f"begin {number}")
    time.sleep(seconds)
    _note(f"end {number}")
    return number
