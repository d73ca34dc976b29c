"""Any damage of a store's files: it runs with all that was flushed, or refuses with file, offset and reason."""

import json
import logging
import os
import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from sprocket.common.errors import DiskFailed, StoreError
from store.disk.disk import RealDisk
from store.flush.checkpoint import Checkpoint
from store.message_store import MessageStore
from store.recovery.flushed_mark import FlushedMark
from tests.store.reading import bodies
from tests.store.rig import Stores, message

SEGMENT = 16 * 1024


def fill(store: MessageStore, count: int, start: int = 0, topic: str = "Orders", size: int = 200) -> None:
    """Append messages over three queues, the k-th with body k."""
    store.append([message(topic, k % 3, b"%06d" % k + b"." * size) for k in range(start, start + count)])


def contents(store: MessageStore) -> dict[tuple[str, int], list[bytes]]:
    return {key: found for key in sorted(store.queues()) if (found := bodies(store, *key))}


def filled(stores: Stores, *, clean: bool = True, count: int = 150) -> dict[tuple[str, int], list[bytes]]:
    """Stop a store of several segments.  Return its messages by queue."""
    store = stores.open()
    fill(store, count)
    held = contents(store)
    (stores.close if clean else stores.crash)(store)
    return held


def overwrite(stores: Stores, physical_offset: int, content: bytes) -> None:
    path = stores.root / "commitlog" / f"{physical_offset - physical_offset % SEGMENT:020d}"
    with path.open("r+b") as file:
        file.seek(physical_offset % SEGMENT)
        file.write(content)


# Segments


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("sizes", [(0,), (0, 0), (5,), (4096, 0), (SEGMENT, SEGMENT)], ids=str)
def test_empty_short_and_prepared_segments_behind_the_end_are_removed(
    stores: Stores, sizes: tuple[int, ...], clean: bool
) -> None:
    held = filled(stores, clean=clean)
    there = stores.segments()
    for number, size in enumerate(sizes, len(there)):
        (stores.root / "commitlog" / f"{number * SEGMENT:020d}").write_bytes(bytes(size))
    assert contents(stores.open()) == held
    assert stores.segments() == there


def test_prepared_segments_behind_a_missing_one_are_removed(stores: Stores) -> None:
    held = filled(stores, clean=False)
    there = stores.segments()
    (stores.root / "commitlog" / f"{(len(there) + 1) * SEGMENT:020d}").write_bytes(bytes(SEGMENT))
    assert contents(stores.open()) == held
    assert stores.segments() == there


def test_a_missing_first_segment_has_expired(stores: Stores) -> None:
    held = filled(stores)
    stores.segments()[0].unlink()
    store = stores.open()
    assert store.min_offset("Orders", 0) > 0
    left = contents(store)
    assert {key: found[-len(left[key]) :] for key, found in held.items()} == left


@pytest.mark.parametrize("size", [0, 100, SEGMENT - 1, SEGMENT + 1])
@pytest.mark.parametrize("which", [0, 1, -1])
def test_a_promised_segment_of_another_size_is_refused(stores: Stores, which: int, size: int) -> None:
    filled(stores)
    path = stores.segments()[which]
    os.truncate(path, size)
    with pytest.raises(StoreError, match="commitlog") as raised:
        stores.open()
    names = {path.name, stores.segments()[-1].name, f"{int(path.name):020d}"}
    assert any(name in str(raised.value) for name in names)


@pytest.mark.parametrize("which", [1, -1])
def test_a_promised_segment_that_is_missing_is_refused(stores: Stores, which: int) -> None:
    filled(stores)
    path = stores.segments()[which]
    path.unlink()
    with pytest.raises(StoreError, match=path.name):
        stores.open()
    # Nothing else was removed, and the store still counts as stopped cleanly.
    assert not (stores.root / "abort").exists()


def test_a_segment_missing_behind_the_promise_ends_the_log_and_the_rest_is_kept(stores: Stores) -> None:
    store = stores.open()
    fill(store, 10)
    held = contents(store)
    store = stores.reopen(store)
    fill(store, 200, start=10)
    stores.crash(store)
    segments = stores.segments()
    behind = {path.name: path.read_bytes() for path in segments[2:]}
    segments[1].unlink()
    store = stores.open()
    assert store.wrote_offset <= SEGMENT
    found = contents(store)
    assert {key: some[: len(held[key])] for key, some in found.items()} == held
    (folder,) = (stores.root / "cut").iterdir()
    assert json.loads((folder / "cut.json").read_text())["to"] > 2 * SEGMENT
    for path in folder.glob("0*"):
        assert behind[path.name].startswith(path.read_bytes().rstrip(b"\0"))
    fill(store, 9, start=1000)
    assert contents(stores.reopen(store)).keys() == held.keys()


