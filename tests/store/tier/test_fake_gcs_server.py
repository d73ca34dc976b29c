"""Reads of an archive on Google Cloud Storage, as an emulator that others wrote answers them."""

from pathlib import Path

import pytest

from store.tier.archive_check import ArchiveCheck
from store.tier.manifest import folder_of
from store.tier.object_store import Damaged, NotFound, Refused
from store.tier.open_archive import open_archive
from store.tier.remote_store import Access, open_store
from store.tier.restore import ArchiveRestore
from tests.fake_gcs_server import fake_gcs_server, put_object
from tests.store.rig import Stores
from tests.store.tier.archive_rig import GROUP, FakeSource, upload_all, writer_of
from tests.store.tier.test_archive_writer import filled

pytest.importorskip("obstore")


async def test_an_archive_is_found_checked_restored_and_not_written(
    stores: Stores, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = open_store(f"file://{tmp_path}/bucket")
    writer = writer_of(written, FakeSource(filled(stores)), stores.clock)
    await writer.claim()
    await upload_all(writer)
    await writer.save_tables()
    with fake_gcs_server() as address:
        monkeypatch.setenv("GOOGLE_BASE_URL", address)
        monkeypatch.setenv("GOOGLE_BEARER_TOKEN", "any")
        async for info in written.list(""):
            content = (await written.get(info.key, 1 << 20)).content
            put_object(address, f"messages/{folder_of(*GROUP)}/{info.key}", content)
        archive = await open_archive("gs://bucket/messages", Access(max_retries=0))
        check = ArchiveCheck(archive.objects, archive.manifest, quick=False)
        await check.run()
        assert check.findings.is_fine
        restored = await ArchiveRestore(archive.objects, archive.manifest, tmp_path / "again").run()
        assert restored.log_end == writer.manifest.uploaded_end > 0
        key = archive.manifest.segments[0].key
        assert (await archive.objects.head(key)).size_bytes == archive.manifest.segments[0].size_bytes
        with pytest.raises(Damaged):
            await archive.objects.get_range(key, 5, 1 << 30)
        # Of the XML API it has no puts; a new version that has them is tested with all else that writes.
        with pytest.raises(Refused, match="invalid uploadType"):
            await archive.objects.put_if("manifest", b"x", archive.version)
        await archive.objects.delete(key)
        with pytest.raises(NotFound):
            await archive.objects.head(key)
