"""The index follows the log, survives damage of its files, and agrees with the log."""

import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from sprocket.common.errors import ConfigError, DiskFull
from store.config.store_config import FlushDiskType
from store.index.message_query import MessageQuery
from store.layout import INDEX_HEADER_DTYPE, index_file_bytes
from store.message_store import MessageStore
from store.record.record import Record, decode
from tests.store.insides import index_of
from tests.store.rig import FaultyDisk, Stores, message

FOREVER = 1 << 62
LIMIT_S = 20.0


@pytest.fixture
def stores(tmp_path: Path) -> Iterator[Stores]:
    rig = Stores(tmp_path)
    rig.fields |= {"max_hash_slot_num": 50, "max_index_num": 100}
    yield rig
    rig.close_all()


def send(store: MessageStore, start: int, end: int) -> None:
    """Append messages with a unique key, and a key that ten of them share."""
    for number in range(start, end):
        properties = f"UNIQ_KEY\x01U{number}\x02KEYS\x01group-{number // 10} n{number}\x02"
        store.append([message(body=b"%d" % number, properties=properties.encode())])


def catch_up(stores: Stores, store: MessageStore) -> None:
    done: list[bool] = []
    store.index.when_indexed(store.confirm_offset, lambda: done.append(True))
    deadline = time.monotonic() + LIMIT_S
    while not done and time.monotonic() < deadline:
        stores.run_notified()
        time.sleep(0.002)
    assert done


def give_a_turn(store: MessageStore) -> None:
    """Wake the index and give it time for its work."""
    store.index.when_indexed(FOREVER, lambda: None)
    time.sleep(0.2)


def bodies(store: MessageStore, key: str, most: int = 64, begin: int = 0, end: int = FOREVER) -> list[int]:
    found = []
    for view in MessageQuery(store.index, store.record_at, "Orders", key, most, begin, end).run():
        record = decode(view)
        assert isinstance(record, Record)
        found.append(int(bytes(record.body)))
    return found


