"""The scan in batches gives what the scan record by record gives, whatever the log holds."""

import random
import shutil
import struct
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from sprocket.common.errors import StoreError
from sprocket.remoting.message.record import HEAD, MAGIC_V1, SysFlag
from sprocket.remoting.message.topic_names import SCHEDULE_TOPIC
from store.config.store_config import StoreConfig
from store.disk.disk import RealDisk
from store.dispatch import redispatch
from store.flush.checkpoint import load_checkpoint
from store.log.commit_log import CommitLog
from store.log.log_scan import ChunkScan, LogScan
from store.message_store import MessageStore, PendingMessage
from store.queue.consume_queue_table import ConsumeQueueTable
from store.record.record import Record, TagsCodes
from store.recovery.recovery import Recovery
from store.scan import record_scan
from store.scan.record_batch import RecordBatch
from tests.store.rig import Stores, message
from tests.tiers import seeds

TOPICS = ("Orders", "Orders2", "Ordere", "%RETRY%" + "g" * 60, "T" * 200, "Zürich", SCHEDULE_TOPIC)
PROPERTIES = (
    b"",
    b"TAGS\x01first\x02KEYS\x01k\x02",
    b"KEYS\x01k\x02TAGS\x01last\x02",
    b"KEYS\x01k\x02TAGS\x01no-end",
    b"KEYS\x01k\x02TAGS\x01\x02TAGS\x01second\x02",
    b"KEYS\x01k\x02TAGS\x01",
    b"XTAGS\x01not\x02TAGSX\x01not\x02",
    b"TAGS\x01" + b"long" * 20 + b"\x02",
    b"TAGS\x01exactly-thirty-two-bytes-of-tag!\x02",
    b"TAGS\x01exactly-thirty-two-bytes-of-tag!",
    b"K\x01v\x02TAGS\x01\xff\xfe\x02",
    b"K\x01" + b"v" * 400 + b"\x02TAGS\x01late\x02",
    b"TAGS\x01early\x02K\x01" + b"v" * 400 + b"\x02TAGS\x01late\x02",
    b"DELAY\x013\x02TAGS\x01t\x02",
    b"DELAY\x010\x02TAGS\x01t\x02",
    b"UNIQ_KEY\x01AC11000100002A139A0C5E0C0F800000\x02WAIT\x01true\x02TAGS\x01paid\x02",
)
SYS_FLAGS = (0, 0, 0, 0, SysFlag.TRANSACTION_PREPARED, SysFlag.TRANSACTION_COMMIT, SysFlag.TRANSACTION_ROLLBACK)
HOSTS = (b"\x0a\x01\x02\x03" + b"\0\0\x15\x38", bytes(range(16)) + b"\0\0\x15\x38")


def some_body(rng: random.Random, store: MessageStore) -> bytes:
    kind = rng.randrange(12)
    if kind == 0:
        return b""
    if kind == 1:
        return b"\x02TAGS\x01in-the-body\x02" * rng.randrange(1, 5)
    if kind == 2:
        # A body that imitates a record at its own place; with an IPv4 host, its topic and head before it.
        fake = HEAD.pack(120, MAGIC_V1, 0, 0, 0, 0, store.wrote_offset + 88, 0, 0)
        return fake.ljust(rng.randrange(60, 400), b"x")
    return rng.randbytes(rng.randrange(1, 1500 if kind == 3 else 200))


def some_message(rng: random.Random, store: MessageStore) -> PendingMessage:
    return message(
        rng.choice(TOPICS), rng.randrange(3), some_body(rng, store), properties=rng.choice(PROPERTIES),
        sys_flag=int(rng.choice(SYS_FLAGS)), born_host=rng.choices(HOSTS, (5, 1))[0],
    )  # fmt: skip


def fill(rng: random.Random, stores: Stores, store: MessageStore, batches: int) -> None:
    for _ in range(batches):
        stores.clock.advance(rng.random())
        store.store_host = rng.choices(HOSTS, (5, 1))[0]
        store.append([some_message(rng, store) for _ in range(rng.choice((1, 1, 5, 30)))])
        if rng.random() < 0.02:
            store.delete_topic(rng.choice(TOPICS))


