"""The number of slots of an index file is derived from the file: a check needs no configuration."""

from pathlib import Path

import numpy as np
import pytest

from store.inspection.index_inspection import IndexFileView
from store.inspection.index_shape import default_slots, slot_count_of
from store.inspection.inspected_store import StoreShape
from store.inspection.store_inspection import StoreInspection
from store.layout import INDEX_HEADER_DTYPE
from tests.store.inspection.stopped_store import kinds
from tests.store.rig import Stores, message

HEADER = INDEX_HEADER_DTYPE.itemsize
# (maxHashSlotNum, maxIndexNum).  For the last three the size alone suggests another number, or none.
SHAPES = [(500, 2_000), (1000, 4_000), (777, 100), (1, 50), (3, 17), (500, 2_000 + 84), (521, 200), (40, 428)]


def filled(stores: Stores, slots: int, units: int, count: int = 120) -> Path:
    """Return a stopped store whose index files have the shape."""
    stores.fields |= {"max_hash_slot_num": slots, "max_index_num": units}
    store = stores.open()
    for number in range(count):
        stores.clock.advance(0.05)
        store.append([message("Orders", 0, b"body", properties=b"KEYS\x01k%d all\x02" % number)])
    stores.close(store)
    return stores.root


@pytest.mark.parametrize(("slots", "units"), SHAPES)
@pytest.mark.parametrize("count", [1, 120])
def test_a_whole_store_of_any_shape_is_fine_without_its_configuration(
    stores: Stores, slots: int, units: int, count: int
) -> None:
    root = filled(stores, slots, units, count)
    files = sorted((root / "index").iterdir())
    assert files
    for path in files:
        view = IndexFileView(path)
        if view.header.index_count > 1:
            assert (view.slot_count, view.capacity) == (slots, units)
    assert kinds(StoreInspection(root).run()) == set()
    assert kinds(StoreInspection(root, StoreShape(index_slots=slots, index_units=units)).run()) == set()


def test_damage_is_still_found_where_no_size_is_the_default(stores: Stores) -> None:
    root = filled(stores, 777, 100)
    path = min((root / "index").iterdir())
    whole = path.read_bytes()
    slots = np.frombuffer(whole, ">i4", 777, HEADER)
    used = int(np.flatnonzero(slots)[0])
    unit_at = HEADER + 777 * 4 + 20 * 99
    for at, kind in (
        (HEADER + 4 * used, "index-slot"),
        (unit_at - 20 + 16, "index-chain"),
        (unit_at + 7, "index-header"),  # the newest unit, from which the shape is derived: another file gives it then
    ):
        damaged = bytearray(whole)
        damaged[at + 3 if kind != "index-header" else at + 4] ^= 0x11
        path.write_bytes(damaged)
        assert kind in kinds(StoreInspection(root).run()), kind
    path.write_bytes(whole[:-3])
    assert "index-size" in kinds(StoreInspection(root).run())


def test_a_file_without_units_says_nothing() -> None:
    empty = bytearray(HEADER + 4 * 777 + 20 * 100)
    assert slot_count_of(memoryview(empty)) is not None
    assert default_slots(HEADER + 500 * 4 + 2_000 * 20) == 500
    assert slot_count_of(memoryview(bytes(HEADER))) is None
    assert slot_count_of(memoryview(bytes(HEADER + 25))) is None


@pytest.mark.parametrize("count", [0, 1, 5, 2**31 - 1, -5])
def test_headers_of_any_count_raise_nothing(count: int) -> None:
    content = bytearray(HEADER + 4 * 7 + 20 * 3)
    content[36:40] = (count & 0xFFFFFFFF).to_bytes(4, "big")
    slot_count_of(memoryview(content))
