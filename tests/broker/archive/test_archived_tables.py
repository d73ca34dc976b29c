"""A compacted topic in the archive: its table outlives the log there, and a restored broker has it."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from sprocket.remoting.codes import RequestCode
from sprocket.remoting.headers.offset import (
    GetMinOffsetRequestHeader,
    GetMinOffsetResponseHeader,
    SearchOffsetRequestHeader,
    SearchOffsetResponseHeader,
)
from store.inspection.finding import Severity
from store.tier.archive_check import ArchiveCheck, repair
from store.tier.manifest import Manifest
from store.tier.open_archive import open_archive
from store.tier.restore import ArchiveRestore, Restored
from tests.broker.archive.test_archive_reader import reader
from tests.broker.archive.test_archive_service import FOLDER, manifest_of, served
from tests.broker.pop.rig import messages_of, pop
from tests.broker.rig import GROUP, TOPIC, create, running_broker
from tests.broker.test_compacted_topics import create_compacted, pulled
from tests.broker.topic.test_topic_retention import SEGMENT_BYTES, Served
from tests.waiting import until

STORE: dict[str, Any] = {
    "compaction_schedule_internal": 100, "tiered_store_file_reserved_time": 1,
    "tiered_store_delete_file_interval": 1000,
}  # fmt: skip


async def close_file(one: Served) -> None:
    """Fill the log's file with other messages."""
    store = one.broker.store
    file = store.wrote_offset // SEGMENT_BYTES
    while store.wrote_offset // SEGMENT_BYTES == file:
        await one.client.send(b"x" * 2000, topic="Other")


async def close_segment(one: Served) -> None:
    """Fill the log's file with other messages, and wait until what was in it is compacted."""
    compaction = one.broker.store.compaction
    done = compaction.finished
    await close_file(one)
    await one.after(1.0, lambda: compaction.finished > done)


async def archived(root: Path, one: Served, wanted: Any, seconds: float = 20.0) -> Manifest:
    """Let time pass until the manifest is as `wanted`."""
    async with asyncio.timeout(60):
        while (manifest := await manifest_of(root)) is None or not wanted(manifest):
            one.clock.advance(seconds)
            await asyncio.sleep(0.02)
    return manifest


async def table_of(root: Path) -> dict[str, bytes]:
    async with running_broker(root, store={"mapped_file_size_commit_log": SEGMENT_BYTES}) as (_, client):
        return {message.keys[0]: message.body for message in await pulled(client) if message.body}


async def prices(one: Served) -> None:
    await create_compacted(one.client)
    await one.client.ask_well(RequestCode.UPDATE_AND_CREATE_TOPIC, create(topic="Other"))
    for key, body in [("a", b"1"), ("b", b"2"), ("a", b"3"), ("c", b"4"), ("c", b"")]:
        await one.client.send(body, KEYS=key)
    await close_segment(one)


async def restored(root: Path, folder: str = "again") -> Restored:
    archive = await open_archive(f"file://{root}/bucket")
    return await ArchiveRestore(archive.objects, archive.manifest, root / folder / "store").run()


async def served_table(root: Path, size: int) -> dict[str, bytes]:
    """The table as a consumer of a reader reads it, once the reader has `size` messages."""
    async with reader(root) as one:
        await until(lambda: one.broker.store.max_offset(TOPIC, 0) == size)
        config = one.broker.topics.get(TOPIC)
        assert config is not None
        assert config.attributes["cleanup.policy"] == "COMPACTION"
        response = await one.client.ask_well(
            RequestCode.GET_MIN_OFFSET, GetMinOffsetRequestHeader(topic=TOPIC, queue_id=0)
        )
        assert response.header(GetMinOffsetResponseHeader).offset == 0
        return {message.keys[0]: message.body for message in await pulled(one.client) if message.body}


async def popped_again(root: Path) -> None:
    """Pop the table's first message at a reader, and let it come again."""
    async with reader(root) as one:
        await until(lambda: one.broker.store.max_offset(TOPIC, 0) == 5)
        response = await pop(one.client, poll_time=20_000, max_msg_nums=1, queue_id=0, invisible_time=10_000)
        assert [message.body for message in messages_of(response)] == [b"2"]
        await one.after(1.0, lambda: one.broker.store.max_offset(f"%RETRY%{GROUP}_{TOPIC}", 0) == 1)


