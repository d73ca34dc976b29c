"""Micro benchmarks of the store: one record, appends of 1 and 64 over 8 queues, a lookup, reads of 32.

Run with ``make bench-micro``.  A batch of 64 with bodies of 128 bytes may cost 1.5 us a message, a read of 32
neighbours 4 us.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sprocket.common.clock import SystemClock
from store.config.store_config import StoreConfig
from store.message_store import GetStatus, MessageStore, PendingMessage
from store.record.record import Record, decode, encode_head

HOST = bytes((10, 1, 2, 3)) + (5432).to_bytes(4, "big")
PROPERTIES = b"UNIQ_KEY\x01AC11000100002A139A0C5E0C0F800000\x02WAIT\x01true\x02TAGS\x01a\x02"


def pending(topic: str, queue_id: int) -> PendingMessage:
    return PendingMessage(topic, queue_id, b"x" * 128, PROPERTIES, 97, 0, 0, 1_700_000_000_000, HOST)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MessageStore]:
    config = StoreConfig(store_path_root_dir=tmp_path, mapped_file_size_commit_log=256 << 20)
    store = MessageStore(config, clock=SystemClock(), notify=lambda run: None)
    store.start()
    yield store
    store.shutdown()


def test_encode_head(benchmark: Any) -> None:
    message = pending("Bench", 0)
    head = benchmark(encode_head, message, 300, -626843481, 5, 1 << 40, 0, 1_700_000_000_000, HOST)
    assert len(head) == 88


def test_decode(benchmark: Any, store: MessageStore) -> None:
    store.append([pending("Bench", 0)])
    view = store.record_at(0)
    assert view is not None
    assert isinstance(benchmark(decode, view), Record)


@pytest.mark.parametrize("size", [1, 64])
def test_append(benchmark: Any, store: MessageStore, size: int) -> None:
    batch = [pending("Bench", k % 8) for k in range(size)]
    benchmark.extra_info["messages"] = size
    appended = benchmark(store.append, batch)
    assert len(appended) == size


@pytest.fixture
def filled(store: MessageStore) -> MessageStore:
    for _ in range(200):
        store.append([pending("Neighbours", 0) for _ in range(64)])
        store.append([pending("Scattered", k % 8) for k in range(64)])
    return store


def test_consume_queue_lookup(benchmark: Any, filled: MessageStore) -> None:
    assert benchmark(filled.entry, "Scattered", 3, 700)[1] > 128


@pytest.mark.parametrize(("topic", "slices"), [("Neighbours", 1), ("Scattered", 32)])
def test_get_32(benchmark: Any, filled: MessageStore, topic: str, slices: int) -> None:
    result = benchmark(filled.get, topic, 0, 640, 32, 1 << 20)
    assert (result.status, result.message_count, len(result.slices)) == (GetStatus.FOUND, 32, slices)


def test_get_32_by_tag(benchmark: Any, filled: MessageStore) -> None:
    wanted = np.int64(97)
    result = benchmark(filled.get, "Scattered", 0, 640, 32, 1 << 20, lambda codes: codes == wanted)
    assert result.message_count == 32


def test_get_at_the_end(benchmark: Any, filled: MessageStore) -> None:
    assert benchmark(filled.get, "Scattered", 0, 1600, 32, 1 << 20).status is GetStatus.OFFSET_OVERFLOW_ONE


@pytest.mark.parametrize("records", [1, 32, 4096])
def test_replica_append(benchmark: Any, store: MessageStore, tmp_path: Path, records: int) -> None:
    """What a slave does with what one read brought."""
    while store.wrote_offset < 16 << 20:
        store.append([pending("Bench", k % 8) for k in range(64)])
    size = store.wrote_offset // store.max_offset("Bench", 0) // 8 * records
    master, root = store.master_log(), tmp_path / "replica"
    config = StoreConfig(store_path_root_dir=root, mapped_file_size_commit_log=256 << 20)
    copy = MessageStore(config, clock=SystemClock(), notify=lambda run: None)
    copy.start()
    replica = copy.replica()

    def piece() -> tuple[tuple[int, list[memoryview]], dict[str, Any]]:
        found = master.piece_at(replica.received_offset, size)
        assert found is not None
        return (replica.received_offset, [found]), {}

    benchmark.extra_info["messages"] = records
    benchmark.pedantic(replica.append, setup=piece, rounds=min(200, (15 << 20) // size))
    assert 0 < replica.end_offset <= replica.received_offset
    copy.shutdown()
