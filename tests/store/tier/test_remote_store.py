"""Object stores through obstore: a directory, memory, S3 as moto's server speaks it, GCS, and Azure as Azurite does."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from email.utils import formatdate
from pathlib import Path

import pytest
from aiohttp import web

from sprocket.common.errors import ConfigError
from store.tier.archive_check import ArchiveCheck
from store.tier.archive_writer import Fenced
from store.tier.manifest import NAME
from store.tier.manifest_rebuild import ManifestRebuild
from store.tier.object_store import Conflict, Damaged, Full, NotFound, ObjectStore, Refused, Unavailable, Version
from store.tier.remote_store import Access, open_store
from store.tier.restore import ArchiveRestore
from tests.azure_server import ACCOUNT, azurite
from tests.gcs_server import gcs_server
from tests.s3_server import make_bucket, s3_server
from tests.store.rig import Stores
from tests.store.tier.archive_rig import GROUP, FakeSource, upload_all, writer_of
from tests.store.tier.test_archive_writer import filled

pytest.importorskip("obstore")


@pytest.fixture(scope="module")
def s3() -> Iterator[str]:
    """The address of a server that speaks S3, with a bucket."""
    with s3_server() as endpoint:
        make_bucket(endpoint)
        yield endpoint


@pytest.fixture(scope="module")
def gs() -> Iterator[dict[str, str]]:
    with gcs_server() as environment:
        yield environment


@pytest.fixture(scope="module")
def az() -> Iterator[dict[str, str]]:
    with azurite() as environment:
        yield environment


@pytest.fixture(params=["memory", "file", "s3", "gs", "az"])
def store(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ObjectStore:
    if request.param in ("gs", "az"):
        for name, value in request.getfixturevalue(request.param).items():
            monkeypatch.setenv(name, value)
        place = "bucket" if request.param == "gs" else f"{ACCOUNT}/bucket"
        return open_store(f"{request.param}://{place}/{tmp_path.name}", Access(max_retries=0))
    if request.param == "memory":
        return open_store("memory:///")
    if request.param == "file":
        return open_store(f"file://{tmp_path}/bucket")
    endpoint = request.getfixturevalue("s3")
    return open_store(f"s3://bucket/{tmp_path.name}", access_to(endpoint))


def access_to(endpoint: str) -> Access:
    return Access(endpoint=endpoint, access_key="key", secret_key="secret", region="us-east-1", max_retries=0)


async def pieces(*parts: bytes) -> AsyncIterator[bytes]:
    for part in parts:
        yield part


async def test_an_object_is_read_as_it_was_written(store: ObjectStore) -> None:
    await store.put("a/one", b"0123456789")
    assert (await store.get("a/one", 10)).content == b"0123456789"
    assert await store.get_range("a/one", 3, 6) == b"345"
    assert (await store.head("a/one")).size_bytes == 10
    assert b"".join([piece async for piece in store.stream("a/one")]) == b"0123456789"


async def test_an_object_is_written_in_parts(store: ObjectStore) -> None:
    part = bytes(range(256)) * 4096 * 6
    await store.put("big", pieces(part, part, b"end"))
    assert b"".join([piece async for piece in store.stream("big")]) == part + part + b"end"


async def test_of_two_writers_one_wins(store: ObjectStore) -> None:
    first = await store.put_if("manifest", b"one", None)
    with pytest.raises(Conflict):
        await store.put_if("manifest", b"other", None)
    results = await asyncio.gather(
        *(store.put_if("manifest", b"two %d" % number, first) for number in range(5)), return_exceptions=True
    )
    winners = [number for number, result in enumerate(results) if isinstance(result, Version)]
    assert len(winners) == 1
    assert all(isinstance(result, Conflict) for result in results if not isinstance(result, Version))
    found = await store.get("manifest", 100)
    assert found.content == b"two %d" % winners[0]
    assert found.version.e_tag == results[winners[0]].e_tag  # type: ignore[union-attr]
    with pytest.raises(Conflict):
        await store.put_if("manifest", b"three", first)
    await store.put_if("manifest", b"three", found.version)


async def test_a_put_that_expects_an_object_makes_none(store: ObjectStore) -> None:
    with pytest.raises(Conflict):
        await store.put_if("gone", b"one", Version('"abc"', "17"))
    with pytest.raises(NotFound):
        await store.head("gone")


async def test_objects_are_listed_by_folder_and_deleted(store: ObjectStore) -> None:
    for name in ("a/one", "a/two", "b/three"):
        await store.put_if(name, b"x", None)
    assert sorted([one.key async for one in store.list("a")]) == ["a/one", "a/two"]
    await store.delete("a/one")
    await store.delete("a/one")
    assert [one.key async for one in store.list("a")] == ["a/two"]


async def test_what_is_not_there_or_too_long_is_named(store: ObjectStore) -> None:
    await store.put("one", b"0123456789")
    for call in (store.get("no", 10), store.get_range("no", 0, 1), store.head("no")):
        with pytest.raises(NotFound, match="no"):
            await call
    with pytest.raises(Damaged, match="at most 9"):
        await store.get("one", 9)
    with pytest.raises(Damaged):
        await store.get_range("one", 5, 11)
    with pytest.raises(Damaged):
        await store.get_range("one", 50, 60)


async def test_a_store_that_cannot_be_reached_is_unavailable() -> None:
    store = open_store("s3://bucket", access_to("http://127.0.0.1:9"))
    with pytest.raises(Unavailable):
        await store.put("one", b"x")


async def test_a_bucket_that_is_not_there_is_refused_and_said(s3: str) -> None:
    store = open_store("s3://nosuchbucket", access_to(s3))
    calls = (
        store.put("one", b"x"),
        store.put_if("one", b"x", None),
        store.get("one", 9),
        anext(aiter(store.list("one"))),
    )
    for call in calls:
        with pytest.raises(Refused, match="one: "):
            await call


async def test_a_store_that_answers_403_for_its_quota_is_full() -> None:
    async def answer(request: web.BaseRequest) -> web.Response:
        return web.Response(status=403, text="<Error><Code>QuotaExceeded</Code></Error>")

    async with served(answer) as address:
        with pytest.raises(Full, match="one"):
            await open_store("s3://bucket", access_to(address)).put("one", b"x")


@pytest.mark.slow
async def test_a_request_may_take_long_if_the_store_goes_on_sending() -> None:
    piece, count = bytes(100_000), 14

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse(headers={"ETag": '"1"', "Last-Modified": formatdate(usegmt=True)})
        response.content_length = count * len(piece)
        await response.prepare(request)
        for _ in range(count):
            await response.write(piece)
            await asyncio.sleep(0.5)
        return response

    async with served(answer) as address:
        store = open_store("s3://bucket", replace(access_to(address), timeout_s=5))
        assert sum([len(piece) async for piece in store.stream("one")]) == count * len(piece)


async def test_a_store_that_says_nothing_is_unavailable() -> None:
    is_over = asyncio.Event()

    async def answer(request: web.BaseRequest) -> web.Response:
        await is_over.wait()
        return web.Response()

    async with served(answer) as address:
        store = open_store("s3://bucket", replace(access_to(address), timeout_s=0.2))
        for call in (store.put("one", b"x"), store.get("one", 9), store.head("one")):
            with pytest.raises(Unavailable, match="one"):
                await call
        is_over.set()


@asynccontextmanager
async def served(answer: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]) -> AsyncIterator[str]:
    """Yield the address of a store that answers all requests with `answer`."""
    runner = web.ServerRunner(web.Server(answer))
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        host, port = runner.addresses[0][:2]
        yield f"http://{host}:{port}"
    finally:
        await runner.cleanup()


def test_an_address_of_azure_without_a_container_is_refused() -> None:
    with pytest.raises(ConfigError, match="names no container: az://account/container/folder"):
        open_store("az://account")


async def test_an_archive_is_written_fenced_checked_and_restored(
    store: ObjectStore, stores: Stores, tmp_path: Path
) -> None:
    source = FakeSource(filled(stores))
    first = writer_of(store, source, stores.clock, incarnation="one")
    await first.claim()
    await upload_all(first)
    second = writer_of(store, source, stores.clock, incarnation="two")
    await second.claim()
    with pytest.raises(Fenced):
        await first.save_tables()
    assert await second.save_tables()
    check = ArchiveCheck(store, second.manifest, quick=False)
    await check.run()
    assert check.findings.is_fine
    restored = await ArchiveRestore(store, second.manifest, tmp_path / "again").run()
    assert restored.log_end == second.manifest.uploaded_end > 0
    await store.delete(NAME)
    rebuilt = await ManifestRebuild(store, GROUP).run(1)
    assert (rebuilt.uploaded_end, rebuilt.keys) == (second.manifest.uploaded_end, second.manifest.keys)


@pytest.mark.parametrize("url", ["bucket", "http://x/y", "s3://", "ftp://x"])
def test_an_address_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="is not the address of an object store"):
        open_store(url)