async def test_a_restored_broker_and_a_reader_have_the_table_also_when_the_archive_has_no_log_of_it(
    tmp_path: Path,
) -> None:
    async with served(tmp_path, **STORE) as one:
        await prices(one)
        await archived(tmp_path, one, lambda manifest: manifest.compacted)
        # An hour later nothing of the topic is left in the archive's log.
        await close_file(one)
        await archived(tmp_path, one, lambda manifest: not any(TOPIC in one.topics for one in manifest.segments), 600.0)
        assert await served_table(tmp_path, 5) == {"a": b"3", "b": b"2"}
        await popped_again(tmp_path)
        early = await restored(tmp_path, "early")
        assert early.compacted >= 2
        await one.client.send(b"5", KEYS="d")
        await close_segment(one)
        newest = await archived(tmp_path, one, lambda manifest: manifest.compacted[-1].part.end_offset == 6)
        assert len(newest.compacted) <= 2
        # It has files of before, and takes what is new.
        assert await served_table(tmp_path, 6) == {"a": b"3", "b": b"2", "d": b"5"}
    report = await restored(tmp_path)
    assert report.compacted >= 3
    assert await table_of(tmp_path / "early") == {"a": b"3", "b": b"2"}
    assert await table_of(tmp_path / "again") == {"a": b"3", "b": b"2", "d": b"5"}


async def test_a_reader_goes_on_with_the_log_after_the_table_and_finds_times_there(tmp_path: Path) -> None:
    async with served(tmp_path, **STORE) as one:
        await prices(one)
        await archived(tmp_path, one, lambda manifest: manifest.compacted)
    async with served(tmp_path, **STORE | {"compaction_schedule_internal": 10**12}) as one:
        for key, body in [("d", b"5"), ("a", b"6")]:
            one.clock.advance(7200.0)
            await one.client.send(body, KEYS=key)
        times = [one.broker.store.store_time(TOPIC, 0, offset) for offset in (5, 6)]
        await close_file(one)
        end = one.broker.store.wrote_offset // SEGMENT_BYTES * SEGMENT_BYTES
        await archived(tmp_path, one, lambda manifest: manifest.uploaded_end >= end, 0.0)
        async with reader(tmp_path) as other:
            await until(lambda: other.broker.store.max_offset(TOPIC, 0) == 7)
            found = await pulled(other.client)
            assert [(m.queue_offset, m.body) for m in found] == [(1, b"2"), (2, b"3"), (4, b""), (5, b"5"), (6, b"6")]
            search = SearchOffsetRequestHeader(topic=TOPIC, queue_id=0, timestamp=times[1])
            response = await other.client.ask_well(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, search)
            assert response.header(SearchOffsetResponseHeader).offset == 6


async def test_a_reader_serves_the_log_of_a_table_that_is_damaged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with served(tmp_path, **STORE) as one:
        await prices(one)
        manifest = await archived(tmp_path, one, lambda manifest: manifest.compacted)
        path = tmp_path / "bucket" / FOLDER / manifest.compacted[0].key
        path.write_bytes(path.read_bytes()[:-1] + b"?")
        async with reader(tmp_path) as other:
            await until(lambda: other.broker.store.max_offset(TOPIC, 0) == 5)
            assert f"event=archived_tables_incomplete count=1 topics='{TOPIC}'" in caplog.text
            assert [m.body for m in await pulled(other.client)] == [b"1", b"2", b"3", b"4", b""]


async def test_the_archive_keeps_the_log_of_a_table_that_is_not_compacted_yet(tmp_path: Path) -> None:
    # Retention would hurry compaction.
    never = {"compaction_schedule_internal": 10**12, "file_reserved_time": 10**6}
    async with served(tmp_path, **STORE | never) as one:
        await create_compacted(one.client)
        await one.client.ask_well(RequestCode.UPDATE_AND_CREATE_TOPIC, create(topic="Other"))
        await one.client.send(b"1", KEYS="a")
        while one.broker.store.wrote_offset < 3 * SEGMENT_BYTES:
            await one.client.send(b"x" * 2000, topic="Other")
        whole = one.broker.store.wrote_offset // SEGMENT_BYTES * SEGMENT_BYTES

        def is_rest_gone(manifest: Manifest) -> bool:
            return len(manifest.segments) == 1 and manifest.uploaded_end >= whole

        manifest = await archived(tmp_path, one, is_rest_gone, seconds=600.0)
        assert TOPIC in manifest.segments[0].topics
    await restored(tmp_path)
    assert await table_of(tmp_path / "again") == {"a": b"1"}


async def test_a_damaged_table_is_found_forgotten_and_uploaded_again(tmp_path: Path) -> None:
    async with served(tmp_path, **STORE) as one:
        await prices(one)
        await archived(tmp_path, one, lambda manifest: manifest.compacted)
    archive = await open_archive(f"file://{tmp_path}/bucket")
    (entry,) = archive.manifest.compacted
    await archive.objects.delete(entry.key)
    check = ArchiveCheck(archive.objects, archive.manifest, quick=True)
    await check.run()
    # The broker may have been stopped within an upload: that is a note.
    assert [one.kind for one in check.findings.kept if one.severity is not Severity.NOTE] == ["compacted"]
    manifest = await repair(archive.objects, archive.manifest, archive.version, check.lost, 1)
    assert manifest.compacted == []
    async with served(tmp_path, **STORE) as one:
        again = await archived(tmp_path, one, lambda manifest: manifest.compacted)
        assert again.compacted[0].part == entry.part