def check_all(store: MessageStore, count: int) -> None:
    for number in range(count):
        assert bodies(store, f"U{number}") == [number]
    for group in range(count // 10):
        assert bodies(store, f"group-{group}") == list(range(group * 10, group * 10 + 10))


def test_it_goes_on_once_the_log_can_be_mapped_again(stores: Stores) -> None:
    disk = FaultyDisk()
    stores.disk = disk
    store = stores.open()
    disk.view_fails = True
    send(store, 0, 20)
    store.index.when_indexed(FOREVER, lambda: None)
    deadline = time.monotonic() + LIMIT_S
    while not disk.failed_views and time.monotonic() < deadline:
        time.sleep(0.002)
    assert disk.failed_views
    disk.view_fails = False
    catch_up(stores, store)
    assert store.failure is None
    check_all(store, 20)


def index_files(stores: Stores) -> list[Path]:
    return sorted((stores.root / "index").iterdir())


def check_files(store: MessageStore) -> None:
    assert [file.fault() for file in index_of(store).files] == [None] * len(index_of(store).files)


def test_messages_are_found_by_each_of_their_keys(stores: Stores) -> None:
    store = stores.open()
    send(store, 0, 200)
    catch_up(stores, store)
    check_all(store, 200)
    assert len(index_files(stores)) == 7, "99 entries a file"
    assert bodies(store, "U200") == []
    assert bodies(store, "group-3", most=4) == [36, 37, 38, 39], "the newest, oldest first"
    check_files(store)


def test_times_bound_a_search_to_the_second(stores: Stores) -> None:
    store = stores.open()
    begin = stores.clock.wall_ms()
    for number in range(10):
        send(store, number, number + 1)
        stores.clock.advance(2)
    catch_up(stores, store)
    assert bodies(store, "group-0", begin=begin + 4000, end=begin + 9000) == [2, 3, 4]
    assert bodies(store, "group-0", begin=begin + 100_000, end=FOREVER) == []


@pytest.mark.parametrize("crash", [False, True])
def test_a_start_goes_on_where_the_last_run_ended(stores: Stores, crash: bool) -> None:
    store = stores.open()
    for start in range(0, 120, 30):
        send(store, start, start + 30)
        store = stores.reopen(store, crash=crash)
    catch_up(stores, store)
    check_all(store, 120)
    check_files(store)
    assert sum(file.header.index_count - 1 for file in index_of(store).files) == 360, "no entry twice"


def test_a_clean_stop_leaves_nothing_to_index(stores: Stores) -> None:
    store = stores.open()
    send(store, 0, 50)
    stores.close(store)
    before = [path.read_bytes() for path in index_files(stores)]
    store = stores.open()
    catch_up(stores, store)
    stores.close(store)
    assert [path.read_bytes() for path in index_files(stores)] == before
    assert int(np.frombuffer(before[-1], INDEX_HEADER_DTYPE, 1)[0]["index_count"]) == 52


def test_after_a_crash_only_full_files_that_the_checkpoint_names_are_kept(stores: Stores) -> None:
    store = stores.open()
    stores.clock.advance(1)
    send(store, 0, 40)  # a full file and a part of the next
    stores.clock.advance(1)
    send(store, 40, 50)
    catch_up(stores, store)
    store = stores.reopen(store)  # the checkpoint is written
    send(store, 50, 60)
    catch_up(stores, store)
    names = [path.name for path in index_files(stores)]
    assert len(names) == 2
    stores.crash(store)
    # A power cut leaves this of a file that was not synced.
    index_files(stores)[1].write_bytes(bytes(index_file_bytes(50, 100)))
    store = stores.open()
    assert [path.name for path in index_files(stores)][:1] == names[:1]
    catch_up(stores, store)
    check_all(store, 60)


@pytest.mark.parametrize(
    ("position", "damage"),
    [
        (0, b"\xff" * 8),  # begin timestamp
        (16, b"\x7f" * 8),  # begin offset
        (24, b"\x00" * 8),  # end offset
        (32, b"\x00\x00\x00\x07"),  # slot count
        (36, b"\x7f\xff\xff\xff"),  # index count
        (36, b"\x00\x00\x00\x05"),
        (40 + 4 * 50 + 20 + 4, b"\x11" * 8),  # the first unit's offset
    ],
)
def test_a_damaged_file_is_rebuilt(stores: Stores, position: int, damage: bytes) -> None:
    store = stores.open()
    send(store, 0, 100)
    stores.close(store)
    for number, path in enumerate(index_files(stores)):
        good = path.read_bytes()
        path.write_bytes(good[:position] + damage + good[position + len(damage) :])
        store = stores.open()
        send(store, 100 + number, 101 + number)
        catch_up(stores, store)
        check_all(store, 100)
        check_files(store)
        stores.close(store)
        if number < 2:
            assert index_files(stores)[number].read_bytes() == good, "the same bytes"


def test_a_broken_chain_is_found_by_the_search_and_rebuilt(stores: Stores) -> None:
    store = stores.open()
    send(store, 0, 100)
    stores.close(store)
    path = index_files(stores)[1]
    good = path.read_bytes()
    units_at = 40 + 4 * 50
    damaged = bytearray(good)
    for unit in range(2, 99):
        damaged[units_at + 20 * unit + 16 : units_at + 20 * unit + 20] = (50).to_bytes(4, "big")
    path.write_bytes(bytes(damaged))
    store = stores.open()
    for number in range(100):
        assert bodies(store, f"U{number}") in ([], [number]), "less, never wrong"
    deadline = time.monotonic() + LIMIT_S
    while time.monotonic() < deadline:
        catch_up(stores, store)
        if all(bodies(store, f"U{number}") == [number] for number in range(100)):
            break
    check_all(store, 100)
    stores.close(store)
    assert index_files(stores)[1].read_bytes() == good


def test_files_of_another_size_are_rebuilt_and_strangers_left_alone(stores: Stores) -> None:
    store = stores.open()
    send(store, 0, 60)
    stores.close(store)
    stranger = stores.root / "index" / "README"
    stranger.write_text("mine")
    stores.fields["max_hash_slot_num"] = 60
    store = stores.open()
    catch_up(stores, store)
    check_all(store, 60)
    assert stranger.read_text() == "mine"
    stranger.unlink()
    assert {path.stat().st_size for path in index_files(stores)} == {index_file_bytes(60, 100)}


def test_an_index_of_a_longer_log_is_cut_with_it(stores: Stores) -> None:
    store = stores.open()
    send(store, 0, 50)
    entry = store.entry("Orders", 0, 40)
    assert entry is not None
    stores.close(store)
    (stores.root / "abort").touch()
    for name in ("checkpoint", "queuelist", "flushed"):
        (stores.root / name).unlink(missing_ok=True)
    segment_bytes = stores.fields["mapped_file_size_commit_log"]
    segment = stores.segments()[entry[0] // segment_bytes]
    content = segment.read_bytes()
    segment.write_bytes(content[: entry[0] % segment_bytes].ljust(segment_bytes, b"\0"))
    store = stores.open()
    assert store.wrote_offset == entry[0]
    catch_up(stores, store)
    check_all(store, 40)
    for number in range(40, 50):
        assert bodies(store, f"U{number}") == []
    send(store, 100, 110)
    catch_up(stores, store)
    assert bodies(store, "group-10") == list(range(100, 110))


def test_what_is_not_confirmed_is_not_indexed(stores: Stores) -> None:
    stores.fields["flush_disk_type"] = FlushDiskType.SYNC_FLUSH
    store = stores.open()
    send(store, 0, 10)
    give_a_turn(store)  # the flush waits until the owner is notified
    assert store.confirm_offset == 0
    assert store.index.reached_offset == 0
    assert bodies(store, "U3") == []
    deadline = time.monotonic() + LIMIT_S
    while store.confirm_offset < store.wrote_offset and time.monotonic() < deadline:
        stores.run_notified()
    catch_up(stores, store)
    check_all(store, 10)


def test_a_full_disk_only_delays_the_index(stores: Stores) -> None:
    disk = FaultyDisk()
    stores.disk = disk
    store = stores.open()
    disk.write_fault = lambda path: path.parent.name == "index"
    disk.write_error = DiskFull
    send(store, 0, 40)
    give_a_turn(store)
    assert store.failure is None
    assert bodies(store, "U3") == []
    disk.write_fault = None
    catch_up(stores, store)
    send(store, 40, 80)
    catch_up(stores, store)
    check_all(store, 80)
    check_files(store)


def test_switched_off_it_answers_from_what_is_there_and_catches_up_later(stores: Stores) -> None:
    store = stores.open()
    send(store, 0, 20)
    stores.close(store)
    stores.fields["message_index_enable"] = False
    store = stores.open()
    send(store, 20, 40)
    give_a_turn(store)
    assert bodies(store, "group-1") == list(range(10, 20))
    assert bodies(store, "group-2") == []
    stores.close(store)
    stores.fields |= {"message_index_enable": True, "message_index_safe": True}
    store = stores.open()
    check_all(store, 40)


def test_files_go_with_the_log_but_the_last_stays(stores: Stores) -> None:
    store = stores.open()
    send(store, 0, 400)
    catch_up(stores, store)
    files = index_of(store)
    assert len(files.files) > 8
    third = files.files[2].header
    assert files.expired(third.end_physical_offset) == files.files[:2]
    assert files.expired(third.end_physical_offset + 1) == files.files[:3]
    assert files.expired(1 << 60) == files.files[:-1]
    files.remove(files.expired(1 << 60))
    assert len(index_files(stores)) == 1
    assert bodies(store, "U399") == [399]
    assert bodies(store, "U0") == []


def test_names_keep_the_order_when_the_clock_steps_back(stores: Stores) -> None:
    store = stores.open()
    send(store, 0, 40)
    catch_up(stores, store)
    stores.clock.step_wall(-3_600_000)
    send(store, 40, 100)
    catch_up(stores, store)
    paths = [file.path for file in index_of(store).files]
    assert paths == sorted(paths)
    assert all(len(path.name) == 17 for path in paths)
    check_all(store, 100)


def test_a_file_must_fit_a_mapping(stores: Stores) -> None:
    stores.fields |= {"max_hash_slot_num": 100_000_000, "max_index_num": 100_000_000}
    with pytest.raises(ConfigError, match="maxIndexNum"):
        stores.config.check()
