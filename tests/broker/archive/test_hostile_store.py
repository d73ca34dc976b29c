"""An object store that does harm: a group that reads from it is told, nobody else notices, nothing is lost after it."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from broker.archive.archive_reads import ArchiveReads
from broker.archive.archive_service import ArchiveService
from sprocket.remoting.codes import ResponseCode
from sprocket.remoting.headers.pull import PullMessageResponseHeader
from store.tier.object_store import ObjectStore
from store.tier.reads import tiered_reads
from store.tier.remote_store import open_store
from tests.broker.archive.test_archive_reads import COUNT, body, pulled, tiered
from tests.broker.insides import service_of
from tests.broker.topic.test_topic_retention import SEGMENT_BYTES, Served
from tests.s3_server import delete_bucket, make_bucket, s3_server
from tests.store.tier.http_fault_proxy import HttpFaultProxy
from tests.store.tier.test_remote_store import access_to
from tests.waiting import until

pytest.importorskip("obstore")
LAST = COUNT // 2 - 1


@pytest.fixture
def endpoint(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The address of a server that speaks S3, with a bucket."""
    monkeypatch.setattr(tiered_reads, "_PAUSE_S", 0.01)
    with s3_server() as endpoint:
        make_bucket(endpoint)
        yield endpoint


@asynccontextmanager
async def behind_proxy(root: Path, endpoint: str) -> AsyncIterator[tuple[Served, HttpFaultProxy]]:
    """A broker whose first messages are in S3 alone, which it reaches through a proxy."""
    async with HttpFaultProxy(endpoint, 1) as proxy:
        keys = {
            "tiered_store_file_path": "", "object_store_bucket": "s3://bucket", "object_store_access_key": "key",
            "object_store_endpoint": proxy.address, "object_store_secret_key": "secret",
            "tiered_store_read_timeout": 500,
        }  # fmt: skip
        async with tiered(root, **keys) as one:
            yield one, proxy


async def others_go_on(one: Served) -> None:
    """Assert that a group at the end of the queue is served, and that sends are taken."""
    assert (await one.client.pull(offset=LAST)).code == ResponseCode.SUCCESS
    assert (await one.send())[0] == ResponseCode.SUCCESS


async def all_is_read(one: Served) -> None:
    """Assert that after the harm every message is read, each once and in order."""
    while (response := await one.client.pull(offset=3)).code != ResponseCode.SUCCESS:
        assert response.code == ResponseCode.PULL_RETRY_IMMEDIATELY, response.remark
    for queue_id in (0, 1):
        found = [bytes(record.body) for record in await pulled(one, queue_id)]
        assert found[: COUNT // 2] == [body(n) for n in range(queue_id, COUNT, 2)]


def segments_of(endpoint: str) -> ObjectStore:
    """The bucket, without the proxy."""
    return open_store("s3://bucket/DefaultCluster/broker-a", access_to(endpoint))


@pytest.mark.parametrize("harm", ["hang", "refuse", "cut", "lie"])
async def test_a_group_that_reads_from_a_harmful_store_is_told_to_try_again(
    tmp_path: Path, endpoint: str, harm: str
) -> None:
    async with behind_proxy(tmp_path, endpoint) as (one, proxy):
        proxy.always = harm
        for offset in (3, 4):
            response = await one.client.pull(offset=offset)
            assert response.code == ResponseCode.PULL_RETRY_IMMEDIATELY
            assert response.header(PullMessageResponseHeader).next_begin_offset == offset
        await others_go_on(one)
        figures = {
            metric.name: dict(metric.read()) for metric in service_of(one.broker, ArchiveReads).exported_metrics()
        }
        assert figures["sprocket_tiered_store_failed_reads_total"][()] == 2
        proxy.always = ""
        await all_is_read(one)


@pytest.mark.parametrize("harm", ["truncated", "replaced", "deleted"])
async def test_an_object_that_somebody_changed_is_never_served(tmp_path: Path, endpoint: str, harm: str) -> None:
    async with behind_proxy(tmp_path, endpoint) as (one, _):
        objects = segments_of(endpoint)
        kept = {key: (await objects.get(key, 1 << 20)).content async for key, *_ in objects.list("segments")}
        assert kept
        for key, content in kept.items():
            if harm == "deleted":
                await objects.delete(key)
            else:
                await objects.put(key, content[:500] if harm == "truncated" else bytes(len(content)))
        response = await one.client.pull(offset=3)
        if harm == "deleted":
            assert response.code == ResponseCode.PULL_RETRY_IMMEDIATELY
        else:
            assert response.code == ResponseCode.SERVICE_NOT_AVAILABLE
            assert "segments/0000" in (response.remark or "")
        await others_go_on(one)
        for key, content in kept.items():
            await objects.put(key, content)
        await all_is_read(one)


@pytest.mark.parametrize("harm", ["forbid", "hang", "refuse"])
async def test_while_nothing_can_be_written_the_disk_keeps_all_and_the_archive_goes_on_later(
    tmp_path: Path, endpoint: str, harm: str
) -> None:
    async with behind_proxy(tmp_path, endpoint) as (one, proxy):
        figures = service_of(one.broker, ArchiveService).figures_now
        proxy.always = harm
        before = figures.uploaded_end or 0
        await one.fill(12)
        if harm == "forbid":
            await until(lambda: figures.trouble == "Refused")
        one.disk.log_used = 0.86
        for _ in range(5):
            one.clock.advance(11)
            await one.fill(1)
        assert one.broker.store.first_physical_offset <= before == figures.uploaded_end
        one.disk.log_used = 0.5
        proxy.always = ""
        end = one.broker.store.wrote_offset
        await until(lambda: (figures.uploaded_end or 0) >= end - end % SEGMENT_BYTES)
        assert not figures.trouble
        await all_is_read(one)


async def test_a_bucket_that_somebody_deleted_is_named_and_a_new_one_is_not_taken_for_it(
    tmp_path: Path, endpoint: str
) -> None:
    async with behind_proxy(tmp_path, endpoint) as (one, _):
        figures = service_of(one.broker, ArchiveService).figures_now
        objects = open_store("s3://bucket", access_to(endpoint))
        for key in [info.key async for info in objects.list("")]:
            await objects.delete(key)
        delete_bucket(endpoint)
        await one.fill(12)
        await until(lambda: figures.trouble == "Refused")
        await others_go_on(one)
        make_bucket(endpoint)
        await until(lambda: figures.trouble == "Damaged")
        await others_go_on(one)
