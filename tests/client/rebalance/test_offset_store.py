"""Offsets in a file."""

import asyncio
import threading
from pathlib import Path

import pytest

from sprocket import ClientError, MessageQueue
from sprocket.client.rebalance import offset_store
from sprocket.client.rebalance.offset_store import LocalFileOffsetStore
from sprocket.common.files.atomic_file import replace_file
from tests.waiting import until

QUEUE = MessageQueue("T", "a", 0)


async def test_one_write_waits_for_the_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A queue may be given up while the offsets of all are written; both writes use one temporary file."""
    begun: list[bytes] = []
    may_end = threading.Event()

    def slow(path: Path, content: bytes) -> None:
        begun.append(content)
        may_end.wait(60)
        replace_file(path, content)

    monkeypatch.setattr(offset_store, "replace_file", slow)
    store = LocalFileOffsetStore(tmp_path, "client", "g")
    first = asyncio.create_task(store.persist({QUEUE: 1}))
    await until(lambda: len(begun) == 1)
    second = asyncio.create_task(store.persist({QUEUE: 2}))
    for _ in range(20):
        await asyncio.sleep(0.001)
    assert len(begun) == 1
    may_end.set()
    assert await first == await second == {QUEUE}
    assert await LocalFileOffsetStore(tmp_path, "client", "g").read(QUEUE) == 2


async def test_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    path = tmp_path / "client" / "g" / "offsets.json"
    path.mkdir(parents=True)
    with pytest.raises(ClientError, match=r"offsets\.json"):
        await LocalFileOffsetStore(tmp_path, "client", "g").read(QUEUE)