def test_whole_records_behind_damage_are_kept_in_a_folder(stores: Stores, caplog: pytest.LogCaptureFixture) -> None:
    store = stores.open()
    fill(store, 60)
    entry = store.entry("Orders", 0, 10)
    assert entry is not None
    held, end = contents(store), store.wrote_offset
    stores.crash(store)
    log = b"".join(path.read_bytes() for path in stores.segments())
    damaged = entry[0] + 50
    overwrite(stores, damaged, b"\xff" * 4)
    log = log[:damaged] + b"\xff" * 4 + log[damaged + 4 :]
    store = stores.open()
    assert store.wrote_offset == entry[0]
    (folder,) = (stores.root / "cut").iterdir()
    facts = json.loads((folder / "cut.json").read_text())
    assert (facts["from"], facts["to"]) == (entry[0], end)
    assert facts["firstWholeRecord"] == entry[0] + entry[1]
    for name in facts["files"]:
        content = (folder / name).read_bytes()
        assert content == log[int(name) : int(name) + len(content)]
    assert str(folder) in caplog.text
    assert not (stores.root / "truncate").exists()
    assert {key: found[: len(contents(store)[key])] for key, found in held.items()} == contents(store)
    # What was cut off does not reappear, wherever the next records end.
    fill(store, 1, start=900)
    assert sum(map(len, contents(stores.reopen(store, crash=True)).values())) == 31


def test_a_torn_tail_is_not_kept(stores: Stores) -> None:
    store = stores.open()
    fill(store, 10)
    end = store.wrote_offset
    stores.crash(store)
    overwrite(stores, end, struct.pack(">i", 300) + b"torn" * 20)
    assert stores.open().wrote_offset == end
    assert not (stores.root / "cut").exists()


def test_damage_before_the_promise_is_refused_when_the_log_is_walked(stores: Stores) -> None:
    filled(stores)
    overwrite(stores, 2000, b"\xff" * 200)
    shutil.rmtree(stores.root / "consumequeue")
    for _ in range(2):
        with pytest.raises(StoreError, match=r"00000000000000000000: physical offset \d+: "):
            stores.open()


# Strangers, types, permissions


@pytest.mark.parametrize("clean", [True, False])
def test_what_is_not_the_stores_is_ignored_with_one_warning_and_left(
    stores: Stores, caplog: pytest.LogCaptureFixture, clean: bool
) -> None:
    held = filled(stores, clean=clean)
    log, queues = stores.root / "commitlog", stores.root / "consumequeue"
    files = [
        log / ("0" * 19),
        log / ("0" * 21),
        log / "０００００００００００００００００００００",
        log / "a.tmp",
        queues / "note",
    ]
    files += [queues / "Orders" / "note", queues / "Orders" / "0" / "note"]
    for path in files:
        path.write_text("mine")
    directories = [log / "folder", queues / "Orders" / "x", queues / "Orders" / "01", queues / "Orders" / "٣"]
    for path in directories:
        path.mkdir()
    with caplog.at_level(logging.WARNING):
        store = stores.open()
    assert contents(store) == held
    assert all(path.read_text() == "mine" for path in files)
    assert all(path.is_dir() for path in directories)
    # After a clean stop, the list of queues replaces a look into the directory of each.
    assert caplog.text.count("event=unknown_files_ignored") == (3 if clean else 4)
    # A deletion leaves them, too.
    store.delete_topic("Orders")
    assert (queues / "Orders" / "note").exists()
    assert (queues / "Orders" / "0" / "note").exists()


def test_a_file_in_the_place_of_a_topic_refuses_its_messages_alone(stores: Stores) -> None:
    store = stores.open()
    stores.close(store)
    (stores.root / "consumequeue").mkdir(exist_ok=True)
    (stores.root / "consumequeue" / "Blocked").write_text("mine")
    store = stores.open()
    with pytest.raises(Exception, match="Blocked"):
        store.append([message("Blocked")])
    fill(store, 3)
    assert store.failure is None


