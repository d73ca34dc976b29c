"""Files of Apache RocketMQ open here and ours open there.

``data/apache-store-5.3.3.tar.xz`` was written by ``StoreTool write <root> 16384 1000 260`` with the jars
of RocketMQ 5.3.3; its read.txt is what ``StoreTool read`` then printed.  For ``apache-store-5.3.3-crc.tar.xz``
both ran with ``-Dsprocket.crc=true``: enabledAppendPropCRC and forceVerifyPropCRC.
"""

import shutil
import tarfile
from pathlib import Path

import pytest

from sprocket.remoting.message.record import SysFlag
from store.config.store_config import StoreConfig
from store.message_store import Boundary, MessageStore, PendingMessage
from store.queue.logic_queue import QueueType
from store.record.checksum import SEAL_BYTES, SEAL_NAME
from store.record.record import Record, TagsCodes
from tests.clock import ManualClock
from tests.compat import maven
from tests.compat.directories.store_files import dump, parse, run_tool
from tests.store.insides import crash, records_of

DATA = Path(__file__).resolve().parents[1] / "data"
SEGMENT_BYTES, QUEUE_FILE_BYTES = 16384, 1000


@pytest.fixture(params=[False, True], ids=["plain", "crc"])
def crc(request: pytest.FixtureRequest) -> bool:
    """Whether records end with a CRC of their own."""
    return bool(request.param)


@pytest.fixture
def golden(tmp_path: Path, crc: bool) -> Path:
    with tarfile.open(DATA / f"apache-store-5.3.3{'-crc' if crc else ''}.tar.xz") as archive:
        archive.extractall(tmp_path, filter="data")
    return tmp_path


def batch_queue_type(topic: str) -> QueueType | None:
    """What StoreTool's table of topics says."""
    return QueueType.BATCH if topic == "BatchQueue" else None


def open_store(root: Path, clock: ManualClock | None = None, *, crc: bool = True) -> MessageStore:
    config = StoreConfig(
        store_path_root_dir=root,
        mapped_file_size_commit_log=SEGMENT_BYTES,
        mapped_file_size_consume_queue=QUEUE_FILE_BYTES,
        mapped_file_size_batch_consume_queue=46 * 20,
        enabled_append_prop_crc=crc,
    )
    store = MessageStore(config, clock=clock or ManualClock(), notify=lambda run: run(), queue_type_of=batch_queue_type)
    store.start()
    return store


def copy_messages(records: list[Record], store: MessageStore, clock: ManualClock) -> None:
    """Append `records` again, each at its own time and from its own host."""
    tags = TagsCodes(StoreConfig().message_delay_level)
    for record in records:
        clock.step_wall(record.store_timestamp - clock.wall_ms())
        store.store_host = record.store_host
        properties = bytes(record.properties)
        store.append([
            PendingMessage(
                record.topic, record.queue_id, bytes(record.body), properties,
                tags.of(record.topic, properties, record.store_timestamp), record.flag,
                record.sys_flag & ~int(SysFlag.BORN_HOST_V6 | SysFlag.STORE_HOST_V6), record.born_timestamp,
                record.born_host, record.reconsume_times, record.prepared_transaction_offset,
            )
        ])  # fmt: skip


def test_a_store_of_apache_rocketmq_opens_here(golden: Path) -> None:
    theirs = parse((golden / "read.txt").read_text())
    store = open_store(golden / "store")
    ours = dump(store)
    assert len(ours.messages) > 230
    assert ours.messages == theirs.messages
    assert ours.queues == theirs.queues
    assert ours.end == theirs.end
    for line in theirs.times:
        _, topic, queue_id, time, lower, upper = line.split("\t")
        assert store.offset_by_time(topic, int(queue_id), int(time), Boundary.LOWER) == int(lower), line
        assert store.offset_by_time(topic, int(queue_id), int(time), Boundary.UPPER) == int(upper), line
    store.shutdown()


def test_what_we_write_is_byte_for_byte_what_apache_rocketmq_writes(golden: Path, crc: bool) -> None:
    source = open_store(golden / "store")
    records = records_of(source)
    assert all(bytes(record.properties[-SEAL_BYTES:]).startswith(SEAL_NAME) == crc for record in records)
    clock = ManualClock()
    copy = open_store(golden / "copy", clock, crc=crc)
    copy_messages(records, copy, clock)
    assert copy.wrote_offset == source.wrote_offset
    source.shutdown()
    copy.shutdown()
    for kind in ("commitlog", "consumequeue"):
        written = {path.relative_to(golden / "copy"): path.read_bytes() for path in (golden / "copy" / kind).rglob("0*")
                   if path.is_file()}  # fmt: skip
        original = {path.relative_to(golden / "store"): path.read_bytes()
                    for path in (golden / "store" / kind).rglob("0*") if path.is_file()}  # fmt: skip
        assert len(written) > 3
        assert written == original


