"""Backups of a store: what a crash leaves, what verify finds, what is refused, what a restored store holds."""

import random
import shutil
import time
from pathlib import Path

import msgspec
import pytest

from sprocket.common import failpoints
from sprocket.common.errors import CorruptRecord, DiskFull, StoreError
from sprocket.remoting.message.lite_topics import lite_queue
from store.backup.backup import Backup, BackupReport
from store.backup.manifest import Manifest, decode, require
from store.backup.restore import restore
from store.backup.verification import faults
from store.message_store import MessageStore
from tests.clock import ManualClock
from tests.store.compaction.compacting import TOPIC, fill_segment, price, read
from tests.store.inspection.stopped_store import change, content_of, fill, messages_of
from tests.store.rig import Stores, message

SEGMENT_BYTES = 16 * 1024


class Crash(Exception):
    """The process ends here."""


@pytest.fixture
def stores(tmp_path: Path) -> Stores:
    return Stores(tmp_path / "store")


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "backup"


def back_up(root: Path, target: Path, *, allow_shorter: bool = False) -> BackupReport:
    clock = ManualClock()
    return Backup(
        root, target, clock, clock.advance, segment_bytes=SEGMENT_BYTES, allow_shorter=allow_shorter
    ).run()  # fmt: skip


def restored(target: Path, folder: Path, stores: Stores) -> dict[tuple[str, int, int], bytes]:
    """Return the messages of the store that the backup gives."""
    restore(target, folder)
    other = Stores(folder)
    other.clock = stores.clock
    store = other.open()
    try:
        return messages_of(store)
    finally:
        other.close(store)


def append(store: MessageStore, first: int, count: int) -> None:
    for number in range(first, first + count):
        store.append([message("Orders", number % 3, b"more %d" % number)])


def test_a_restored_store_has_every_message_and_table(stores: Stores, target: Path, tmp_path: Path) -> None:
    root = fill(stores)
    (root / "config").mkdir(exist_ok=True)
    (root / "config" / "topics.json").write_text('{"topicConfigTable":{}}')
    (root / "config" / "haStore.json").write_text('{"storeId":"one"}')
    report = back_up(root, target)
    assert report.copied_segments == len(report.manifest.segments) > 2
    assert faults(target, report.manifest) == []
    store = stores.open()
    expected = messages_of(store)
    ends = {key: store.max_offset(*key) for key in store.queues()}
    stores.close(store)
    assert restored(target, tmp_path / "new", stores) == expected
    names = {path.name for path in (tmp_path / "new" / "config").iterdir()}
    assert "topics.json" in names
    assert "haStore.json" not in names
    other = Stores(tmp_path / "new")
    store = other.open()
    assert {key: store.max_offset(*key) for key in store.queues()} == ends
    other.close(store)


def test_the_next_backup_copies_only_what_is_new(stores: Stores, target: Path, tmp_path: Path) -> None:
    root = fill(stores)
    first = back_up(root, target)
    store = stores.open()
    append(store, 0, 40)
    second = back_up(root, target)
    assert second.copied_segments < len(second.manifest.segments)
    again = back_up(root, target)
    assert again.copied_segments <= 1
    assert again.manifest.log_end == second.manifest.log_end > first.manifest.log_end
    expected = messages_of(store)
    stores.crash(store)
    assert restored(target, tmp_path / "new", stores) == expected
    held = {path.relative_to(target).as_posix() for path in target.rglob("*") if path.is_file()}
    assert held == {part.file for part in again.manifest.parts} | {"manifest.json", "backup.lock"}
    assert not any((root / "leases").iterdir())


@pytest.mark.parametrize("point", [name for name in failpoints.declared() if name.startswith("backup.")])
def test_a_crash_leaves_the_previous_backup_or_the_new_one(
    stores: Stores, target: Path, tmp_path: Path, point: str
) -> None:
    root = fill(stores)
    first = back_up(root, target).manifest
    store = stores.open()
    append(store, 0, 200)

    def crash() -> None:
        raise Crash

    armed = failpoints.declared()[point]
    armed.arm(crash)
    try:
        with pytest.raises(Crash):
            back_up(root, target)
    finally:
        armed.arm(None)
    left = require(target)
    assert left.number == (2 if point == "backup.after_manifest" else first.number)
    assert faults(target, left) == []
    restore(target, tmp_path / "new")
    newest = back_up(root, target).manifest
    assert newest.log_end > first.log_end
    assert faults(target, newest) == []
    stores.close(store)


def test_every_flipped_bit_is_found(stores: Stores, target: Path) -> None:
    manifest = back_up(fill(stores), target).manifest
    chance = random.Random(7)
    for _ in range(40):
        part = chance.choice(manifest.parts)
        path, at, bit = target / part.file, chance.randrange(part.size_bytes), 1 << chance.randrange(8)
        for is_damaged in (True, False):
            change(path, lambda content, at=at, bit=bit: content.__setitem__(at, content[at] ^ bit))  # type: ignore[misc]
            assert {line.partition(":")[0] for line in faults(target, manifest)} == (
                {part.file} if is_damaged else set()
            )
            if is_damaged:
                with pytest.raises(StoreError, match="does not match its checksum"):
                    restore(target, target.with_name("new"))
    content = (target / "manifest.json").read_bytes()
    for _ in range(200):
        at = chance.randrange(len(content))
        flipped = content[:at] + bytes([content[at] ^ 1 << chance.randrange(8)]) + content[at + 1 :]
        assert not isinstance(decode(flipped), Manifest)