@pytest.mark.parametrize("place", ["commitlog", "consumequeue", "checkpoint", "abort", "queuelist", "truncate"])
def test_a_file_for_a_directory_and_the_reverse_are_refused(stores: Stores, place: str) -> None:
    filled(stores)
    path = stores.root / place
    if path.is_dir():
        shutil.rmtree(path)
        path.write_text("a file")
    else:
        path.unlink(missing_ok=True)
        path.mkdir()
    with pytest.raises(StoreError, match=place):
        stores.open()


def test_a_directory_with_the_name_of_a_segment_is_refused(stores: Stores) -> None:
    filled(stores)
    (stores.root / "commitlog" / f"{len(stores.segments()) * SEGMENT:020d}").mkdir()
    with pytest.raises(StoreError, match="is not a file"):
        stores.open()


class Forbidden(RealDisk):
    """A disk that refuses to open one file."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path

    def read(self, path: Path) -> bytes | None:
        if path == self._path:
            raise DiskFailed(f"read {path}: Permission denied")
        return super().read(path)

    def open(self, path: Path, *, preallocate: bool):  # type: ignore[no-untyped-def]
        if path == self._path:
            raise DiskFailed(f"open {path}: Permission denied")
        return super().open(path, preallocate=preallocate)


@pytest.mark.parametrize("place", ["commitlog/" + "0" * 20, "consumequeue/Orders/0/" + "0" * 20, "checkpoint"])
def test_an_unreadable_file_is_refused_by_name(stores: Stores, place: str) -> None:
    held = filled(stores)
    stores.disk = Forbidden(stores.root / place)
    with pytest.raises(StoreError, match=f"{place}: Permission denied"):
        stores.open()
    stores.disk = RealDisk()
    assert contents(stores.open()) == held


# Checkpoint, list of queues, abort

CHECKPOINTS: dict[str, Callable[[int], bytes | None]] = {
    "lost": lambda end: None,
    "empty": lambda end: b"",
    "short": lambda end: b"\0" * 39,
    "random": lambda end: b"\x5a" * 4096,
    "negative": lambda end: Checkpoint(1, 1, 1, -5, end).encode(),
    "absurd time": lambda end: Checkpoint(1 << 60, 1 << 60, 0, 0, end).encode(),
    "from the future": lambda end: Checkpoint(1, 1, 0, 0, end + 100).encode(),
    "from the far future": lambda end: Checkpoint(1, 1, 0, 0, 1 << 40).encode(),
    "torn": lambda end: Checkpoint(1, 1, 0, 0, end).encode()[:36].ljust(4096, b"\0"),
}


@pytest.mark.parametrize("has_list", [True, False])
@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("kind", CHECKPOINTS)
def test_a_checkpoint_that_cannot_be_right_is_named_and_not_trusted(
    stores: Stores, caplog: pytest.LogCaptureFixture, kind: str, clean: bool, has_list: bool
) -> None:
    store = stores.open()
    fill(store, 20)
    held, end = contents(store), store.wrote_offset
    (stores.close if clean else stores.crash)(store)
    content = CHECKPOINTS[kind](end)
    path = stores.root / "checkpoint"
    path.unlink(missing_ok=True)
    if content is not None:
        path.write_bytes(content)
    if not has_list:
        (stores.root / "queuelist").unlink(missing_ok=True)
    store = stores.open()
    assert contents(store) == held
    assert store.wrote_offset == end
    if kind not in ("lost", "torn"):
        assert caplog.text.count("event=checkpoint_not_trusted") == 1


@pytest.mark.parametrize("content", [b"", b"SPKT", b"\xff" * 500, None])
def test_a_damaged_list_of_queues_costs_a_walk_and_is_named(
    stores: Stores, caplog: pytest.LogCaptureFixture, content: bytes | None
) -> None:
    held = filled(stores)
    path = stores.root / "queuelist"
    whole = path.read_bytes()
    path.write_bytes(whole[:-3] + b"abc" if content is None else content)
    shutil.rmtree(stores.root / "consumequeue" / "Orders" / "1")
    store = stores.open()
    assert store.recovery is not None
    assert store.recovery.rebuilt
    assert contents(store) == held
    assert "event=queue_list_not_trusted" in caplog.text


def test_a_rebuild_that_a_crash_breaks_off_begins_again(stores: Stores) -> None:
    held = filled(stores)
    shutil.rmtree(stores.root / "consumequeue" / "Orders" / "1")
    store = stores.open()
    assert store.recovery is not None
    assert store.recovery.rebuilt
    stores.crash(store)
    # Nothing of the rebuilt queues had reached the disk.
    for path in (stores.root / "consumequeue" / "Orders").rglob("0*0"):
        if path.is_file():
            path.write_bytes(bytes(path.stat().st_size))
    store = stores.open()
    assert store.recovery is not None
    assert store.recovery.rebuilt
    assert contents(store) == held
    store = stores.reopen(store)
    assert store.recovery is not None
    assert not store.recovery.rebuilt


# ConsumeQueues


def queue_file(stores: Stores, number: int = 0) -> Path:
    return stores.queue_files("Orders", 1)[number]


def write_entry(stores: Stores, offset: int, physical_offset: int, size: int) -> None:
    path = queue_file(stores, offset // 50)
    with path.open("r+b") as file:
        file.seek(offset % 50 * 20)
        file.write(struct.pack(">qiq", physical_offset, size, 0))


def lose_directory(stores: Stores, last: tuple[int, int]) -> None:
    shutil.rmtree(queue_file(stores).parent)


def lose_topic(stores: Stores, last: tuple[int, int]) -> None:
    shutil.rmtree(queue_file(stores).parent.parent)


def lose_first_file(stores: Stores, last: tuple[int, int]) -> None:
    queue_file(stores).unlink()


def lose_middle_file(stores: Stores, last: tuple[int, int]) -> None:
    queue_file(stores, 1).unlink()


def lose_last_file(stores: Stores, last: tuple[int, int]) -> None:
    queue_file(stores, -1).unlink()


def short_file(stores: Stores, last: tuple[int, int]) -> None:
    os.truncate(queue_file(stores, -1), 333)


def long_file(stores: Stores, last: tuple[int, int]) -> None:
    os.truncate(queue_file(stores), 1020)


def zero_file(stores: Stores, last: tuple[int, int]) -> None:
    path = queue_file(stores, -1)
    path.write_bytes(bytes(path.stat().st_size))


def entry_beyond_the_log(stores: Stores, last: tuple[int, int]) -> None:
    write_entry(stores, last[0], 1 << 40, last[1])


def entry_into_a_record(stores: Stores, last: tuple[int, int]) -> None:
    write_entry(stores, last[0], 100, last[1])


def entry_of_another_queue(stores: Stores, last: tuple[int, int]) -> None:
    write_entry(stores, last[0], 0, last[1])


def entry_of_absurd_size(stores: Stores, last: tuple[int, int]) -> None:
    write_entry(stores, last[0], 0, -1)


def duplicated_entries(stores: Stores, last: tuple[int, int]) -> None:
    path = queue_file(stores, -1)
    content = path.read_bytes()
    path.write_bytes((content[:20] * 50)[: len(content)])


DAMAGES = [
    lose_directory, lose_topic, lose_first_file, lose_middle_file, lose_last_file, short_file, long_file, zero_file,
    entry_beyond_the_log, entry_into_a_record, entry_of_another_queue, entry_of_absurd_size, duplicated_entries,
]  # fmt: skip


# Three files in each queue, or one: after a clean stop the directory of one is not listed.
@pytest.mark.parametrize("count", [400, 100])
@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_a_damaged_queue_is_noticed_and_rebuilt(
    stores: Stores, damage: Callable[[Stores, tuple[int, int]], None], clean: bool, count: int
) -> None:
    if count == 100 and damage is lose_middle_file:
        pytest.skip("one file has no middle")
    store = stores.open()
    fill(store, count, size=0)
    store = stores.reopen(store)
    if not clean:
        # After the checkpoint only records of other queues.
        store.append([message("Other", 0, b"later")])
    held = contents(store)
    entry = store.entry("Orders", 1, store.max_offset("Orders", 1) - 1)
    assert entry is not None
    last = store.max_offset("Orders", 1) - 1, entry[1]
    (stores.close if clean else stores.crash)(store)
    damage(stores, last)
    store = stores.open()
    assert contents(store) == held
    assert store.recovery is not None
    assert store.recovery.rebuilt
    store = stores.reopen(store)
    assert not store.recovery.rebuilt  # type: ignore[union-attr]


def test_a_file_after_the_listed_one_is_replaced_when_the_queue_grows(stores: Stores) -> None:
    store = stores.open()
    fill(store, 60, size=0)
    held = contents(store)
    stores.close(store)
    # As RocketMQ may leave it, which does not know the list of queues.
    first = queue_file(stores)
    stray = first.with_name(f"{first.stat().st_size:020d}")
    stray.write_bytes(b"\1" * first.stat().st_size)
    store = stores.open()
    assert contents(store) == held
    fill(store, 150, start=60, size=0)
    held = contents(store)
    assert b"\1" * 100 not in stray.read_bytes()
    store = stores.reopen(store)
    assert contents(store) == held
    assert store.recovery is not None
    assert not store.recovery.rebuilt


def test_a_topic_directory_that_nobody_listed_is_cut_to_what_the_log_says(stores: Stores) -> None:
    held = filled(stores)
    stray = stores.root / "consumequeue" / "Stray" / "0"
    stray.mkdir(parents=True)
    shutil.copy(queue_file(stores), stray)
    assert contents(stores.open()) == held


# Deleted topics


@pytest.mark.parametrize("lost", ["consumequeue", "queuelist", None])
def test_a_rebuild_does_not_bring_deleted_topics_back(stores: Stores, lost: str | None) -> None:
    store = stores.open()
    fill(store, 30)
    fill(store, 30, topic="Gone")
    fill(store, 9, topic="Again")
    store = stores.reopen(store)
    assert store.delete_topic("Gone") == store.delete_topic("Again") == 3
    fill(store, 6, start=500, topic="Again")
    held = contents(store)
    assert ("Gone", 0) not in held
    assert len(held["Again", 0]) == 2
    stores.crash(store)
    if lost == "consumequeue":
        shutil.rmtree(stores.root / lost)
    elif lost is not None:
        (stores.root / lost).unlink()
    for _ in range(2):
        store = stores.open()
        assert contents(store) == held
        stores.close(store)


def test_a_crash_in_the_middle_of_a_deletion_completes_it(stores: Stores) -> None:
    store = stores.open()
    fill(store, 30)
    fill(store, 30, topic="Gone")
    held = {key: found for key, found in contents(store).items() if key[0] != "Gone"}
    store = stores.reopen(store)
    store._books.topics_deleted(["Gone"], store.wrote_offset)
    stores.crash(store)
    store = stores.open()
    assert contents(store) == held


def test_records_behind_a_cut_are_of_no_deleted_topic(stores: Stores) -> None:
    store = stores.open()
    fill(store, 3)
    store = stores.reopen(store)
    end = store.wrote_offset
    fill(store, 30, topic="Again")
    store.delete_topic("Again")
    stores.crash(store)
    # A power cut, which loses all that was not flushed.
    for path in stores.segments():
        content = path.read_bytes()
        path.write_bytes(content[: max(0, end - int(path.name))].ljust(len(content), b"\0"))
    store = stores.open()
    assert store.wrote_offset == end
    fill(store, 3, topic="Again")
    stores.crash(store)
    shutil.rmtree(stores.root / "consumequeue")
    assert len(contents(stores.open())["Again", 0]) == 1


def first_run_without_a_sync(stores: Stores) -> None:
    """A store after a power cut before its first sync: the first of three segments is empty."""
    store = stores.open()
    for _ in range(8):
        store.append([message(body=b"x" * 5000)])
    stores.crash(store)
    for name in ("checkpoint", "queuelist", "flushed"):
        (stores.root / name).unlink(missing_ok=True)
    assert len(stores.segments()) >= 3
    stores.segments()[0].write_bytes(b"")


def test_a_first_segment_that_no_sync_covered_ends_the_log_and_refuses_nothing(stores: Stores) -> None:
    first_run_without_a_sync(stores)
    store = stores.open()
    assert (store.wrote_offset, store.queues()) == (0, [])
    # Whole records of the second are kept aside, and none reappears after new ones.
    assert list((stores.root / "cut").glob("*/cut.json"))
    store.append([message(body=b"new")])
    store = stores.reopen(store, crash=True)
    assert contents(store) == {("Orders", 0): [b"new"]}


@pytest.mark.parametrize("what", ["clean", "checkpoint", "mark", "size"])
def test_a_first_segment_that_is_missed_is_a_refusal(stores: Stores, what: str) -> None:
    first_run_without_a_sync(stores)
    if what == "clean":
        (stores.root / "abort").unlink()
    elif what == "checkpoint":
        (stores.root / "checkpoint").write_bytes(Checkpoint(1_600_000_000_000, 0, 0, 0, 0).encode())
    elif what == "mark":
        FlushedMark(RealDisk(), stores.root).open(5000)
    else:
        stores.segments()[0].write_bytes(bytes(100) + b"content" + bytes(100))
    before = {path.name: path.read_bytes() for path in stores.segments()}
    with pytest.raises(StoreError, match="00000000000000000000"):
        stores.open()
    assert {path.name: path.read_bytes() for path in stores.segments()} == before
