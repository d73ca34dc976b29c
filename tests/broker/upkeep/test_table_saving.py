"""Consumer offsets in their file: never ahead of what the disk has of the log."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from broker.offset.consumer_offsets import ConsumerOffsetTable
from broker.upkeep.table_saving import TableSaving
from sprocket.remoting.codec.fastjson import loads
from store.message_store import MessageStore
from tests.broker.insides import core_of, work_now
from tests.broker.rig import TOPIC, running_broker
from tests.store.rig import message


def saved(root: Path) -> dict[str, dict[int, int]]:
    path = root / "store/config/consumerOffset.json"
    return loads(path.read_bytes(), ConsumerOffsetTable).offset_table if path.exists() else {}


async def test_offsets_are_saved_once_the_log_is_flushed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with running_broker(tmp_path) as (broker, client):
        await client.send()
        asked: list[tuple[int, Any]] = []
        monkeypatch.setattr(MessageStore, "when_flushed", lambda _, offset, callback: asked.append((offset, callback)))
        saving = TableSaving(core_of(broker), broker.schedule.offsets)
        broker.offsets.commit("G", TOPIC, 0, 1)
        task = asyncio.ensure_future(work_now("consumer_offsets", saving.periodic()))
        while not asked:
            await asyncio.sleep(0)
        assert asked[0][0] == broker.store.wrote_offset
        assert f"{TOPIC}@G" not in saved(tmp_path)
        broker.store.append([message(TOPIC)])
        asked[0][1](None)
        await task
        assert saved(tmp_path)[f"{TOPIC}@G"] == {0: 1}
