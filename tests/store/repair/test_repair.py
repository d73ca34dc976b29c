"""A repaired store opens, holds all messages outside the damage at their offsets, and the repair can be undone."""

import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from sprocket.common.errors import StoreError
from sprocket.remoting.message.record import MIN_RECORD_BYTES
from store.layout import file_name
from store.log.log_scan import LogScan
from store.record.record import Record, decode
from store.repair.filler import MAX_FILLER_BYTES, filler, filler_sizes
from store.repair.repair import Repair
from store.repair.repair_plan import plan
from tests.clock import ManualClock
from tests.store.insides import commit_log_of
from tests.store.inspection.stopped_store import (
    SHAPE,
    change,
    check,
    check_and_plan,
    content_of,
    fill,
    kinds,
    messages_of,
    record_in,
)
from tests.store.rig import Stores, message

Damage = Callable[[Path], object]


class Killed(Exception):
    """The process ends here."""


def repair(root: Path) -> Path:
    store, actions = check_and_plan(root)
    assert actions
    folder = Repair(root, SHAPE, ManualClock()).act(store, actions)
    after = check(root)
    assert kinds(after) == set(), [str(finding) for finding in after.findings.kept]
    assert plan(after) == []
    return folder


def flip(path: Path, at: int) -> None:
    change(path, lambda content: content.__setitem__(at, content[at] ^ 0x08))


def damaged_body(root: Path) -> tuple[str, int, int]:
    """Flip a bit of one message's body in the middle of the log; return which message."""
    path, record = record_in(root, 1, 12)
    assert record.in_consume_queue
    flip(path, record.physical_offset % SHAPE.segment_bytes + 89)
    return record.topic, record.queue_id, record.queue_offset


def test_a_damaged_record_is_lost_alone_and_no_offset_shifts(stores: Stores) -> None:
    root = fill(stores)
    store = stores.open()
    before, end = messages_of(store), store.wrote_offset
    stores.close(store)
    lost = damaged_body(root)
    repair(root)
    for crash in (False, True):
        store = stores.open()
        if crash:
            stores.crash(store)
            store = stores.open()
        assert store.wrote_offset == end
        assert messages_of(store) == {place: body for place, body in before.items() if place != lost}
        stores.close(store)


def test_queues_rebuilt_after_a_repair_have_the_same_offsets(stores: Stores) -> None:
    root = fill(stores)
    damaged_body(root)
    repair(root)
    store = stores.open()
    before = messages_of(store)
    stores.close(store)
    shutil.rmtree(root / "consumequeue")
    repair(root)
    store = stores.open()
    assert messages_of(store) == before
    stores.close(store)


DAMAGES: list[Damage] = [
    lambda root: damaged_body(root),
    lambda root: flip(root / "commitlog" / file_name(0), 5),
    lambda root: flip(max((root / "commitlog").iterdir()), 20),
    lambda root: (root / "commitlog" / file_name(16384)).unlink(),
    lambda root: change(root / "commitlog" / file_name(16384), lambda c: c.__delitem__(slice(9000, None))),
    lambda root: change(root / "commitlog" / file_name(16384), lambda c: c.extend(b"x" * 9)),
    lambda root: change(root / "commitlog" / file_name(0), lambda c: c.__setitem__(slice(4000, 9000), bytes(5000))),
    lambda root: change(root / "commitlog" / file_name(0), lambda c: c.__setitem__(slice(15000, 16384), b"?" * 1384)),
    lambda root: (root / "commitlog" / file_name(1 << 17)).touch(),
    lambda root: shutil.rmtree(root / "consumequeue"),
    lambda root: flip(root / "consumequeue/Orders/0" / file_name(0), 46),
    lambda root: (root / "consumequeue/Orders/0" / file_name(0)).unlink(),
    lambda root: flip(next((root / "index").iterdir()), 70),
    lambda root: change(next((root / "index").iterdir()), lambda c: c.__delitem__(slice(9000, None))),
    lambda root: flip(root / "checkpoint", 1),
]


@pytest.mark.parametrize("number", range(len(DAMAGES)))
def test_every_damage_is_repaired_and_the_store_opens(stores: Stores, number: int) -> None:
    root = fill(stores)
    store = stores.open()
    before = messages_of(store)
    stores.close(store)
    DAMAGES[number](root)
    repair(root)
    store = stores.open()
    after = messages_of(store)
    assert after.items() <= before.items()
    assert len(after) > len(before) // 4
    stores.close(store)
    assert kinds(check(root)) == set()


def test_a_repair_that_is_killed_anywhere_is_finished_by_the_next(stores: Stores, tmp_path: Path) -> None:
    root = fill(stores)
    damaged_body(root)
    (root / "commitlog" / file_name(32768)).unlink()
    flip(root / "consumequeue/Returns/0" / file_name(0), 26)
    flip(next((root / "index").iterdir()), 70)
    work = tmp_path / "work"
    stops = 0
    for stop in range(100):
        shutil.rmtree(work, ignore_errors=True)
        shutil.copytree(root, work)
        store, actions = check_and_plan(work)
        if not killed_at(work, store, actions, stop):
            break
        stops += 1
        assert Repair(work, SHAPE, ManualClock()).resume() is not None
        assert kinds(check(work)) == set()
    assert stops == len(actions) >= 5