def test_a_torn_end_is_left_out_and_damage_before_it_is_refused(stores: Stores, target: Path) -> None:
    root = fill(stores)
    end = back_up(root, target).manifest.log_end
    path = stores.segments()[end // SEGMENT_BYTES]
    at = end % SEGMENT_BYTES
    change(path, lambda content: content.__setitem__(slice(at, at + 9), b"\0\0\1\0 torn"))
    assert back_up(root, target).manifest.log_end == end
    change(path, lambda content: content.__setitem__(100, content[100] ^ 1))
    with pytest.raises(CorruptRecord, match="sprocket store repair"):
        back_up(root, target)
    assert faults(target, require(target)) == []


def test_a_changed_sealed_segment_is_found_and_copied_again(stores: Stores, target: Path) -> None:
    root = fill(stores)
    number = back_up(root, target).manifest.number
    sealed = stores.segments()[1]
    # Damage of a sealed segment changes its time; its copy in the backup is not replaced by it.
    change(sealed, lambda content: content.__setitem__(200, content[200] ^ 1))
    with pytest.raises(CorruptRecord):
        back_up(root, target)
    assert require(target).number == number
    assert faults(target, require(target)) == []


def test_what_is_refused(stores: Stores, target: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = fill(stores)
    with pytest.raises(StoreError, match="is no store directory"):
        back_up(tmp_path / "nothing", target)
    strange = tmp_path / "strange"
    strange.mkdir()
    (strange / "file").write_text("x")
    with pytest.raises(StoreError, match="neither empty nor a backup"):
        back_up(root, strange)
    with pytest.raises(StoreError, match="lies in the store"):
        back_up(root, root / "backup")
    back_up(root, target)
    other = Stores(tmp_path / "other")
    store = other.open()
    append(store, 0, 300)
    other.close(store)
    with pytest.raises(StoreError, match="backup of another store"):
        back_up(other.root, target)
    with pytest.raises(StoreError, match="is no store backup"):
        restore(strange, tmp_path / "new")
    with pytest.raises(StoreError, match="is not empty"):
        restore(target, strange)
    before = content_of(target)
    store = stores.open()
    append(store, 0, 100)
    stores.close(store)
    monkeypatch.setattr("shutil.disk_usage", lambda path: shutil._ntuple_diskusage(10, 10, 0))  # type: ignore[attr-defined]
    with pytest.raises(DiskFull, match="Free space"):
        back_up(root, target)
    assert content_of(target) == before


def test_a_store_that_lost_records_does_not_shorten_its_backup(stores: Stores, target: Path) -> None:
    root = fill(stores)
    end = back_up(root, target).manifest.log_end
    stores.segments()[-1].unlink()
    last = stores.segments()[-1]
    change(last, lambda content: content.__setitem__(slice(4096, None), bytes(SEGMENT_BYTES - 4096)))
    with pytest.raises(StoreError, match="--allow-shorter"):
        back_up(root, target)
    shorter = back_up(root, target, allow_shorter=True).manifest
    assert shorter.log_end < end
    assert faults(target, shorter) == []


def test_a_restored_store_has_the_messages_of_lite_topics(stores: Stores, target: Path, tmp_path: Path) -> None:
    stores.fields |= {"enable_lmq": True, "enable_multi_dispatch": True}
    store = stores.open()
    lights = [lite_queue("Sessions", f"s{number}") for number in range(40)]
    for light in lights * 3:
        properties = b"INNER_MULTI_DISPATCH\x01" + light.encode() + b"\x02"
        store.append([msgspec.structs.replace(message("Sessions", 0, light.encode()), properties=properties)])
    stores.close(store)
    back_up(stores.root, target)
    restore(target, tmp_path / "new")
    for enabled in (True, False):  # a store with light queues keeps them, whatever the keys say
        other = Stores(tmp_path / "new")
        other.fields |= {"enable_lmq": enabled, "enable_multi_dispatch": enabled}
        store = other.open()
        assert store.light_queue_count == len(lights)
        for light in lights:
            assert store.max_offset(light, 0) == 3
            found = store.get(light, 0, 0, 32, 1 << 20)
            held = b"".join(map(bytes, found.slices))
            assert held.count(b"INNER_MULTI_DISPATCH\x01" + light.encode() + b"\x02") == 3
        other.close(store)


def test_a_restored_store_has_the_compacted_queues(stores: Stores, target: Path, tmp_path: Path) -> None:
    stores.fields |= {"compaction_schedule_internal": 100}
    store = stores.open()
    store.compaction.set_topics([TOPIC])

    def compact() -> None:
        fill_segment(store)
        done = store.compaction.finished
        while store.compaction.finished == done:
            stores.clock.advance(1.0)
            store.flush()
            stores.run_notified()
            time.sleep(0.01)

    store.append([price("a", b"1"), price("b", b"2"), price("a", b"3")])
    compact()
    first = back_up(stores.root, target)
    store.append([price("a", b"4")])
    compact()
    expected = [(record.queue_offset, bytes(record.body)) for record in read(store)]
    second = back_up(stores.root, target)
    stores.close(store)
    kept = {part.file for part in first.manifest.tables} & {part.file for part in second.manifest.tables}
    assert any(name.endswith(".log") for name in kept)
    assert faults(target, second.manifest) == []
    restore(target, tmp_path / "new")
    other = Stores(tmp_path / "new")
    store = other.open()
    assert [(record.queue_offset, bytes(record.body)) for record in read(store)] == expected
    assert store.compaction.of(TOPIC, 0) is not None
    other.close(store)
