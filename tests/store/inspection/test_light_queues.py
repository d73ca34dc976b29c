"""Light queues are compared with what the log's records say, and made anew from them."""

import random
from pathlib import Path

import pytest

from store.message_store import MessageStore
from store.repair.repair import Repair, inspect_and_plan
from tests.clock import ManualClock
from tests.store.inspection.stopped_store import SHAPE, change, check, kinds
from tests.store.rig import Stores, message

NAMES = ("%LMQ%a", "%LMQ%b", "%LMQ%c")


@pytest.fixture
def filled(stores: Stores) -> tuple[Path, Stores]:
    stores.fields |= {"enable_lmq": True, "enable_multi_dispatch": True}
    store, rng = stores.open(), random.Random(7)
    for number in range(200):
        names = ",".join(rng.sample(NAMES, 2)).encode()
        properties = b"INNER_MULTI_DISPATCH\x01" + names + b"\x02"
        batch = [message("Parent", 0, b"%d" % number, properties=properties), message("Parent", 1)]
        store.append(batch + [message("%LMQ%a", 0, b"direct")] * (number % 3 == 0))
    stores.close(store)
    return stores.root, stores


def contents(store: MessageStore) -> dict[str, list[tuple[int, int, int] | None]]:
    return {name: [store.entry(name, 0, offset) for offset in range(store.max_offset(name, 0))] for name in NAMES}


def test_a_sound_store_has_nothing_wrong(filled: tuple[Path, Stores]) -> None:
    root, _ = filled
    assert kinds(check(root)) == set()
    assert inspect_and_plan(root, SHAPE)[1] == []


def test_a_damaged_light_queue_is_found_and_made_anew(filled: tuple[Path, Stores]) -> None:
    root, stores = filled
    store = stores.open()
    before = contents(store)
    stores.close(store)
    path = min((root / "consumequeue" / "%LMQ%b" / "0").iterdir())
    change(path, lambda content: content.__setitem__(slice(40, 80), b"\x55" * 40))
    assert kinds(check(root)) == {"queue-wrong"}
    inspection, actions = inspect_and_plan(root, SHAPE)
    Repair(root, SHAPE, ManualClock()).act(inspection, actions)
    assert kinds(check(root)) == set()
    assert contents(stores.open()) == before
