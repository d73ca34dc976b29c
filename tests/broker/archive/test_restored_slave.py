"""A new slave starts from the archive of its group, and follows the master from there."""

import asyncio
from pathlib import Path

import pytest

from broker.server import Broker
from sprocket.common.errors import StoreError
from sprocket.remoting.codes import RequestCode
from store.tier.open_archive import open_archive
from store.tier.restore import ArchiveRestore
from tests.broker.group_rig import Cluster, cluster
from tests.broker.rig import TOPIC, bodies_in_order, create
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


async def _shortened(group: Cluster, master: Broker, fields: dict[str, object]) -> Broker:
    """Return the master, started again without its oldest segments, which the archive has."""
    whole = master.store.wrote_offset // (16 * 1024) * (16 * 1024)
    async with asyncio.timeout(60):
        while await _uploaded(group.root) < whole:
            await asyncio.sleep(0.05)
    await group.stop("broker-a")
    for path in sorted((group.root / "broker-a-0" / "store" / "commitlog").iterdir())[:2]:
        path.unlink()
    return await group.start("broker-a", store=fields)


async def test_a_slave_of_a_master_with_a_shortened_log_has_what_only_the_archive_has(tmp_path: Path) -> None:
    fields = _STORE | {"tiered_store_file_path": str(tmp_path / "bucket")}
    async with cluster(tmp_path) as group:
        master = await group.start("broker-a", store=fields)
        sent = [b"body %d " % number * 100 for number in range(60)]
        for body in sent[:50]:
            await group.client(master).send(body)
        master = await _shortened(group, master, fields)
        assert master.store.min_offset(TOPIC, 0) > 0
        archive = await open_archive(f"file://{tmp_path}/bucket")
        restored = await ArchiveRestore(archive.objects, archive.manifest, tmp_path / "broker-a-1" / "store").run()
        assert restored.fillers_end == 0
        slave = await group.start("broker-a", 1, store=fields)
        client = group.client(master)
        for body in sent[50:]:
            await client.send(body)
        await until(lambda: slave.store.wrote_offset == master.store.wrote_offset)
        assert bodies_in_order(slave, TOPIC) == sent


async def test_a_store_that_lacks_messages_is_refused_as_a_slave_and_says_what_to_do(tmp_path: Path) -> None:
    fields = _STORE | {"tiered_store_file_path": str(tmp_path / "bucket"), "tiered_store_all_topics": False}
    async with cluster(tmp_path) as group:
        master = await group.start("broker-a", store=fields)
        client = group.client(master)
        await client.ask_well(RequestCode.UPDATE_AND_CREATE_TOPIC, create("Audit", attributes="+reserve.time=720"))
        for number in range(60):
            await client.send(b"body" * 200, topic=("Audit", TOPIC)[number % 2])
        master = await _shortened(group, master, fields)
        archive = await open_archive(f"file://{tmp_path}/bucket")
        root = tmp_path / "broker-a-1" / "store"
        restored = await ArchiveRestore(archive.objects, archive.manifest, root).run()
        assert any("a slave cannot start" in line for line in restored.missing())
        with pytest.raises(StoreError, match=r"cannot be a slave's store.*empty storePathRootDir"):
            await group.start("broker-a", 1, store=fields)
        await group.stop("broker-a", 1)
        await group.stop("broker-a")
        # Nobody follows it: as a master it starts.
        alone = await group.start("broker-b", store=_STORE | {"store_path_root_dir": root})
        assert alone.store.max_offset("Audit", 0) > 0


async def _uploaded(root: Path) -> int:
    from sprocket.common.errors import StoreError

    try:
        return (await open_archive(f"file://{root}/bucket")).manifest.uploaded_end
    except StoreError:
        return 0
