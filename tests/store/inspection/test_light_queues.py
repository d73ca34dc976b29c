"""Light queues are compared with the properties of the log's records, and rebuilt from them."""

import random
from pathlib import Path

import pytest

from store.message_store import MessageStore
from store.repair.repair import Repair
from tests.clock import ManualClock
from tests.store.inspection.stopped_store import SHAPE, change, check, check_and_plan, kinds
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
    assert check_and_plan(root)[1] == []


def test_a_damaged_light_queue_is_found_and_rebuilt(filled: tuple[Path, Stores]) -> None:
    root, stores = filled
    store = stores.open()
    before = contents(store)
    stores.close(store)
    path = min((root / "consumequeue" / "%LMQ%b" / "0").iterdir())
    change(path, lambda content: content.__setitem__(slice(40, 80), b"\x55" * 40))
    assert kinds(check(root)) == {"queue-wrong"}
    inspection, actions = check_and_plan(root)
    Repair(root, SHAPE, ManualClock()).act(inspection, actions)
    assert kinds(check(root)) == set()
    assert contents(stores.open()) == before