def test_queues_rebuilt_from_apache_rocketmqs_log_are_its_own(golden: Path) -> None:
    queues = golden / "store" / "consumequeue"
    before = {path: path.read_bytes() for path in queues.rglob("*") if path.is_file()}
    shutil.rmtree(queues)
    open_store(golden / "store").shutdown()
    after = {path: path.read_bytes() for path in queues.rglob("*") if path.is_file()}
    assert after == before


@pytest.fixture
def java() -> None:
    try:
        maven.apache_classpath()
    except maven.JavaMissingError as missing:
        pytest.skip(f"Java store tests: {missing}")


@pytest.mark.java
@pytest.mark.timeout(300)
@pytest.mark.parametrize(("ending", "crc"), [("clean", True), ("crash", False)])
def test_apache_rocketmq_opens_our_store_and_goes_on(java: None, tmp_path: Path, ending: str, crc: bool) -> None:
    root = tmp_path / "store"
    clock = ManualClock()
    store = open_store(root, clock, crc=crc)
    host = bytes((10, 1, 2, 3)) + (5432).to_bytes(4, "big")
    for number in range(60):
        clock.advance(0.01)
        store.append([
            PendingMessage(
                "T" * (130 if k == 1 else 4), k % 4, b"x" * (number * k % 300),
                b"TAGS\x01t%d\x02KEYS\x01k%d\x02" % (k, k),
                1000 + k, number, 0, 1_600_000_000_000, host,
            )
            for k in range(20)
        ])  # fmt: skip
    ours = dump(store)
    if ending == "clean":
        store.shutdown()
    else:
        crash(store)
    theirs = run_tool("read", root, SEGMENT_BYTES, QUEUE_FILE_BYTES, crc=crc)
    assert theirs.end == ours.end
    assert theirs.queues == ours.queues
    assert theirs.messages == ours.messages
    # RocketMQ appends to it, and we take it back.
    end = run_tool("write", root, SEGMENT_BYTES, QUEUE_FILE_BYTES, "50", crc=crc).end
    again = open_store(root)
    assert again.wrote_offset == end
    assert set(dump(again).messages) > set(ours.messages)
    again.shutdown()


@pytest.mark.java
@pytest.mark.timeout(300)
def test_a_crash_of_apache_rocketmq_is_recovered_here(java: None, tmp_path: Path) -> None:
    root = tmp_path / "store"
    end = run_tool("crash", root, SEGMENT_BYTES, QUEUE_FILE_BYTES, "300").end
    assert (root / "abort").exists()
    store = open_store(root)
    ours = dump(store)
    assert ours.end == end
    store.shutdown()
    assert run_tool("read", root, SEGMENT_BYTES, QUEUE_FILE_BYTES).messages == ours.messages


def batch_files(root: Path) -> dict[str, bytes]:
    """Content of the files of Batch ConsumeQueues."""
    directory = root / "batchconsumequeue"
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("0*") if path.is_file()}


@pytest.mark.java
@pytest.mark.timeout(300)
def test_batch_consume_queues_are_apache_rocketmqs_byte_for_byte(java: None, tmp_path: Path) -> None:
    root = tmp_path / "store"
    end = run_tool("batches", root, SEGMENT_BYTES, QUEUE_FILE_BYTES, "150").end
    theirs = batch_files(root)
    assert len(theirs) == 8
    # Theirs open here as they are.
    store = open_store(root)
    ours = dump(store)
    assert (ours.end, len(ours.messages)) == (end, 150)
    store.shutdown()
    assert batch_files(root) == theirs
    # Files that were rebuilt from the log are the same.
    shutil.rmtree(root / "batchconsumequeue")
    store = open_store(root)
    assert dump(store) == ours
    # We go on, with messages that are alone, too, and they read all of it.
    body = bytes(record_body(store))
    for number in range(30):
        properties = b"INNER_NUM\x01%d\x02TAGS\x01t%d\x02" % (1, number)
        sys_flag = int(SysFlag.INNER_BATCH | SysFlag.NEED_UNWRAP) if number % 3 else 0
        host = bytes((10, 1, 2, 3)) + (5432).to_bytes(4, "big")
        message = PendingMessage("BatchQueue", number % 2, body, properties, 100 + number, 0, sys_flag, 1, host)
        store.append([message])
    ours = dump(store)
    crash(store)
    before = batch_files(root)
    read = run_tool("read", root, SEGMENT_BYTES, QUEUE_FILE_BYTES)
    assert read.messages == ours.messages
    assert read.queues == ours.queues
    assert batch_files(root) == before
    # They go on, and we read that.
    run_tool("batches", root, SEGMENT_BYTES, QUEUE_FILE_BYTES, "20")
    store = open_store(root)
    assert len(dump(store).messages) == 200
    store.shutdown()


def record_body(store: MessageStore) -> memoryview:
    """The body of the first batch, which holds one message."""
    record = records_of(store)[0]
    return record.body
