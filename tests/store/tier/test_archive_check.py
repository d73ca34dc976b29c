"""A check of an archive finds what is damaged, missing or unnamed, and a repair makes the manifest true again."""

import pytest

from store.inspection.finding import Severity
from store.tier.archive_check import ArchiveCheck, repair
from store.tier.manifest import MAX_BYTES, NAME, Manifest, TablesEntry, decode, encode
from store.tier.object_store import Conflict
from store.tier.remote_store import RemoteStore
from tests.store.rig import Stores, message
from tests.store.tier.reads.read_rig import archive, memory_objects


@pytest.fixture
async def whole(stores: Stores) -> tuple[RemoteStore, Manifest]:
    stores.fields["mapped_file_size_commit_log"] = 32 * 1024
    store, objects = stores.open(), memory_objects()
    for number in range(900):
        stores.clock.advance(1.0)
        store.append([message("Orders", number % 3, b"body %d " % number * 5)])
    return objects, await archive(store, objects)


async def found(objects: RemoteStore, manifest: Manifest, *, quick: bool = False) -> ArchiveCheck:
    check = ArchiveCheck(objects, manifest, quick=quick)
    await check.run()
    return check


def kinds(check: ArchiveCheck) -> list[tuple[str, Severity]]:
    return [(one.kind, one.severity) for one in check.findings.kept if one.kind != "no_tables"]


async def flip(objects: RemoteStore, key: str, at: int) -> None:
    content = bytearray((await objects.get(key, 1 << 30)).content)
    content[at] ^= 1
    await objects.put(key, bytes(content))


@pytest.mark.parametrize("quick", [True, False])
async def test_nothing_is_wrong_with_what_was_uploaded(whole: tuple[RemoteStore, Manifest], quick: bool) -> None:
    check = await found(*whole, quick=quick)
    assert check.findings.is_fine
    assert kinds(check) == []


async def test_a_flipped_bit_is_found(whole: tuple[RemoteStore, Manifest]) -> None:
    objects, manifest = whole
    await flip(objects, manifest.segments[1].key, 50)
    assert kinds(await found(objects, manifest)) == [("segment", Severity.LOSS)]
    assert kinds(await found(objects, manifest, quick=True)) == []


async def test_a_damaged_footer_is_found_without_reading_messages(whole: tuple[RemoteStore, Manifest]) -> None:
    objects, manifest = whole
    await flip(objects, manifest.segments[1].key, -20)
    assert kinds(await found(objects, manifest, quick=True)) == [("segment", Severity.LOSS)]


async def test_missing_and_short_objects_are_found(whole: tuple[RemoteStore, Manifest]) -> None:
    objects, manifest = whole
    await objects.delete(manifest.segments[0].key)
    short = manifest.segments[1].key
    await objects.put(short, (await objects.get(short, 1 << 30)).content[:-1])
    check = await found(objects, manifest, quick=True)
    assert check.lost == {manifest.segments[0].key, short}


async def test_objects_that_the_manifest_does_not_name_and_gaps_are_told(whole: tuple[RemoteStore, Manifest]) -> None:
    objects, manifest = whole
    gone = manifest.segments[1].key
    check = await found(objects, manifest.without([gone], 2))
    assert check.findings.is_fine
    assert kinds(check) == [("gap", Severity.NOTE), ("unnamed", Severity.NOTE)]
    assert [info.key for info in check.unnamed] == [gone]


async def test_a_repair_forgets_what_cannot_be_read(whole: tuple[RemoteStore, Manifest]) -> None:
    objects, manifest = whole
    tables = TablesEntry("tables/00000000000000000001-0-test-1", 5, "0" * 64, 1, 1)
    manifest = manifest.with_tables(tables, 1)
    version = await objects.put_if(NAME, encode(manifest), None)
    await flip(objects, manifest.segments[1].key, 50)
    check = await found(objects, manifest)
    assert check.lost == {manifest.segments[1].key, tables.key}
    await repair(objects, manifest, version, check.lost, 5)
    repaired = decode((await objects.get(NAME, MAX_BYTES)).content)
    assert repaired.tables is None
    assert len(repaired.segments) == len(manifest.segments) - 1
    assert (await found(objects, repaired)).findings.is_fine


async def test_a_repair_does_not_overwrite_what_a_broker_wrote_meanwhile(whole: tuple[RemoteStore, Manifest]) -> None:
    objects, manifest = whole
    version = await objects.put_if(NAME, encode(manifest), None)
    await objects.put_if(NAME, encode(manifest.claimed(0, "other", 2)), version)
    with pytest.raises(Conflict):
        await repair(objects, manifest, version, {manifest.segments[0].key}, 5)
