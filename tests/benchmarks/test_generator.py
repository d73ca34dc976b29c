"""The load generator counts what a broker really stored and delivered, and believes no bad answer."""

import contextlib
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from benchmarks.system import engines, generator, native
from benchmarks.system.frames import QUEUES
from benchmarks.system.workload import LoadError, Workload
from store.layout import CONSUME_QUEUE_DTYPE
from store.record.record import TagsCodes
from store.scan.engine import tags_codes_of
from store.scan.record_scan import RecordScan, Stop
from tests.compat import wire

LOOPS = [
    "python",
    pytest.param("c", marks=pytest.mark.skipif(native.compiler() is None, reason="no C compiler")),
]


@pytest.fixture
def naive(tmp_path: Path) -> Iterator[str]:
    with engines.started("naive", tmp_path / "naive", sync_flush=False) as running:
        yield running.address


in_c = pytest.mark.skipif(native.compiler() is None, reason="no C compiler")


@pytest.mark.parametrize(
    ("engine", "serialization"),
    [
        pytest.param("floor", wire.JSON, marks=in_c),
        pytest.param("floor", wire.ROCKETMQ, marks=in_c),
    ],
)
def test_a_floor_stores_what_a_broker_stores(tmp_path: Path, engine: str, serialization: int) -> None:
    """Its log is a log: each answered send is one valid record, and each queue says where its records are."""
    with engines.started(engine, tmp_path / "floor", sync_flush=False) as running:
        result = generator.run(running.address, "Orders", Workload("send", 300, 64, 2, serialization), 0.3, "auto")
        count = stored(running.address, "Orders")
        assert count == result.messages + 64
        if engine == "floor":
            pulled = generator.run(running.address, "Orders", Workload("pull", 300, 4), 0.2, "auto")
            assert pulled.messages > 0
    store = tmp_path / "floor" / "store"
    segment = (store / "segment-0").read_bytes()
    scan = RecordScan(memoryview(segment), 0, len(segment), check_crc=True)
    found = {}
    for batch in scan:
        codes = tags_codes_of(batch, TagsCodes("1s"))
        for index, position in enumerate((batch.base + batch.positions).tolist()):
            key = int(batch.queue_ids[index]), int(batch.queue_offsets[index])
            found[key] = position, int(batch.sizes[index]), int(codes[index])
    assert scan.end.stop is Stop.ZEROS
    assert len(found) == count
    entries = [np.fromfile(store / f"queue-{queue}", CONSUME_QUEUE_DTYPE, count) for queue in range(QUEUES)]
    assert sorted(found.values()) == sorted(entry.item() for queue in entries for entry in queue if entry["size"])


def stored(address: str, topic: str) -> int:
    ends = [
        wire.invoke(address, wire.GET_MAX_OFFSET, {"topic": topic, "queueId": str(queue)}) for queue in range(QUEUES)
    ]
    return sum(int(end.fields["offset"]) for end in ends)


@pytest.mark.parametrize("serialization", [wire.JSON, wire.ROCKETMQ])
@pytest.mark.parametrize("connections", [1, 3])
@pytest.mark.parametrize("loop", LOOPS)
def test_answered_sends_are_stored(naive: str, loop: str, connections: int, serialization: int) -> None:
    workload = Workload("send", 128, 12, connections, serialization)
    result = generator.run(naive, "T", workload, 0.2, loop)
    assert result.messages > 0
    # What was still outstanding at the deadline is answered but not counted.
    assert stored(naive, "T") == result.messages + 12
    assert result.percentile_us(0.5) <= result.percentile_us(0.999)


@pytest.mark.parametrize("loop", LOOPS)
def test_store_stops_at_its_count(naive: str, loop: str) -> None:
    generator.store(naive, "T", 128, 2000, loop)
    assert 2000 <= stored(naive, "T") < 2000 + 2 * 256


@pytest.mark.parametrize(("outstanding", "connections"), [(1, 1), (4, 2)])
@pytest.mark.parametrize("loop", LOOPS)
def test_pulls_walk_real_messages(naive: str, loop: str, outstanding: int, connections: int) -> None:
    generator.store(naive, "T", 128, 1000, loop)
    result = generator.run(naive, "T", Workload("pull", 128, outstanding, connections), 0.2, loop)
    assert result.messages > 1000, "walks the queues more than once"


@pytest.mark.parametrize("loop", LOOPS)
def test_an_empty_topic_cannot_be_pulled(naive: str, loop: str) -> None:
    with pytest.raises(LoadError, match="too few"):
        generator.run(naive, "empty", Workload("pull", 128, 1), 0.2, loop)


@pytest.mark.parametrize("loop", LOOPS)
def test_a_refusal_ends_the_run_and_is_quoted(loop: str) -> None:
    answer = wire.response(16, 100_000, {}, remark="no permission for T")
    with answering(answer) as address, pytest.raises(LoadError, match="no permission for T"):
        generator.run(address, "T", Workload("send", 128, 1), 5, loop)


@pytest.mark.parametrize("loop", LOOPS)
def test_an_answer_to_what_was_not_asked_ends_the_run(loop: str) -> None:
    with answering(wire.response(0, 999_999, {})) as address, pytest.raises(LoadError, match="never asked"):
        generator.run(address, "T", Workload("send", 128, 1), 5, loop)


@pytest.mark.parametrize("loop", LOOPS)
def test_a_closed_connection_ends_the_run(loop: str) -> None:
    with answering(b"") as address, pytest.raises((LoadError, OSError)):
        generator.run(address, "T", Workload("send", 128, 1), 5, loop)


@contextlib.contextmanager
def answering(answer: bytes) -> Iterator[str]:
    """A server that reads one request, writes these bytes, and closes."""
    with socket.create_server(("127.0.0.1", 0)) as door:

        def serve() -> None:
            peer, _ = door.accept()
            with peer:
                peer.recv(65536)
                peer.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"127.0.0.1:{door.getsockname()[1]}"
        thread.join()


@pytest.mark.parametrize(("engine", "kind"), [("acl2", "send"), ("acl2", "pull"), ("tls", "send")])
def test_sprocket_with_other_settings_takes_the_load(tmp_path: Path, engine: str, kind: str) -> None:
    with engines.started(engine, tmp_path / engine, sync_flush=False) as running:
        generator.store(running.address, "T", 128, 1000, access=running.access)
        assert generator.run(running.address, "T", Workload(kind, 128, 4), 0.2, access=running.access).messages > 0
