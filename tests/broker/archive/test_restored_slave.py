"""A new slave starts from the archive of its group, and follows the master from there."""

import asyncio
from pathlib import Path

from store.tier.open_archive import open_archive
from store.tier.restore import ArchiveRestore
from tests.broker.group_rig import cluster
from tests.broker.rig import TOPIC, bodies_in_order
from tests.waiting import until

_STORE = {"mapped_file_size_commit_log": 16 * 1024, "flush_interval_commit_log": 5}


async def test_a_slave_restored_from_the_archive_follows_its_master(tmp_path: Path) -> None:
    fields = _STORE | {"tiered_store_file_path": str(tmp_path / "bucket")}
    async with cluster(tmp_path) as group:
        master = await group.start("broker-a", store=fields)
        client = group.client(master)
        sent = [b"body %d " % number * 100 for number in range(60)]
        for body in sent[:50]:
            await client.send(body)
        whole = master.store.wrote_offset // (16 * 1024) * (16 * 1024)
        async with asyncio.timeout(60):
            while not (tmp_path / "bucket").exists() or (await _uploaded(tmp_path)) < whole:
                await asyncio.sleep(0.05)
        archive = await open_archive(f"file://{tmp_path}/bucket")
        restored = await ArchiveRestore(archive.objects, archive.manifest, tmp_path / "broker-a-1" / "store").run()
        assert restored.log_end >= whole
        slave = await group.start("broker-a", 1, store=fields)
        started_at = slave.store.wrote_offset
        for body in sent[50:]:
            await client.send(body)
        await until(lambda: slave.store.wrote_offset == master.store.wrote_offset)
        assert started_at >= restored.log_end
        assert bodies_in_order(slave, TOPIC) == sent


async def _uploaded(root: Path) -> int:
    from sprocket.common.errors import StoreError

    try:
        return (await open_archive(f"file://{root}/bucket")).manifest.uploaded_end
    except StoreError:
        return 0
