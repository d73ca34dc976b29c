"""Position of the index: what is already indexed needs no new file."""

from tests.store.rig import Stores, message


def test_a_stop_with_nothing_new_adds_no_file_behind_a_full_one(stores: Stores) -> None:
    stores.fields |= {"max_hash_slot_num": 10, "max_index_num": 4}
    store = stores.open()
    # Unit 0 is never used: three keys fill the file.
    store.append([message(properties=b"KEYS\x01k%d\x02" % number) for number in range(3)])
    stores.close(store)
    names = [path.name for path in (stores.root / "index").iterdir()]
    assert len(names) == 1
    for _ in range(2):
        stores.close(stores.open())
        assert [path.name for path in (stores.root / "index").iterdir()] == names
