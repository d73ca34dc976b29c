"""A store in a process whose connections have taken every descriptor."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from sprocket.common.errors import DiskFailed, NoDescriptor
from sprocket.common.figures import values
from sprocket.common.files.config_file import ConfigFile
from sprocket.common.spare_descriptors import spare_descriptors
from store.disk.disk import RealDisk
from store.disk.file_system_sync import can_sync_file_systems
from tests.no_descriptors import no_descriptors
from tests.store.insides import flush_queues
from tests.store.reading import bodies
from tests.store.rig import Stores, message

SPARE = 64

needs_syncfs = pytest.mark.skipif(not can_sync_file_systems(), reason="the system cannot sync a whole file system")


@pytest.fixture(autouse=True)
def nothing_is_kept_after_a_test() -> Iterator[None]:
    yield
    spare_descriptors.keep(0)


def test_segments_queues_syncs_and_tables_go_on(stores: Stores, tmp_path: Path) -> None:
    store = stores.open()
    table = ConfigFile(tmp_path / "topics.json")
    table.write(b"first")
    spare_descriptors.keep(SPARE)
    kept = []
    with no_descriptors():
        # Three segments and four topics, whose queues and directories are new.
        for number in range(12):
            body = b"%02d" % number * 2_000
            store.append([message(f"Topic{number % 4}", body=body), message(body=body)])
            kept.append(body)
            store.flush()
            flush_queues(store)
            table.write(body)
        assert len(stores.segments()) >= 3
    stores.run_notified()
    assert store.failure is None
    assert bodies(store) == kept
    store = stores.reopen(store, crash=True)
    assert bodies(store) == kept
    assert (tmp_path / "topics.json").read_bytes() == kept[-1]


@needs_syncfs
def test_a_send_that_gets_no_descriptor_is_refused_and_later_ones_are_stored(
    stores: Stores, caplog: pytest.LogCaptureFixture
) -> None:
    store = stores.open()
    body = b"x" * 9_000
    store.append([message(body=body)])
    with no_descriptors() as taken:
        for _ in range(3):
            with pytest.raises(NoDescriptor, match=r"raise its limit of open files \(ulimit -n\)") as refused:
                store.append([message("Another", body=body)] * 2)
            assert str(stores.root) not in str(refused.value), "peers see the remark"
        store.append([message(body=b"y")])
        store.flush()
        for _ in range(8):
            os.close(taken.pop())
        store.append([message("Another", body=body)])
    stores.run_notified()
    assert store.failure is None
    assert values(store.figures())["putMessageRefused_no_descriptor"] == "6"
    (line,) = [line for line in caplog.messages if "cause=no_descriptor" in line]
    assert str(stores.root) in line and "raise the limit of open files" in line
    assert bodies(store) == [body, b"y"]
    assert store.max_offset("Another", 0) == 1


def test_a_table_that_gets_no_descriptor_keeps_its_content(tmp_path: Path) -> None:
    failures: list[DiskFailed] = []
    table = ConfigFile(tmp_path / "topics.json", failed=failures.append)
    table.write(b"first")
    with no_descriptors(), pytest.raises(NoDescriptor):
        table.write(b"second")
    assert failures == []
    table.write(b"third")
    assert table.path.read_bytes() == b"third"


@needs_syncfs
def test_a_new_file_is_synced_without_a_further_descriptor(tmp_path: Path) -> None:
    disk = RealDisk()
    file = disk.create(tmp_path / "Topic" / "0" / "file", 64, preallocate=False)
    with no_descriptors():
        file.write(0, b"entry")
        file.sync()
    assert bytes(file.view[:5]) == b"entry"
    file.close()
