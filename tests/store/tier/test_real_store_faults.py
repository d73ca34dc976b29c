"""The archive over the real client of S3 and a server that speaks it, with a proxy between them that does harm."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Iterator

import pytest

from store.tier.archive_writer import Fenced
from store.tier.group_store import GroupStore
from store.tier.manifest import folder_of
from store.tier.object_store import ObjectStoreError
from store.tier.remote_store import open_store
from tests.s3_server import make_bucket, s3_server
from tests.store.rig import Stores
from tests.store.tier.archive_rig import GROUP, FakeSource, check_archive, writer_of
from tests.store.tier.fake_store import FakeBucket
from tests.store.tier.http_fault_proxy import HttpFaultProxy
from tests.store.tier.test_archive_writer import FILE_BYTES, filled
from tests.store.tier.test_remote_store import access_to

pytest.importorskip("obstore")


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    with s3_server() as endpoint:
        yield endpoint


async def copy_of(url: str, endpoint: str, stores: Stores) -> FakeBucket:
    """Return what is in the bucket of a group, read without the proxy."""
    group, bucket = GroupStore(open_store(url, access_to(endpoint)), folder_of(*GROUP), stores.clock), FakeBucket()
    async for found in group.list(""):
        bucket.objects[found.key] = (await group.get(found.key, 1 << 30)).content, 1
    return bucket


async def live(
    url: str, address: str, source: FakeSource, stores: Stores, incarnation: str, *, until_end: int, limit_s: float
) -> str:
    """Archive as a master does, until all is there, another master has it, or the process dies."""
    store = GroupStore(open_store(url, access_to(address)), folder_of(*GROUP), stores.clock)
    writer = writer_of(store, source, stores.clock, incarnation=incarnation)
    is_claimed = False
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(limit_s):
            while not is_claimed or writer.manifest.uploaded_end < until_end:
                try:
                    if not is_claimed:
                        await writer.claim()
                        is_claimed = True
                    await writer.step(60.0)
                    await writer.save_tables()
                except Fenced:
                    return "fenced"
                except ObjectStoreError:
                    continue
            return "done"
    return "killed"


@pytest.mark.parametrize("seed", range(3))
async def test_harm_between_broker_and_store_delays_the_archive_alone(stores: Stores, endpoint: str, seed: int) -> None:
    source, url = FakeSource(filled(stores)), make_bucket(endpoint, f"harm{seed}")
    end = source.end_offset - source.end_offset % FILE_BYTES
    async with HttpFaultProxy(endpoint, seed) as proxy:
        proxy.faults = 0.3
        for number in range(4):
            await live(
                url,
                proxy.address,
                source,
                stores,
                f"life{number}",
                until_end=end,
                limit_s=0.2 * (number + 1) + seed / 9,
            )
            check_archive(await copy_of(url, endpoint, stores), source)
        proxy.faults = 0.1
        assert await live(url, proxy.address, source, stores, "last", until_end=end, limit_s=60) == "done"
        assert len(proxy.met) > 4
    manifest = check_archive(await copy_of(url, endpoint, stores), source)
    assert manifest is not None
    assert manifest.uploaded_end == end


async def test_two_masters_that_both_believe_do_not_harm_each_other(stores: Stores, endpoint: str) -> None:
    source, url = FakeSource(filled(stores)), make_bucket(endpoint, "twomasters")
    end = source.end_offset - source.end_offset % FILE_BYTES
    async with HttpFaultProxy(endpoint, 5) as proxy:
        proxy.faults = 0.1
        ends = await asyncio.gather(
            *(live(url, proxy.address, source, stores, name, until_end=end, limit_s=60) for name in ("one", "two"))
        )
    assert "done" in ends
    manifest = check_archive(await copy_of(url, endpoint, stores), source)
    assert manifest is not None
    assert manifest.uploaded_end == end


async def test_requests_are_counted_as_the_store_gets_them(stores: Stores, endpoint: str) -> None:
    async with HttpFaultProxy(endpoint, 1) as proxy:
        proxy.faults = 0.0
        group = GroupStore(open_store(make_bucket(endpoint, "bill"), access_to(proxy.address)), "g", stores.clock)

        async def pieces(count: int) -> AsyncIterator[bytes]:
            for _ in range(count):
                yield bytes(3 << 20)

        await group.put("small", b"x")
        await group.put("large", bytes(9 << 20))
        await group.put("stream", pieces(1))
        await group.put("parts", pieces(7))
        await group.put_if("manifest", b"x", None)
        await group.get("large", 1 << 30)
        await group.get_range("large", 5, 9)
        await group.head("large")
        assert sum([len(piece) async for piece in group.stream("parts")]) == 21 << 20
        assert len([found async for found in group.list("")]) == 5
        await group.delete("small")
    methods = Counter(proxy.served)
    is_list = methods.pop("LIST")
    assert group.requests["write"] == methods["PUT"] + methods["POST"] + is_list
    assert group.requests["read"] == methods["GET"] + methods["HEAD"]
    assert group.requests["delete"] == methods["DELETE"] == 1
    assert sum(sizes.total for _, sizes in group.uploaded.read()) == 2 + (9 + 3 + 21 << 20)
    assert sum(sizes.total for _, sizes in group.downloaded.read()) == (9 << 20) + 4 + (21 << 20)
