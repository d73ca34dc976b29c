"""A hundred changes of the roles of two replicas under load; a few of them are in `test_role_switch`."""

from pathlib import Path

import pytest

from store.config.store_config import FlushDiskType
from tests.broker.controller.load import change_under_load
from tests.broker.controller.rig import group


@pytest.mark.parametrize("flush", list(FlushDiskType))
async def test_acknowledged_messages_survive_a_hundred_changes(tmp_path: Path, flush: FlushDiskType) -> None:
    async with group(tmp_path, store={"in_sync_replicas": 2, "flush_disk_type": flush}) as it:
        await change_under_load(it, 100, seed=1)