def killed_at(root: Path, store: object, actions: list[object], stop: int) -> bool:
    told: list[str] = []

    def tell(text: str) -> None:
        if len(told) == stop:
            raise Killed
        told.append(text)

    try:
        Repair(root, SHAPE, ManualClock(), tell).act(store, actions)
    except Killed:
        return True
    return False


def test_undo_restores_every_byte(stores: Stores) -> None:
    root = fill(stores)
    damaged_body(root)
    change(root / "commitlog" / file_name(32768), lambda content: content.__delitem__(slice(5000, None)))
    (root / "commitlog" / file_name(1 << 17)).touch()
    flip(root / "consumequeue/Returns/0" / file_name(0), 26)
    flip(root / "checkpoint", 1)
    (root / "config").mkdir()
    (root / "config" / "topics.json").write_text("{")
    (root / "config" / "topics.json.bak").write_text("{}")
    before = content_of(root)
    folder = repair(root)
    assert content_of(root) != before
    Repair(root, SHAPE, ManualClock()).undo(folder.name)
    assert content_of(root) == before


@pytest.mark.parametrize("is_cut_short", [False, True])
def test_what_was_stored_since_is_not_undone(stores: Stores, is_cut_short: bool) -> None:
    root = fill(stores)
    store = stores.open()
    end = store.wrote_offset % SHAPE.segment_bytes
    stores.close(store)
    last = max((root / "commitlog").iterdir())
    tail = slice(end, None) if is_cut_short else slice(end, end + 500)
    change(last, lambda content: content.__delitem__(tail) if is_cut_short else content.__setitem__(tail, b"?" * 500))
    folder = repair(root)
    store = stores.open()
    store.append([message("Orders", 0, b"since") for _ in range(3)])
    before = messages_of(store)
    stores.close(store)
    with pytest.raises(StoreError, match="stored since the repair"):
        Repair(root, SHAPE, ManualClock()).undo(folder.name)
    store = stores.open()
    assert messages_of(store) == before
    stores.close(store)


def test_undoing_that_was_killed_is_done_by_undoing_again(stores: Stores) -> None:
    root = fill(stores)
    store = stores.open()
    end = store.wrote_offset % SHAPE.segment_bytes
    stores.close(store)
    last = max((root / "commitlog").iterdir())
    change(last, lambda content: content.__setitem__(slice(end, end + 500), b"?" * 500))
    before = content_of(root)
    folder = repair(root)
    change(last, lambda content: content.__setitem__(slice(end, end + 200), b"?" * 200))
    Repair(root, SHAPE, ManualClock()).undo(folder.name)
    assert content_of(root) == before


@pytest.mark.parametrize("size", [*range(MIN_RECORD_BYTES, 260), 5000, MAX_FILLER_BYTES])
def test_a_filler_of_any_size_is_a_record_that_no_queue_knows(size: int) -> None:
    record = decode(memoryview(filler(7, size, 1)))
    assert isinstance(record, Record)
    assert (record.size_bytes, record.physical_offset, record.in_consume_queue) == (size, 7, False)


@pytest.mark.parametrize("size", [91, MAX_FILLER_BYTES, MAX_FILLER_BYTES + 1, 3 * MAX_FILLER_BYTES + 90, 1 << 30])
def test_fillers_add_up_and_none_is_too_small_or_too_large(size: int) -> None:
    sizes = filler_sizes(size)
    assert sum(sizes) == size
    assert all(MIN_RECORD_BYTES <= part <= MAX_FILLER_BYTES for part in sizes)


def test_damage_at_random_places_costs_only_what_it_touched(stores: Stores, tmp_path: Path) -> None:
    root = fill(stores)
    work = tmp_path / "work"
    for seed in range(5):
        shutil.rmtree(work, ignore_errors=True)
        shutil.copytree(root, work)
        choose = random.Random(seed)
        path = choose.choice(sorted((work / "commitlog").iterdir()))
        at, size = choose.randrange(SHAPE.segment_bytes), choose.randrange(1, 700)
        content = path.read_bytes()
        path.write_bytes((content[:at] + choose.randbytes(size) + content[at + size :])[: len(content)])
        store, actions = check_and_plan(work)
        if actions:
            Repair(work, SHAPE, ManualClock()).act(store, actions)
        assert kinds(check(work)) == set(), seed


def test_the_brokers_own_walk_goes_over_what_a_repair_wrote(stores: Stores) -> None:
    root = fill(stores)
    damaged_body(root)
    repair(root)
    store = stores.open()
    walked = list(LogScan(commit_log_of(store), 0, check_crc=True))
    assert walked[-1].physical_offset + walked[-1].size_bytes == store.wrote_offset
    stores.close(store)
