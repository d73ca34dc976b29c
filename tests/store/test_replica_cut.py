"""Where a replica's records end, and a log that is cut there by the next start."""

import random
from pathlib import Path

import pytest

from sprocket.common.errors import RestartNeeded
from tests.store.reading import read_queue
from tests.store.rig import Stores, message


def test_record_ends_are_found_from_any_offset(tmp_path: Path) -> None:
    stores = Stores(tmp_path)
    store = stores.open()
    choose = random.Random(3)
    ends = [0]
    for _ in range(80):
        ((_, offset, size),) = store.append([message(body=choose.randbytes(choose.randrange(1, 900)))])
        ends.append(offset + size)
    segment = store.config.mapped_file_size_commit_log
    ends += range(0, ends[-1], segment)  # behind a blank
    replica = store.replica()
    for _ in range(300):
        offset = choose.randrange(ends[-1] if choose.random() < 0.5 else store.wrote_offset + 1)
        found = replica.record_end(offset)
        assert found == max(end for end in ends if end <= offset)
    assert replica.record_end(store.wrote_offset) == store.wrote_offset
    stores.close_all()


def test_a_cut_log_keeps_aside_what_it_gives_up_and_takes_nothing_before_its_restart(tmp_path: Path) -> None:
    stores = Stores(tmp_path)
    store = stores.open()
    appended = [store.append([message(body=b"%03d" % number * 50, tag="t")])[0] for number in range(60)]
    store.flush()
    end = appended[25][1] + appended[25][2]
    given_up = [bytes(store.record_at(offset, size) or b"") for _, offset, size in appended[26:]]
    replica = store.replica()
    with pytest.raises(RestartNeeded, match=str(end)):
        replica.cut(end, "the master's log goes on differently")
    with pytest.raises(RestartNeeded):
        replica.append(replica.received_offset, [memoryview(b"x")])
    store.shutdown()
    store = stores.open()
    assert store.wrote_offset == store.flushed_offset == end
    assert [record.queue_offset for record in read_queue(store)] == list(range(26))
    assert store.index.reached_offset <= end
    (folder,) = (tmp_path / "cut").iterdir()
    kept = b"".join(path.read_bytes() for path in sorted(folder.iterdir()) if path.name.isdigit())
    assert all(record and record in kept for record in given_up)
    assert "goes on differently" in (folder / "cut.json").read_text()
    replica = store.replica()
    assert (replica.end_offset, replica.restart()) == (end, end)
    stores.close_all()
