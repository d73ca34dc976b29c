"""A server that has started has no objects of its start that Python's garbage collector looks at again."""

import gc
import signal
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from sprocket_cli.server.server_process import Process


class _Server:
    async def start(self) -> None: ...

    async def stop(self) -> None: ...


@pytest.fixture
def thawed() -> Iterator[None]:
    yield
    gc.unfreeze()


@pytest.mark.usefixtures("thawed")
def test_objects_of_the_start_are_frozen_when_a_server_says_that_it_serves() -> None:
    frozen: list[int] = []

    def announce() -> str:
        frozen.append(gc.get_freeze_count())
        signal.raise_signal(signal.SIGTERM)
        return "serving"

    server: Any = _Server()
    before = gc.get_freeze_count()
    assert Process().run([lambda: server], announce) == 0
    assert frozen[0] - before > len(sys.modules)
