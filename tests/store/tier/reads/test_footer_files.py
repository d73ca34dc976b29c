"""Footers on the local disk: they save a round trip, and nothing depends on them."""

from pathlib import Path

import pytest

from store.queue.get_result import GetStatus
from store.tier.manifest import Manifest
from store.tier.reads.archive_view import ArchiveView
from store.tier.reads.queue_reads import TierRead
from store.tier.reads.tiered_reads import TieredReads
from tests.store.rig import Stores, message
from tests.store.tier.reads.read_rig import SlowStore, answer, archive, memory_objects, without_segments


class Archived:
    """A store whose first two segments are only in the archive, and a folder for footers."""

    def __init__(self, stores: Stores, folder: Path) -> None:
        self.stores, self.folder = stores, folder
        self.objects = SlowStore(memory_objects())

    async def make(self) -> Manifest:
        store = self.stores.open()
        for number in range(200):
            store.append([message("Orders", 0, b"body %d " % number * 20)])
        self.manifest = await archive(store, self.objects)
        self.store = without_segments(self.stores, store, 2)
        return self.manifest

    def view(self) -> ArchiveView:
        return ArchiveView(self.objects, self.folder)

    async def requests_of_first_read(self) -> int:
        """Return how many ranges the first read of a broker that was started now asks for."""
        view = self.view()
        reads = TieredReads(lambda: self.stores.config, self.store, self.stores.clock, view)
        await view.adopt(self.manifest)
        self.objects.reads.clear()
        found = await answer(reads, TierRead("group", "Orders", 0, 0, 1, 1 << 20, None))
        assert found.status is GetStatus.FOUND
        return len(self.objects.reads)


@pytest.fixture
async def archived(stores: Stores, tmp_path: Path) -> Archived:
    made = Archived(stores, tmp_path / "footers")
    await made.make()
    return made


async def follow(archived: Archived, manifest: Manifest) -> None:
    view = archived.view()
    await view.adopt(manifest)
    await view.fetch_footers()


async def test_the_first_read_after_a_start_does_not_ask_for_the_footer(archived: Archived) -> None:
    await follow(archived, archived.manifest)
    assert len(list(archived.folder.iterdir())) == len(archived.manifest.segments)
    assert await archived.requests_of_first_read() == 2  # the queue's entries, and beside them the log


async def test_a_damaged_file_is_fetched_again(archived: Archived) -> None:
    await follow(archived, archived.manifest)
    for path in archived.folder.iterdir():
        path.write_bytes(path.read_bytes()[:-1])
    assert await archived.requests_of_first_read() == 3
    assert await archived.requests_of_first_read() == 2


async def test_footers_of_deleted_segments_go(archived: Archived) -> None:
    await follow(archived, archived.manifest)
    gone = archived.manifest.segments[0]
    await follow(archived, archived.manifest.without([gone.key], 1))
    assert gone.footer_sha256 not in {path.name for path in archived.folder.iterdir()}


async def test_a_folder_that_cannot_be_written_costs_only_the_round_trip(archived: Archived) -> None:
    archived.folder.write_text("a file is in its place")
    assert await archived.requests_of_first_read() == 3
