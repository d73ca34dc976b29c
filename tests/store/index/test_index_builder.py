"""Position of the index: what is already indexed needs no new file."""

from pathlib import Path

import pytest

from store.index import index_builder, key_scan
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


def index_in(root: Path) -> list[tuple[str, bytes]]:
    """The index files of a log whose records have 0 to 12 keys, after a stop in the middle."""
    stores = Stores(root)
    stores.fields |= {"max_hash_slot_num": 10, "max_index_num": 40}
    for first in (0, 100):
        store = stores.open()
        texts = (" ".join(f"k{number}-{key}" for key in range(number % 13)) for number in range(first, first + 100))
        store.append([message(properties=b"KEYS\x01%s\x02" % text.encode()) for text in texts])
        stores.close(store)
    return sorted((path.name, path.read_bytes()) for path in (root / "index").iterdir())


def test_an_index_in_small_pieces_is_that_in_large_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = index_in(tmp_path / "large")
    # Some records have more keys than a call of the engine takes, and steps end within batches.
    monkeypatch.setattr(key_scan, "_CALL_KEYS", 8)
    monkeypatch.setattr(index_builder, "_STEP_KEYS", 20)
    assert index_in(tmp_path / "small") == expected
    assert len(expected) > 20