def damage(rng: random.Random, stores: Stores, end: int) -> None:
    """What a crash or a failing disk may do to the log and the queues."""
    segments = stores.segments()
    size = segments[0].stat().st_size
    for _ in range(rng.choice((0, 0, 1, 1, 4))):
        at = rng.randrange(max(0, end - rng.choice((300, 5000, end))), end)
        path = segments[min(at // size, len(segments) - 1)]
        content = bytearray(path.read_bytes())
        kind, at = rng.randrange(4), at % size
        if kind == 0:
            content[at:] = bytes(size - at)
        elif kind == 1:
            content[at] ^= 1 << rng.randrange(8)
        elif kind == 2:
            length = min(size - at, rng.randrange(1, 4096))
            content[at : at + length] = bytes(length)
        else:
            struct.pack_into(">i", content, min(at, size - 4), rng.choice((0, 1, 91, -1, 2**31 - 1)))
        path.write_bytes(content)
    queues = sorted((stores.root / "consumequeue").rglob("0*0"))
    files = [path for path in queues if path.is_file()]
    if files and rng.random() < 0.3:
        path = rng.choice(files)
        content = bytearray(path.read_bytes())
        at = rng.randrange(len(content))
        content[at:] = rng.randbytes(len(content) - at) if rng.random() < 0.5 else bytes(len(content) - at)
        path.write_bytes(content)
    if rng.random() < 0.3:
        shutil.rmtree(rng.choice(sorted((stores.root / "consumequeue").iterdir())), ignore_errors=True)
    if rng.random() < 0.2:
        shutil.rmtree(stores.root / "consumequeue")
    if rng.random() < 0.2:
        (stores.root / "checkpoint").unlink(missing_ok=True)
    if len(segments) > 2 and rng.random() < 0.2:
        segments[0].unlink()


def recovered(config: StoreConfig, *, clean: bool, check_crc: bool, by_record: bool) -> dict[str, Any]:
    """Everything that recovery leaves: its report, the queues' offsets, and every byte of log and queues.

    Of a recovery that refuses, why it does, and the log's bytes.
    """
    disk, root = RealDisk(), config.store_path_root_dir
    log, table = CommitLog(config, disk), ConsumeQueueTable(config, disk)
    log.load()
    usable = table.load()
    codes = TagsCodes(config.message_delay_level)
    checkpoint = load_checkpoint(disk, root / "checkpoint")
    recovery = Recovery(log, table, checkpoint, codes, check_crc, by_record=by_record)
    refusal = ""
    try:
        report = asdict(recovery.run(clean=clean, usable=usable))
    except StoreError as error:
        refusal = str(error).replace(str(root), "")
    # A queue that a walk made before it gave up has no files and holds nothing: which walk met one does not matter.
    bounds = {key: (queue.min_offset, queue.max_offset, queue.next_offset) for key, queue in table.by_key.items()}
    queues = {key: offsets for key, offsets in bounds.items() if offsets != (0, 0, 0)}
    log.close()
    table.close()
    if refusal:
        segments = {path.name: path.read_bytes() for path in (root / "commitlog").iterdir()}
        return {"report": refusal, "queues": {}, "files": segments}
    files = {path.relative_to(root): path.read_bytes() for path in root.rglob("0*") if path.is_file()}
    return {"report": report, "queues": queues, "files": files}


@pytest.fixture
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches so small that a log of a few KiB has many of each."""
    monkeypatch.setattr(record_scan, "MAX_BATCH_RECORDS", 50)
    monkeypatch.setattr(redispatch, "_HOLD_RECORDS", 120)


@pytest.mark.usefixtures("small_steps")
@pytest.mark.parametrize("seed", seeds(60, quick=2))
def test_recovery_in_batches_equals_recovery_record_by_record(stores: Stores, tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    stores.fields["mapped_file_size_commit_log"] = rng.choice((16 * 1024, 64 * 1024, 512 * 1024))
    stores.fields["enabled_append_prop_crc"] = rng.random() < 0.6
    store = stores.open()
    fill(rng, stores, store, rng.choice((3, 30, 80)))
    if rng.random() < 0.5:
        stores.fields["enabled_append_prop_crc"] = rng.random() < 0.6
        store = stores.reopen(store)
        fill(rng, stores, store, 10)
    end, clean = store.wrote_offset, rng.random() < 0.4
    (stores.close if clean else stores.crash)(store)
    damage(rng, stores, end)
    outcomes = []
    for by_record in (True, False):
        root = tmp_path / f"by-record-{by_record}"
        shutil.copytree(stores.root, root)
        config = StoreConfig(store_path_root_dir=root, **stores.fields)
        outcomes.append(recovered(config, clean=clean, check_crc=seed % 4 > 0, by_record=by_record))
    expected, found = outcomes
    assert found["report"] == expected["report"]
    assert found["queues"] == expected["queues"]
    assert found["files"].keys() == expected["files"].keys()
    assert [name for name, content in found["files"].items() if content != expected["files"][name]] == []


@pytest.mark.parametrize("by_record", [True, False])
def test_a_rebuild_forgets_what_the_walk_before_it_had_in_hand(stores: Stores, by_record: bool) -> None:
    store = stores.open()
    store.append([message("Orders", k % 3) for k in range(31)])
    store = stores.reopen(store)
    # The walk meets new records of the queues 0 and 1, then one of the lost queue 2.
    store.append([message("Orders", k % 3) for k in range(9)])
    stores.crash(store)
    before = {path.relative_to(stores.root): path.read_bytes() for path in stores.root.rglob("0*") if path.is_file()}
    shutil.rmtree(stores.root / "consumequeue" / "Orders" / "2")
    found = recovered(stores.config, clean=False, check_crc=True, by_record=by_record)
    assert found["report"]["rebuilt"]
    assert found["files"] == before


def scan_both(config: StoreConfig) -> tuple[LogScan, ChunkScan, list[Record], list[RecordBatch]]:
    log = CommitLog(config, RealDisk())
    log.load()
    single, chunks = LogScan(log, 0, check_crc=True), ChunkScan(log, 0, check_crc=True)
    return single, chunks, list(single), list(chunks)


def test_an_ordinary_log_is_scanned_in_batches_alone(stores: Stores) -> None:
    stores.fields["mapped_file_size_commit_log"] = 1 << 20
    store = stores.open()
    for number in range(200):
        store.append([message("Orders", k % 4, b"%d" % number * (k + 1), tag=f"t{k}") for k in range(50)])
    stores.close(store)
    single, chunks, records, found = scan_both(stores.config)
    # The last record before the log's end is the single decoder's.
    assert sum(len(batch) == 1 for batch in found) <= len(stores.segments())
    assert sum(map(len, found)) == len(records) == 10_000
    assert (chunks.end_offset, chunks.reason) == (single.end_offset, single.reason)
    by_position = {record.physical_offset: record for record in records}
    for batch in found:
        for index, position in enumerate((batch.positions + batch.base).tolist()):
            record = by_position[position]
            assert batch.topics[batch.topic_index[index]] == record.topic
            assert (batch.queue_ids[index], batch.queue_offsets[index]) == (record.queue_id, record.queue_offset)
            assert batch.properties(index) == bytes(record.properties)
            assert batch.store_timestamp(index) == record.store_timestamp


@pytest.mark.usefixtures("small_steps")
def test_a_body_that_imitates_a_record_is_never_taken_for_one(stores: Stores) -> None:
    stores.fields["mapped_file_size_commit_log"] = 1 << 20
    store = stores.open()
    for number in range(300):
        inner = store.wrote_offset + 88
        body = b""
        for _ in range(8):
            # Whole imitated records, each with the very place that it has in the log.
            head = HEAD.pack(128, MAGIC_V1, 0, 0, 0, number, inner + len(body), 0, 0)
            body += head + bytes(36) + struct.pack(">i", 31) + b"b" * 31 + b"\x06Orders" + b"\0\0"
        store.append([message("Orders", 0, body)])
    stores.crash(store)
    single, chunks, records, found = scan_both(stores.config)
    assert sum(map(len, found)) == len(records) == 300
    assert (chunks.end_offset, chunks.reason) == (single.end_offset, single.reason)


def test_bytes_of_no_record_end_the_walk_wherever_it_begins(stores: Stores) -> None:
    rng = random.Random(5)
    store = stores.open()
    store.append([message(body=b"x" * 100) for _ in range(40)])
    stores.crash(store)
    original = stores.segments()[0].read_bytes()
    for _ in range(60):
        content = bytearray(original)
        at = rng.randrange(len(content))
        content[at:] = rng.choice((rng.randbytes, lambda count: b"\x7f\xff\xff\xff" * (count // 4 + 1)))(
            len(content) - at
        )[: len(content) - at]
        stores.segments()[0].write_bytes(content)
        single, chunks, records, found = scan_both(stores.config)
        assert (chunks.end_offset, chunks.reason) == (single.end_offset, single.reason)
        assert sum(map(len, found)) == len(records)
