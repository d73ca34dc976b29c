"""A broker with tiered storage: it uploads, drops only what is archived, and needs the object store for no more."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from broker.archive.archive_service import ArchiveService
from broker.server import Broker
from sprocket.common.errors import ConfigError
from sprocket.remoting.codes import RequestCode, ResponseCode
from store.tier.group_store import GroupStore
from store.tier.manifest import MAX_BYTES, Manifest, decode
from store.tier.object_store import Full, NotFound
from store.tier.remote_store import open_store
from store.tier.tables_object import MAX_BYTES as MAX_TABLES_BYTES
from store.tier.tables_object import decode_tables
from tests.broker.insides import service_of
from tests.broker.rig import broker_config, create, store_config
from tests.broker.topic.test_topic_retention import SEGMENT_BYTES, FilledDisk, Served, hour
from tests.clock import ManualClock
from tests.store.tier.packers import packers
from tests.waiting import until

FOLDER = "DefaultCluster/broker-a"


@asynccontextmanager
async def served(root: Path, **fields: Any) -> AsyncIterator[Served]:
    """A broker that archives into a directory, and cleans its disk without waiting."""
    disk, clock = FilledDisk(), ManualClock()
    config = store_config(
        root, mapped_file_size_commit_log=SEGMENT_BYTES, flush_interval_commit_log=5, flush_commit_log_least_pages=0,
        delete_commit_log_files_interval=1, delete_when=f"{(hour(clock) + 12) % 24:02}",
        disk_space_warning_level_ratio=90, clean_file_forcibly_enable=True, max_flush_time=10**12,
        **({"tiered_store_file_path": str(root / "bucket")} | fields),
    )  # fmt: skip
    broker = Broker(broker_config(), config, clock=clock, disk=disk, on_fatal=pytest.fail)
    await broker.start()
    one = Served(broker, disk, clock)
    try:
        yield one
    finally:
        await one.client.close()
        await broker.stop()


async def manifest_of(root: Path) -> Manifest | None:
    try:
        return decode((await open_store(f"file://{root}/bucket").get(f"{FOLDER}/manifest", MAX_BYTES)).content)
    except NotFound:
        return None


async def archived_to(root: Path, end: int) -> Manifest:
    """Wait until the archive reaches `end`."""
    async with asyncio.timeout(60):
        while (manifest := await manifest_of(root)) is None or manifest.uploaded_end < end or manifest.tables is None:
            await asyncio.sleep(0.02)
    return manifest


def files_of(root: Path) -> list[str]:
    return sorted(path.name for path in (root / "store" / "commitlog").iterdir())


async def test_closed_files_and_tables_are_archived_and_the_disk_drops_only_those(tmp_path: Path) -> None:
    async with served(tmp_path) as one:
        await one.fill(60)
        end = one.broker.store.wrote_offset
        whole = end - end % SEGMENT_BYTES
        assert whole >= 3 * SEGMENT_BYTES
        manifest = await archived_to(tmp_path, whole)
        assert manifest.uploaded_end == whole
        assert manifest.tables is not None
        bucket = open_store(f"file://{tmp_path}/bucket")
        tables = await bucket.get(f"{FOLDER}/{manifest.tables.key}", MAX_TABLES_BYTES)
        assert "config/topics.json" in decode_tables(tables.content)
        one.disk.log_used = 0.86
        await one.after(1.0, lambda: len(files_of(tmp_path)) < 4)
        assert one.broker.store.max_offset("Orders", 0) == 60


async def test_without_the_object_store_the_broker_starts_and_keeps_all_until_sends_are_refused(tmp_path: Path) -> None:
    fields = {
        "tiered_store_file_path": "", "object_store_bucket": "bucket", "object_store_endpoint": "http://127.0.0.1:9",
        "object_store_access_key": "key", "object_store_secret_key": "secret",
    }  # fmt: skip
    async with served(tmp_path, **fields) as one:
        await one.fill(60)
        files = files_of(tmp_path)
        one.disk.log_used = 0.89
        for _ in range(30):
            one.clock.advance(11)
            await one.fill(1)
        assert files_of(tmp_path)[: len(files)] == files
        one.disk.log_used = 0.93
        pressure = one.broker.store.cleaner.pressure
        await one.after(1.0, lambda: pressure.max_unflushed_bytes < 0)
        code, remark = await one.send()
        assert code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert "disk is full" in remark
        assert files_of(tmp_path)[: len(files)] == files


async def test_only_topics_with_a_time_are_archived_if_the_operator_wants_it_so(tmp_path: Path) -> None:
    async with served(tmp_path, tiered_store_all_topics=False) as one:
        header = create("Audit", attributes="+reserve.time=720")
        await one.client.ask_well(RequestCode.UPDATE_AND_CREATE_TOPIC, header)
        for number in range(60):
            await one.client.send(b"body" * 20, topic=("Audit", "Orders")[number % 2])
        end = one.broker.store.wrote_offset
        manifest = await archived_to(tmp_path, end - end % SEGMENT_BYTES)
        assert manifest.reserve_of("Audit") == 720 * 3_600_000
        assert [entry.topics for entry in manifest.segments] == [["Audit"]] * len(manifest.segments)
        assert all(entry.dropped for entry in manifest.segments)


async def test_a_broker_that_starts_again_goes_on_where_it_was(tmp_path: Path) -> None:
    async with served(tmp_path) as one:
        await one.fill(60)
        end = one.broker.store.wrote_offset
        first = await archived_to(tmp_path, end - end % SEGMENT_BYTES)
    async with served(tmp_path) as one:
        await one.fill(60)
        end = one.broker.store.wrote_offset
        second = await archived_to(tmp_path, end - end % SEGMENT_BYTES)
    assert second.segments[: len(first.segments)] == first.segments
    assert second.writer.term > first.writer.term


async def test_the_process_that_packs_ends_while_the_store_has_no_room_and_when_it_is_idle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_full = True

    async def put(store: GroupStore, key: str, content: bytes | AsyncIterator[bytes]) -> None:
        if is_full and not isinstance(content, bytes):
            await anext(content)
            seen.update(packers(os.getpid()))
            raise Full(f"{key}: no room")
        await whole_put(store, key, content)

    whole_put, seen = GroupStore.put, set[int]()
    monkeypatch.setattr(GroupStore, "put", put)
    async with served(tmp_path) as one:
        await one.fill(60)
        figures = service_of(one.broker, ArchiveService).figures_now
        await until(lambda: figures.trouble == "Full")
        assert seen
        await until(lambda: not packers(os.getpid()))
        is_full = False
        end = one.broker.store.wrote_offset
        await archived_to(tmp_path, end - end % SEGMENT_BYTES)
        assert packers(os.getpid())
        await one.after(61.0, lambda: not packers(os.getpid()))


async def test_an_upload_goes_on_after_the_process_that_packs_was_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed = list[int]()

    async def put(store: GroupStore, key: str, content: bytes | AsyncIterator[bytes]) -> None:
        if not isinstance(content, bytes) and not killed and (running := packers(os.getpid())):
            # That of the part before; of this one it has said nothing yet.
            killed.extend(running)
            os.kill(running[0], signal.SIGKILL)
        await whole_put(store, key, content)

    whole_put = GroupStore.put
    monkeypatch.setattr(GroupStore, "put", put)
    async with served(tmp_path) as one:
        await one.fill(60)
        end = one.broker.store.wrote_offset
        manifest = await archived_to(tmp_path, end - end % SEGMENT_BYTES)
        assert sum(entry.records for entry in manifest.segments) > 40
    assert len(killed) == 1


async def test_an_archive_in_two_places_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is one archive"):
        async with served(tmp_path, object_store_bucket="memory:///"):
            pass
