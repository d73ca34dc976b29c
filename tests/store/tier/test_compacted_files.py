"""A reader's copies of compacted queues: fetched once, complete or not there, and gone with the manifest's."""

import random
from pathlib import Path

import pytest

from sprocket.common.errors import StoreError
from store.compaction.manifest import Part, part_name
from store.tier.compacted_files import CompactedFiles
from store.tier.compacted_object import OpenedPart
from store.tier.manifest import CompactedEntry
from store.tier.object_store import NotFound
from tests.store.tier.fake_store import FakeBucket, FakeStore


def uploaded(bucket: FakeBucket, root: Path, topic: str, first: int, end: int, content: bytes) -> CompactedEntry:
    """Put one part into the bucket."""
    part = Part(part_name(first, end), first, end, 1, len(content), 100)
    for name, size_bytes in zip(part.file_names, part.file_bytes, strict=True):
        (root / name).write_bytes(content.ljust(size_bytes, b"."))
    opened = OpenedPart(root, part)
    packed = b"".join(opened)
    opened.close()
    key = f"compacted/{first:020d}-0-{topic}-{end}"
    bucket.objects[key] = packed, 1
    return CompactedEntry(topic, 0, part, key, opened.size_bytes, opened.sha256)


@pytest.fixture
def bucket() -> FakeBucket:
    return FakeBucket()


@pytest.fixture
def client(bucket: FakeBucket) -> FakeStore:
    return FakeStore(bucket, random.Random(1))


async def test_each_part_is_fetched_once_also_after_a_restart(
    bucket: FakeBucket, client: FakeStore, tmp_path: Path
) -> None:
    one, two = (uploaded(bucket, tmp_path, "Prices", first, first + 5, b"body %d" % first) for first in (0, 5))
    other = uploaded(bucket, tmp_path, "Rates", 0, 3, b"rate")
    folder = tmp_path / "tables"
    files = CompactedFiles(client, folder)
    first = await files.follow([one, other], {})
    assert {key: queue.end_offset for key, queue in first.items()} == {("Prices", 0): 5, ("Rates", 0): 3}
    again = await files.follow([one, two, other], first)
    assert again["Rates", 0] is first["Rates", 0]
    assert again["Prices", 0].end_offset == 10
    # A copy that a kill cut short.
    (folder / f"{'0' * 64}.tmp").mkdir()
    bucket.objects.clear()
    restarted = await CompactedFiles(client, folder).follow([one, two], {})
    assert restarted["Prices", 0].manifest.parts == (one.part, two.part)
    assert {path.name for path in folder.iterdir()} == {one.sha256, two.sha256}
    assert (folder / one.sha256 / one.part.file_names[0]).read_bytes() == b"body 0"
    for queue in (*again.values(), *restarted.values()):
        queue.close()


async def test_what_cannot_be_read_is_left_out_and_harms_no_other(
    bucket: FakeBucket, client: FakeStore, tmp_path: Path
) -> None:
    good, bad, gone = (uploaded(bucket, tmp_path, topic, 0, 5, topic.encode()) for topic in ("Good", "Bad", "Gone"))
    bucket.objects[bad.key] = bucket.objects[bad.key][0][:-1] + b"?", 1
    del bucket.objects[gone.key]
    files = CompactedFiles(client, tmp_path / "tables")
    # The newest manifest may not name it any more.
    with pytest.raises(NotFound):
        await files.follow([bad, gone, good], {})
    found = await files.follow([bad, gone, good], {})
    assert set(found) == {("Good", 0)}
    assert files.damaged == {"Bad", "Gone"}
    requests = client.requests
    assert await files.follow([bad, gone, good], found) == found
    assert client.requests == requests
    assert {path.name for path in (tmp_path / "tables").iterdir()} == {good.sha256}
    found["Good", 0].close()


async def test_parts_that_do_not_follow_one_another_are_damage(
    bucket: FakeBucket, client: FakeStore, tmp_path: Path
) -> None:
    files = CompactedFiles(client, tmp_path / "tables")
    parts = [uploaded(bucket, tmp_path, "Prices", first, first + 5, b"body") for first in (0, 10)]
    assert await files.follow(parts, {}) == {}
    assert files.damaged == {"Prices"}


async def test_a_queue_whose_files_somebody_closed_or_removed_is_opened_again(
    bucket: FakeBucket, client: FakeStore, tmp_path: Path
) -> None:
    one, folder = uploaded(bucket, tmp_path, "Prices", 0, 5, b"body"), tmp_path / "tables"
    files = CompactedFiles(client, folder)
    # The topic was deleted here, and its queue was closed.
    (await files.follow([one], {}))["Prices", 0].close()
    again = await files.follow([one], {})
    assert again["Prices", 0].first_store_time > 0
    (folder / one.sha256 / one.part.file_names[0]).unlink()
    with pytest.raises(StoreError, match="missing"):
        await CompactedFiles(client, folder).follow([one], {})
    (await CompactedFiles(client, folder).follow([one], {}))["Prices", 0].close()
    again["Prices", 0].close()
